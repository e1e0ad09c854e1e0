"""What the author of a wrong key, heading or line most likely meant: proposed, never assumed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from cloud.toml_problems import KeyPath, quote, unknown_key
from drivers.boards.registry import BOARDS
from drivers.registry import DRIVERS, driver_type
from gateway.config.bridges.model import ForwardConfig
from gateway.config.keys import field_names, keys_of, table_of
from gateway.config.model import SECTIONS, SensorCommon
from gateway.config.quality_rules import QualityRules

_SAME: Final[Mapping[str, tuple[str, ...]]] = {
    "altitude": ("elevation_m",), "address": ("listen", "host"), "baud": ("baudrate",), "boom": ("boom_deg",),
    "broker": ("bootstrap_servers", "host"), "brokers": ("bootstrap_servers",), "db": ("path",),
    "direction": ("boom_deg",), "gpio": ("pin",), "host": ("listen", "bootstrap_servers"), "id": ("name",),
    "kind": ("driver", "payload"), "lat": ("latitude",), "lon": ("longitude",), "max_size": ("max_bytes",),
    "name": ("id",), "port": ("listen", "device"), "register": ("address",), "scale": ("slope",),
    "server": ("bootstrap_servers", "host"), "servers": ("bootstrap_servers",), "size": ("max_bytes",),
    "slave": ("unit_id",), "slave_id": ("unit_id",), "topic": ("filter", "topic_root"), "twin": ("pair",),
    "type": ("driver", "kind", "payload"), "unit": ("unit_id",),
}  # fmt: skip
"""Other words for a key; the first that the table has is proposed."""
_SECTIONS_WITHIN: Final = {"properties": "kafka.properties", "columns": "board.columns"}


def misplaced(
    key: str, names: Sequence[str], path: KeyPath, owner: str = "", kind: type[Any] | None = None
) -> tuple[str, str | None]:
    """What is wrong with a key that isn't one of ``names``, and the key that is meant.

    ``path`` is the table's, ``owner`` the driver whose keys they are, ``kind`` its options.
    """
    base = f"is not a known key{f' of {owner}' if owner else ''}"
    same = next((each for each in _SAME.get(key.lower(), ()) if each in names), None)
    if same is not None:
        return base, same
    tables = {each.name: table_of(each.hint) for each in keys_of(kind)} if kind is not None else {}
    for within, table in tables.items():
        if table is not None and key in field_names(table):
            return f"belongs in the braces of {within}: {within} = {{ {key} = … }}", None
    # A table within another has no heading of its own.
    one_of_several = len(path) == 2 and isinstance(path[1], int)
    here = f"[[{path[0]}]]" if one_of_several else f"[{path[0]}]"
    if not (one_of_several or len(path) == 1) or key.lower() in {name.lower() for name in names}:
        return unknown_key(key, names, owner)
    kinds = [name for name, options in BOARDS.items() if key in field_names(options)]
    if here == "[board]" and kinds:
        return f"is a key of kind = {' or '.join(map(quote, kinds))}, not of this one: delete it", None
    homes = _homes(key)
    drivers = [name for name in DRIVERS if key in field_names(driver_type(name).options)]
    if homes and here not in homes:
        return f"belongs in {' or '.join(homes)}, not in {here}: a key counts for the heading above it", None
    if drivers and owner:
        return f"{base}, but of {', '.join(drivers)}: delete it, or is the driver another one?", None
    if drivers:
        return f"belongs in the [[sensor]] it is meant for, not in {here}", None
    return unknown_key(key, names, owner)


def unknown_section(name: str, value: object, sections: Sequence[str]) -> tuple[str, str | None]:
    """What is wrong with a heading, or a key before any heading, that isn't one of the sections."""
    options = [driver_type(driver).options for driver in DRIVERS]
    if not isinstance(value, dict | list):
        of_driver = ["[[sensor]]"] if any(name in field_names(kind) for kind in options) else []
        homes = " or ".join(_homes(name) or of_driver) or "a heading such as [gateway]"
        return f"stands before the first heading: it belongs under {homes}", None
    if name in _SECTIONS_WITHIN:
        return "is not a known section", _SECTIONS_WITHIN[name]
    keys = [key for kind in options for key in keys_of(kind)]
    if any(key.name == name and table_of(key.hint) is not None for key in keys):
        return f"belongs to the sensor above it: write [sensor.{name}]", None
    return unknown_key(name, sections, what="section")


def _homes(key: str) -> list[str]:
    """The headings of the sections that have a key."""
    homes = [f"[{name}]" for name, kind in SECTIONS.items() if key in field_names(kind)]
    if key == "kind" or any(key in field_names(kind) for kind in BOARDS.values()):
        homes.append("[board]")
    if key in field_names(SensorCommon):
        homes.append("[[sensor]]")
    if key in field_names(QualityRules):
        homes += ["[quality.QUANTITY]", "quality = { … } of a sensor"]
    if key in field_names(ForwardConfig) and not homes:
        homes.append("[[forward]]")
    return homes
