"""Keys that a section doesn't know: what their author meant, and where they belong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from drivers.boards.registry import BOARDS
from drivers.registry import DRIVERS, driver_type
from gateway.config import model
from gateway.config.amounts import converted, key_with_unit, show, unit_of
from gateway.config.keys import dataclasses_of, field_names, hints_of, unknown_key
from gateway.config.problems import KeyPath, quote
from gateway.config.quality_rules import QualityOptions

SECTIONS: Final[Mapping[str, type[Any]]] = {
    "gateway": model.GatewayConfig,
    "mqtt": model.MqttConfig,
    "kafka": model.KafkaConfig,
    "uplink": model.UplinkConfig,
    "outbox": model.OutboxConfig,
    "clock": model.ClockConfig,
    "status": model.StatusKeys,
}
"""The sections whose keys don't depend on a driver or a board."""

_UNITS: Final = {"s": "seconds", "m": "metres", "h": "hours", "deg": "degrees"}
_SAME: Final[Mapping[str, tuple[str, ...]]] = {
    "altitude": ("elevation_m",),
    "address": ("listen", "host"),
    "bcm": ("pin",),
    "bind": ("listen",),
    "boom": ("boom_deg",),
    "broker": ("bootstrap_servers", "host"),
    "brokers": ("bootstrap_servers",),
    "bus_address": ("address",),
    "database": ("path",),
    "db": ("path",),
    "direction": ("boom_deg",),
    "factor": ("slope", "scale"),
    "gpio": ("pin",),
    "gpio_pin": ("pin",),
    "host": ("listen", "bootstrap_servers"),
    "hostname": ("host",),
    "i2c_address": ("address",),
    "id": ("name",),
    "kind": ("driver", "payload"),
    "lat": ("latitude",),
    "limit": ("max_bytes",),
    "lng": ("longitude",),
    "lon": ("longitude",),
    "long": ("longitude",),
    "max_size": ("max_bytes",),
    "multiplier": ("slope", "scale"),
    "name": ("id",),
    "orientation": ("boom_deg",),
    "period": ("interval_s", "period_s"),
    "port": ("listen", "bootstrap_servers"),
    "prefix": ("topic_root",),
    "rate": ("interval_s",),
    "serial_number": ("serial",),
    "server": ("bootstrap_servers", "host"),
    "servers": ("bootstrap_servers",),
    "size": ("max_bytes",),
    "sn": ("serial",),
    "topic": ("filter", "topic_root"),
    "twin": ("pair",),
    "type": ("driver", "kind", "payload"),
    "url": ("bootstrap_servers", "host"),
}
"""Other words for a key; the first that the section has is meant."""


def explain(
    key: str,
    value: object,
    names: Sequence[str],
    path: KeyPath,
    owner: str = "",
    kind: type[Any] | None = None,
) -> tuple[str, str | None]:
    """What to say of a key that isn't one of ``names``, and the key that is meant.

    ``path`` is the table's, ``owner`` the driver whose keys they are, ``kind`` its options.
    """
    base = f"is not a known key{f' of {owner}' if owner else ''}"
    in_unit = key_with_unit(key, names)
    if in_unit is not None:
        amount = value if isinstance(value, int | float) and not isinstance(value, bool) else None
        given = key.rpartition("_")[2]
        right = converted(float(amount), given, in_unit) if amount is not None else None
        if right is not None:
            return f"{base}: write {in_unit} = {show(right)}", None
        return f"{base}: write {in_unit}, in {_UNITS[unit_of(in_unit) or '']}", None
    for same in _SAME.get(key.lower().replace("-", "_"), ()):
        if same in names:
            return base, same
    within = _within(key, kind) if kind is not None else None
    if within is not None:
        return f"belongs in the braces of {within}: {within} = {{ {key} = … }}", None
    here = _heading(path)
    if here is not None and key.lower() not in {name.lower() for name in names}:
        kinds = [name for name, options in BOARDS.items() if key in field_names(options)]
        if here == "[board]" and kinds:
            return f"is a key of kind = {' or '.join(map(quote, kinds))}, not of this one: delete it", None
        homes, drivers = _homes(key), _drivers(key)
        if homes and here not in homes:
            return (
                f"belongs in {' or '.join(homes)}, not in {here}: a key counts for the heading above it",
                None,
            )
        if drivers and owner:
            return f"{base}, but of {', '.join(drivers)}: delete it, or is the driver another one?", None
        if drivers:
            return f"belongs in the [[sensor]] it is meant for, not in {here}", None
    return unknown_key(key, names, owner)


def explain_section(name: str, value: object, sections: Sequence[str]) -> tuple[str, str | None]:
    """What to say of a heading, or a key before any heading, that isn't one of the sections."""
    if not isinstance(value, dict | list):
        homes = _homes(name) or ["[[sensor]]" for _ in _drivers(name)[:1]]
        where = f"under {' or '.join(homes)}" if homes else "under a heading such as [gateway]"
        return f"stands before the first heading: it belongs {where}", None
    if name == "properties":
        return "is not a known section", "kafka.properties"
    for kind in (*_options(), *BOARDS.values()):
        if name in field_names(kind) and dataclasses_of(hints_of(kind)[name]):
            return f"belongs to the sensor above it: write [sensor.{name}]", None
    if name == "columns":
        return "is not a known section", "board.columns"
    message, guess = unknown_key(name, sections)
    return message.replace("key", "section", 1), guess


def _heading(path: KeyPath) -> str | None:
    """How a table's heading reads; None for a table within another."""
    if len(path) == 1:
        return f"[{path[0]}]"
    return f"[[{path[0]}]]" if len(path) == 2 and isinstance(path[1], int) else None


def _homes(key: str) -> list[str]:
    """The headings of the sections that know a key."""
    homes = [f"[{name}]" for name, kind in SECTIONS.items() if key in field_names(kind)]
    boards = [name for name, kind in BOARDS.items() if key in field_names(kind)]
    if boards or key == "kind":
        homes.append("[board]")
    if key in field_names(model.SensorCommon):
        homes.append("[[sensor]]")
    if key in field_names(QualityOptions):
        homes += ["[quality.QUANTITY]", "quality = { … } of a sensor"]
    if key in field_names(model.ForwardConfig) and not homes:
        homes.append("[[forward]]")
    return homes


def _drivers(key: str) -> list[str]:
    """The built-in drivers that know a key."""
    return [name for name in DRIVERS if key in field_names(driver_type(name).options)]


def _options() -> list[type[Any]]:
    return [driver_type(name).options for name in DRIVERS]


def _within(key: str, kind: type[Any]) -> str | None:
    """The key of a dataclass whose own table knows ``key``."""
    for name, hint in hints_of(kind).items():
        if any(key in field_names(nested) for nested in dataclasses_of(hint)):
            return name
    return None
