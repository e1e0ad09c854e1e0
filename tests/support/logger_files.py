"""Files of made-up loggers and their mappings, for tests of ``fieldgate import``."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from cloud.lake.tables import open_lake
from tests.support.commands import import_files as run

MAPPING: Final = """
[file]
gateway = "old-07"
format = "csv"
time = "Time"
interval = "10m"
scan = "1s"
stamps = "end"
utc_offset = "+01:00"

[[channel]]
sensor = "cup"
quantity = "wind_speed"
unit = "km/h"
avg = "V"
sd = "Vsd"
max = "Vmax"
height_m = 40.0

[[channel]]
sensor = "air"
quantity = "temperature"
avg = "T"
"""
SAMPLES: Final = """
[file]
gateway = "old-07"
format = "csv"
time = "Time"
interval = "1s"
stamps = "start"
utc_offset = "+00:00"

[[channel]]
sensor = "cup"
quantity = "wind_speed"
avg = "V"
height_m = 40.0
"""
HEADER: Final = "Time,V,Vsd,Vmax,T"
START: Final = datetime(2016, 2, 1, 1, 10)  # noqa: DTZ001 - a logger's clock has no zone
"""What a logger an hour ahead of UTC, which stamps ends, writes on February's first ten minutes in UTC."""


def mapping_in(folder: Path, text: str = MAPPING) -> Path:
    """A mapping as a file."""
    path = folder / "mapping.toml"
    path.write_text(text)
    return path


def lines(number: int, first: int = 0) -> list[str]:
    """So many ten minutes of a logger, from the one numbered ``first`` on: 36 km/h and more, 5 degrees."""
    rows = ((START + timedelta(minutes=10 * at), at % 5) for at in range(first, first + number))
    return [f"{time},{36 + more},3.6,{54 + more},5.0" for time, more in rows]


def file_in(folder: Path, rows: Iterable[str], name: str = "logger.csv", header: str = HEADER) -> Path:
    """A logger's file."""
    path = folder / name
    path.write_text("\r\n".join([header, *rows, ""]))
    return path


def imported(
    folder: Path, *files: Path, mapping: str = MAPPING, code: int = 0, more: Iterable[str] = ()
) -> None:
    """Runs the command over ``folder/lake``."""
    options = ["--mapping", str(mapping_in(folder, mapping)), "--lake", str(folder / "lake"), *more]
    assert run([*options, *map(str, files)]) == code


def asked(folder: Path, sql: str) -> list[tuple[Any, ...]]:
    """A query's answer."""
    with open_lake(folder / "lake") as lake:
        return lake.execute(sql).fetchall()
