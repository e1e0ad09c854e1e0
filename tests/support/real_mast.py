"""A real mast with a human's cleaning log: two years of ten minutes from the demo data of brightwind's wheel.

Fetch it into a cache outside the repository:
``pip download --no-deps -d ~/.cache/fieldgate brightwind==2.7.0``.
The files are read out of the wheel; nothing of it is stored here.
"""

from __future__ import annotations

import os
import zipfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa

_FOLDER: Final = "brightwind/demo_datasets/"
_PATTERN: Final = "brightwind-2.7.0-*.whl"
GATEWAY: Final = "demo-mast"
INTERVAL_S: Final = 600

CUPS: Final = {
    f"Spd{height}m{side}": f"cup-{height}m-{side.lower()}.wind_speed"
    for height in (80, 60, 40)
    for side in "NS"
}
OTHERS: Final = {
    "T2m": ("thermometer.temperature", "temperature", 1.0),
    "RH2m": ("hygrometer.humidity", "humidity", 1.0),
    "P2m": ("barometer.pressure", "pressure", 0.1),
}


def find_wheel(given: str | None = None) -> Path | None:
    """The wheel, where it is: as given, in FIELDGATE_DEMO_DATA, or in the cache."""
    if given:
        return Path(given)
    folders = [os.environ.get("FIELDGATE_DEMO_DATA"), str(Path.home() / ".cache" / "fieldgate")]
    found = [path for folder in folders if folder for path in sorted(Path(folder).glob(_PATTERN))]
    return found[0] if found else None


@dataclass(frozen=True)
class Fault:
    """A line of the cleaning log: from ``begin`` up to, and without, ``end``, as its authors apply it."""

    sensor: str
    begin: pd.Timestamp
    end: pd.Timestamp
    reason: str


@dataclass(frozen=True)
class RealMast:
    """The file's columns over time (UTC by the file), and the log."""

    data: pd.DataFrame
    log: tuple[Fault, ...]

    def faults(self, sensor: str, reason: str) -> list[Fault]:
        return [fault for fault in self.log if (fault.sensor, fault.reason) == (sensor, reason)]


def read(wheel: Path) -> RealMast:
    with zipfile.ZipFile(wheel) as archive:
        with archive.open(f"{_FOLDER}demo_data.csv") as file:
            data = pd.read_csv(file, encoding="utf-8-sig", parse_dates=["Timestamp"], index_col="Timestamp")
        with archive.open(f"{_FOLDER}demo_cleaning_file.csv") as file:
            log = pd.read_csv(file, parse_dates=["Start", "Stop"], date_format="mixed")
    data.index = pd.DatetimeIndex(data.index).tz_localize("UTC")
    faults = (
        Fault(str(sensor), pd.Timestamp(begin, tz="UTC"), pd.Timestamp(end, tz="UTC"), str(reason))
        for sensor, begin, end, reason in zip(log.Sensor, log.Start, log.Stop, log.Reason, strict=True)
    )
    return RealMast(data, tuple(faults))


def statistics_table(data: pd.DataFrame, removed: dict[str, datetime]) -> pa.Table:
    """Closed rows of ``statistics``, as the stream would have made them of these cups.

    ``removed``: from when on a column's sensor is gone from the mast.
    """
    frames = []
    sources = {column: (channel, "wind_speed", 1.0) for column, channel in CUPS.items()} | OTHERS
    for column, (channel, quantity, factor) in sources.items():
        part = data[data.index < removed[column]] if column in removed else data
        is_cup = column in CUPS
        frames.append(
            pd.DataFrame(
                {
                    "channel": channel,
                    "interval_start": part.index,
                    "quantity": quantity,
                    "avg": part[column].to_numpy(float) * factor,
                    "sd": part[f"{column}Std"].to_numpy(float) if is_cup else np.nan,
                    "max": part[f"{column}Max"].to_numpy(float) if is_cup else np.nan,
                }
            )
        )
    frame = pd.concat(frames, ignore_index=True)
    frame["gateway"] = GATEWAY
    frame["interval_s"] = np.int32(INTERVAL_S)
    frame["count"], frame["recovery"], frame["n_suspect"], frame["n_fail"] = 600, 1.0, 0, 0
    frame["version"] = np.int32(1)
    frame["date"] = frame["interval_start"].dt.date
    table = pa.Table.from_pandas(frame, preserve_index=False)
    return table.set_column(
        table.column_names.index("interval_start"),
        "interval_start",
        table["interval_start"].cast(pa.timestamp("us", tz="UTC")),
    )
