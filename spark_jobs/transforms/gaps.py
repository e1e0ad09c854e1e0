"""Rows for intervals in which a configured channel has no reading: pure, and a part at a time.

A row says what was due and that nothing came: count 0, recovery 0, no values, quality 9 (missing).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from cloud.wire.reading_records import MISSING
from spark_jobs.intervals import DAY_US, SECOND_US, TIMES, Channel

_WINDOW_US: Final = 32 * DAY_US
_COUNTS: Final = ("count", "n_good", "n_not_evaluated", "n_suspect", "n_fail", "n_missing")
_VALUES: Final = ("avg", "min", "max", "sd", "gust", "cube_mean")
_TIMES: Final = ("max_time", "gust_time")


@dataclass(frozen=True, slots=True)
class Stretch:
    """Intervals of a channel without a reading: starts from ``first_us`` on, before ``end_us``.

    Both are starts of intervals, microseconds since the epoch; ``period_ms`` is the period in force.
    """

    channel: Channel
    first_us: int
    end_us: int
    period_ms: int
    unit: str

    def between(self, first_us: int, end_us: int) -> Stretch:
        """The part of it that lies in these times."""
        return replace(self, first_us=max(first_us, self.first_us), end_us=min(end_us, self.end_us))


def _due(stretch: Stretch, interval_s: int) -> Any:
    """Starts of the intervals in which a sample was due.

    Samples lie on the grid of their period, so with a period over the interval's length not every interval
    has one; where none was due none is missing.
    """
    starts_us = np.arange(stretch.first_us, stretch.end_us, interval_s * SECOND_US, dtype=np.int64)
    period_us = stretch.period_ms * 1000
    if period_us <= interval_s * SECOND_US:
        return starts_us
    return starts_us[-starts_us % period_us < interval_s * SECOND_US]


def gap_rows(stretches: Iterable[Stretch], interval_s: int) -> Any:
    """An Arrow table with the columns of ``statistics`` but for version and updated_at; None without rows."""
    found = [(stretch, _due(stretch, interval_s)) for stretch in stretches]
    lengths = [len(starts) for _, starts in found]
    total = sum(lengths)
    if not total:
        return None

    def repeated(values: list[Any], kind: Any) -> Any:
        indices = np.repeat(np.arange(len(values)), lengths)
        return pa.array(values, kind).take(pa.array(indices))

    starts = np.concatenate([starts for _, starts in found])
    channels = [stretch.channel for stretch, _ in found]
    periods = [stretch.period_ms for stretch, _ in found]
    zeros = pa.array(np.zeros(total, dtype=np.int64))
    return pa.table(
        {
            "gateway": repeated([gateway for gateway, _ in channels], pa.string()),
            "channel": repeated([channel for _, channel in channels], pa.string()),
            "interval_start": pa.array(starts).cast(TIMES),
            "quantity": repeated([channel.partition(".")[2] for _, channel in channels], pa.string()),
            "unit": repeated([stretch.unit for stretch, _ in found], pa.string()),
            **{name: pa.nulls(total, pa.float64()) for name in _VALUES},
            **{name: pa.nulls(total, TIMES) for name in _TIMES},
            **dict.fromkeys(_COUNTS, zeros),
            "expected": repeated([interval_s * 1000.0 / period for period in periods], pa.float64()),
            "recovery": pa.array(np.zeros(total)),
            "period_ms": repeated(periods, pa.int32()),
            "quality": pa.array(np.full(total, MISSING, dtype=np.int32)),
            "interval_s": pa.array(np.full(total, interval_s, dtype=np.int32)),
            "date": pa.array((starts // DAY_US).astype(np.int32)).cast(pa.date32()),
        }
    )


def in_parts(stretches: Iterable[Stretch], interval_s: int, most: int) -> Iterator[list[Stretch]]:
    """The stretches in lists of at most so many intervals together.

    A channel's come in order of time. A list holds at most 32 days, so that what is written at a time lies in
    few partitions, however long the gateway was away.
    """
    length_us = interval_s * SECOND_US
    windows: dict[int, list[Stretch]] = {}
    for stretch in stretches:
        if stretch.first_us >= stretch.end_us:
            continue
        for window in range(stretch.first_us // _WINDOW_US, (stretch.end_us - 1) // _WINDOW_US + 1):
            windows.setdefault(window, []).append(stretch)
    for window, found in sorted(windows.items()):
        part: list[Stretch] = []
        room = most
        for whole in found:
            left = whole.between(window * _WINDOW_US, (window + 1) * _WINDOW_US)
            while left.first_us < left.end_us:
                piece = left.between(left.first_us, left.first_us + room * length_us)
                part.append(piece)
                room -= (piece.end_us - piece.first_us) // length_us
                left = left.between(piece.end_us, left.end_us)
                if not room:
                    yield part
                    part, room = [], most
        if part:
            yield part
