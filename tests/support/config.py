"""Config files for tests: the sections that nearly all of them have, and sensors in a line each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import tomlkit

Table = Mapping[str, Any]

ID: Final = "mast-07"
PLACE: Final[Table] = {"latitude": 27.7, "longitude": 85.5}
_USUAL: Final[Mapping[str, Table]] = {
    "gateway": {"id": ID},
    "outbox": {"path": "outbox.db"},
    "board": {"kind": "simulated"},
}


def sensor(name: str, driver: str, **options: Any) -> Table:
    """A sensor of any driver."""
    return {"name": name, "driver": driver, **options}


def cup(name: str = "cup", pin: int = 17, **options: Any) -> Table:
    """A cup anemometer; options may replace the NRG transfer function."""
    return sensor(name, "hall-anemometer", **{"pin": pin, "slope": 0.765, "offset": 0.35} | options)


def dht(name: str = "dht", pin: int = 4, **options: Any) -> Table:
    """A DHT11, read every two seconds."""
    return sensor(name, "dht11", **{"pin": pin, "interval_s": 2} | options)


def baro(name: str = "baro", **options: Any) -> Table:
    """A BP-20."""
    return sensor(name, "bp20", **options)


def config_text(*sensors: Table, **sections: Table | Sequence[Table] | None) -> str:
    """A config file: mast-07 on the simulated board, its outbox beside the file, and these sensors.

    A section's keys are added to the usual ones, or replace them; None leaves the section out.
    """
    tables: dict[str, Any] = dict(_USUAL)
    for name, given in sections.items():
        usual = _USUAL.get(name)
        tables[name] = {**usual, **given} if usual and isinstance(given, Mapping) else given
    tables["sensor"] = sensors
    return tomlkit.dumps({name: table for name, table in tables.items() if table})


def write_config(directory: Path, text: str) -> Path:
    """The file gateway.toml with this text."""
    path = directory / "gateway.toml"
    path.write_text(text)
    return path


def changed(text: str, changes: Iterable[tuple[str, str]]) -> str:
    """A text with the second of each pair in the place of the first, which it has once."""
    for before, after in changes:
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    return text
