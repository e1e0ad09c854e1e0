"""A made-up mast: interval statistics of two heights with twin cups and a thermometer, and faults in them.

Wind is a slow random walk; twins differ by noise that shrinks with the wind and by a wake that comes and goes
for both heights; sd follows the mean. So no channel can be judged by itself, each by the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from spark_jobs.anomaly.observations import FIELDS, Numbers, Observations
from spark_jobs.anomaly.training import windowed

INTERVAL_S = 600
START = datetime(2026, 1, 5, tzinfo=UTC)
CUPS = tuple(f"cup-{height}m-{side}.wind_speed" for height in (20, 50) for side in "ab")
THERMOMETER = "dht.temperature"
CHANNELS = (*CUPS, THERMOMETER)


@dataclass
class Mast:
    """Statistics by channel (n, channels); NaN is a channel without a valid reading."""

    avg: Numbers
    sd: Numbers
    max: Numbers
    channels: tuple[str, ...] = CHANNELS
    starts_s: Any = field(init=False)

    def __post_init__(self) -> None:
        self.starts_s = np.int64(START.timestamp()) + INTERVAL_S * np.arange(len(self.avg))

    def column(self, channel: str) -> int:
        return self.channels.index(channel)

    def observations(self) -> Observations:
        """The same as the stream would gather it."""
        present = np.where(np.isfinite(self.avg), 1.0, 0.0)
        fields: Mapping[str, Numbers] = {
            "avg": self.avg, "sd": self.sd, "max": self.max, "recovery": present, "doubted": 0 * present,
        }  # fmt: skip
        windows = (windowed(fields[name], self.starts_s, INTERVAL_S) for name in FIELDS)
        quantities = tuple(name.partition(".")[2] for name in self.channels)
        return Observations(self.channels, quantities, *windows)

    def at(self, moment: datetime) -> int:
        return round((moment - START).total_seconds() / INTERVAL_S)


def weather(days: int, seed: int) -> Mast:
    chance = np.random.default_rng(seed)
    n = days * 144

    def walk(memory: float) -> Numbers:
        values = np.empty(n)
        last = chance.normal()
        for row, step in enumerate(chance.normal(size=n)):
            values[row] = last = memory * last + np.sqrt(1 - memory**2) * step
        return values

    speed = 7.0 * np.exp(0.45 * walk(0.99))
    wake = np.clip(walk(0.97), 0, 1) * 0.15
    intensity = 0.12 * np.exp(0.2 * walk(0.95))
    avg = np.empty((n, 5))
    for column, (height, side) in enumerate([(20, "a"), (20, "b"), (50, "a"), (50, "b")]):
        free = speed * (height / 50) ** (0.2 + 0.03 * walk(0.98))
        loss = wake if side == "b" else 0.0
        avg[:, column] = free * (1 - loss) + chance.normal(scale=0.08, size=n)
    avg = np.maximum(avg, 0.3)
    avg[:, 4] = 8 + 6 * walk(0.998)
    sd = intensity[:, None] * avg * np.exp(0.05 * chance.normal(size=(n, 5)))
    top = avg + sd * (2.8 + 0.2 * chance.normal(size=(n, 5)))
    return Mast(avg, sd, top)


def dead_cup(mast: Mast, channel: str, since: datetime) -> None:
    column, begin = mast.column(channel), mast.at(since)
    for values in (mast.avg, mast.sd, mast.max):
        values[begin:, column] = 0.0


def icing(mast: Mast, channel: str, begin: datetime, end: datetime) -> None:
    """The cup drags, ever more, and stands; it is cold."""
    rows = slice(mast.at(begin), mast.at(end))
    column = mast.column(channel)
    drag = np.linspace(1, 0, rows.stop - rows.start)
    for values in (mast.avg, mast.sd, mast.max):
        values[rows, column] *= drag
    mast.avg[rows, mast.column(THERMOMETER)] = -1.0


def statistics_table(mast: Mast, gateway: str, keep: Callable[[int, str], bool] | None = None) -> pa.Table:
    """Closed rows of ``statistics``, without those that ``keep(row, channel)`` refuses."""
    rows = [
        {
            "gateway": gateway,
            "channel": channel,
            "interval_s": INTERVAL_S,
            "interval_start": START + timedelta(seconds=INTERVAL_S * row),
            "quantity": channel.partition(".")[2],
            "avg": float(mast.avg[row, column]),
            "sd": float(mast.sd[row, column]),
            "max": float(mast.max[row, column]),
            "count": 600,
            "recovery": 1.0,
            "n_suspect": 0,
            "n_fail": 0,
            "version": 1,
            "date": (START + timedelta(seconds=INTERVAL_S * row)).date(),
        }
        for row in range(len(mast.avg))
        for column, channel in enumerate(mast.channels)
        if keep is None or keep(row, channel)
    ]
    kinds = {
        "interval_s": pa.int32(),
        "interval_start": pa.timestamp("us", tz="UTC"),
        "version": pa.int32(),
        **dict.fromkeys(("count", "n_suspect", "n_fail"), pa.int64()),
    }
    table = pa.Table.from_pylist(rows)
    return table.cast(
        pa.schema([(name, kinds.get(name, table.schema.field(name).type)) for name in table.column_names])
    )
