"""Rows for intervals in which a configured channel has no reading: pure, and a part at a time.

They are statistics of no readings: count 0, recovery 0, no values, quality 9 (missing).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import groupby, islice, repeat
from operator import itemgetter
from typing import Any, Final

import numpy as np

from spark_jobs.intervals import DAY_US, SECOND_US, Channel
from spark_jobs.transforms.interval_sums import nothing, statistics_rows

_WINDOW_US: Final = 32 * DAY_US


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


def _due(stretch: Stretch, interval_s: int) -> Iterable[int]:
    """Starts of the intervals in which a sample was due.

    Samples lie on the grid of their period, so with a period over the interval's length not every interval
    has one; where none was due none is missing.
    """
    length_us, period_us = interval_s * SECOND_US, stretch.period_ms * 1000
    starts_us = range(stretch.first_us, stretch.end_us, length_us)
    if period_us <= length_us:
        return starts_us
    return [start_us for start_us in starts_us if -start_us % period_us < length_us]


def gap_rows(stretches: Iterable[Stretch], interval_s: int, most: int) -> Iterator[Any]:
    """Arrow tables of at most so many rows: the columns of ``statistics`` but for version and updated_at.

    In the order of time, and each within 32 days, so that what is written at a time lies in few partitions,
    however long the gateway was away.
    """
    due = merge(*(zip(_due(each, interval_s), repeat(each)) for each in stretches), key=itemgetter(0))
    for _, window in groupby(due, key=lambda row: row[0] // _WINDOW_US):
        while rows := list(islice(window, most)):
            yield _table(rows, interval_s)


def _table(rows: Sequence[tuple[int, Stretch]], interval_s: int) -> Any:
    period_ms = np.array([stretch.period_ms for _, stretch in rows], np.int64)
    return statistics_rows(
        [(stretch.channel, start_us) for start_us, stretch in rows],
        nothing(len(rows)),
        [stretch.channel[1].partition(".")[2] for _, stretch in rows],
        [stretch.unit for _, stretch in rows],
        period_ms,
        interval_s * 1000.0 / period_ms,
        interval_s,
    )
