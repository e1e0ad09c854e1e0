"""Open intervals whose statistics grow from batch to batch and are not computed whole again.

An interval is followed from its first reading on, as long as its readings come in the order of time, as new
rows and with one period. One for which that doesn't hold is dropped for good: it is computed whole from the
table until it is closed, as every interval is when it is closed. Owned by whoever holds the
statistics job's lock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from spark_jobs.intervals import SECOND_US, Interval
from spark_jobs.transforms.interval_sums import (
    GUST_S,
    MAX_GUST_PERIOD_MS,
    SUMS,
    Bools,
    Floats,
    Ints,
    ReadingsByInterval,
    gust_sums,
    gusts,
    merged,
    nothing,
    statistics_rows,
    sums_of,
)


@dataclass(frozen=True, slots=True)
class _Running:
    """An interval: the sums of its readings, and the last 3 s of them, with which gusts may yet begin.

    ``sums`` hold the gusts that no later reading can change, ``gusts`` the others.
    """

    sums: np.void
    gusts: np.void
    quantity: str
    unit: str
    period_ms: int
    last_us: int
    recent_us: Ints
    recent: Floats


_NOTHING: Final = nothing(1)[0]
_NEW: Final = _Running(_NOTHING, _NOTHING, "", "", 0, 0, np.zeros(0, np.int64), np.zeros(0))


@dataclass
class RunningIntervals:
    """The intervals that are followed, by channel and start."""

    interval_s: int
    _running: dict[Interval, _Running] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._running)

    def add(self, batch: ReadingsByInterval, new: Collection[Interval]) -> set[Interval]:
        """Adds changed readings: those of their intervals that are followed.

        ``new`` are the intervals that had no reading before.
        """
        goes_on = [self._goes_on(batch, at, new) for at in range(len(batch.intervals))]
        followed = batch.regular() & np.array(goes_on, bool)
        self.drop(interval for interval, goes in zip(batch.intervals, followed, strict=True) if not goes)
        if not followed.any():
            return set()
        places = np.flatnonzero(followed).tolist()
        self._merge(batch, places, np.repeat(followed, batch.ends - batch.begins))
        return {batch.intervals[at] for at in places}

    def drop(self, intervals: Iterable[Interval]) -> None:
        """Follows these no longer, if it did."""
        for interval in intervals:
            self._running.pop(interval, None)

    def rows(self, intervals: Collection[Interval]) -> Any:
        """The rows of intervals that are followed."""
        found = [self._running[interval] for interval in intervals]
        period_ms = np.array([each.period_ms for each in found], np.int64)
        return statistics_rows(
            list(intervals),
            merged(
                np.array([each.sums for each in found], SUMS), np.array([each.gusts for each in found], SUMS)
            ),
            [each.quantity for each in found],
            [each.unit for each in found],
            period_ms,
            self.interval_s * 1000.0 / period_ms,
            self.interval_s,
        )

    def _goes_on(self, batch: ReadingsByInterval, at: int, new: Collection[Interval]) -> bool:
        interval = batch.intervals[at]
        before = self._running.get(interval)
        if before is None:
            return interval in new
        return bool(
            batch.time_us[batch.begins[at]] > before.last_us and batch.period_ms[at] == before.period_ms
        )

    def _merge(self, batch: ReadingsByInterval, places: list[int], rows: Bools) -> None:
        """Adds the readings of some intervals; ``rows``: which of the batch's they are."""
        before = [self._running.get(batch.intervals[at], _NEW) for at in places]
        period_ms, direction, wind = batch.period_ms[places], batch.direction[places], batch.wind[places]
        time_us, values, quality = batch.time_us[rows], batch.values[rows], batch.quality[rows]
        ends = np.cumsum((batch.ends - batch.begins)[places])
        begins = np.append(0, ends[:-1])
        last_us = time_us[ends - 1]
        sums = merged(
            np.array([each.sums for each in before], SUMS),
            sums_of(begins, time_us, values, quality, direction, wind),
        )
        gusty = ~direction & (period_ms <= MAX_GUST_PERIOD_MS)
        valid = np.where(batch.enters[rows] & np.repeat(gusty, ends - begins), values, np.nan)
        # With the last readings before them: gusts reach across the border of two batches.
        pieces = list(zip(before, begins, ends, strict=True))
        times = [np.append(each.recent_us, time_us[begin:end]) for each, begin, end in pieces]
        valids = [np.append(each.recent, valid[begin:end]) for each, begin, end in pieces]
        lengths = np.array([len(each) for each in times])
        begins, time_us, valid = np.cumsum(lengths) - lengths, np.concatenate(times), np.concatenate(valids)
        gust = gusts(begins, time_us, valid, np.repeat(period_ms, lengths))
        over = time_us <= np.repeat(last_us, lengths) - GUST_S * SECOND_US
        sums = merged(sums, gust_sums(begins, time_us, np.where(over, gust, -np.inf)))
        likely = gust_sums(begins, time_us, np.where(over, -np.inf, gust))
        for n, at in enumerate(places):
            recent = (times[n] > last_us[n] - GUST_S * SECOND_US) & gusty[n]
            self._running[batch.intervals[at]] = _Running(
                # Else each of them would keep all of its batch.
                sums[n].copy(),
                likely[n].copy(),
                batch.quantity[at],
                batch.unit[at],
                int(period_ms[n]),
                int(last_us[n]),
                times[n][recent],
                valids[n][recent],
            )
