"""Rows for intervals in which a configured channel has no reading: pure, and a part at a time.

They are statistics of no readings: count 0, recovery 0, no values, quality 9 (missing).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
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

    def between(self, first_us: int, end_us: int) -> Stretch:
        """The part of it that lies in these times."""
        return replace(self, first_us=max(first_us, self.first_us), end_us=min(end_us, self.end_us))


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


def gap_rows(stretches: Iterable[Stretch], interval_s: int) -> Any:
    """An Arrow table with the columns of ``statistics`` but for version and updated_at; None without rows."""
    due = [(stretch, start_us) for stretch in stretches for start_us in _due(stretch, interval_s)]
    if not due:
        return None
    period_ms = np.array([stretch.period_ms for stretch, _ in due], np.int64)
    return statistics_rows(
        [(stretch.channel, start_us) for stretch, start_us in due],
        nothing(len(due)),
        [stretch.channel[1].partition(".")[2] for stretch, _ in due],
        [stretch.unit for stretch, _ in due],
        period_ms,
        interval_s * 1000.0 / period_ms,
        interval_s,
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
