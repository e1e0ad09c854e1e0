"""Readings outside of Spark, put together by interval."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_jobs.intervals import SECOND_US, Interval
from spark_jobs.transforms.interval_sums import (
    Bools,
    Floats,
    Ints,
    entering,
    gust_sums,
    gusts,
    merged,
    statistics_rows,
    sums_of,
)


class ReadingsByInterval:
    """Readings of an Arrow table in the order of gateway, channel and time, interval by interval.

    Columns: gateway, channel, quantity, unit, time, period_ms, value, quality. Those of ``intervals[n]`` are
    from ``begins[n]`` to before ``ends[n]``; the quantity is that of its first reading, unit and period are
    those of its last.
    """

    def __init__(self, readings: Any, interval_s: int) -> None:
        self._readings = readings
        self._interval_s = interval_s
        self.time_us: Ints = readings["time"].cast(pa.int64()).to_numpy()
        self.values: Floats = readings["value"].to_numpy()
        self.quality: NDArray[np.int32] = readings["quality"].to_numpy()
        self.periods_ms: Ints = readings["period_ms"].to_numpy().astype(np.int64)
        self.enters = entering(self.values, self.quality)
        start_us = self.time_us - self.time_us % (interval_s * SECOND_US)
        self.first = _differs(start_us) | _differs(_codes(readings["gateway"]))
        self.first |= _differs(_codes(readings["channel"]))
        self.first[:1] = True
        self.begins: Ints = np.flatnonzero(self.first)
        self.ends: Ints = np.append(self.begins, len(self.first))[1:]
        at_first, at_last = readings.take(pa.array(self.begins)), readings.take(pa.array(self.ends - 1))
        self.quantity: list[str] = at_first["quantity"].to_pylist()
        self.direction: Bools = np.array([name == "wind_direction" for name in self.quantity], bool)
        self.wind: Bools = np.array([name == "wind_speed" for name in self.quantity], bool)
        self.unit: list[str] = at_last["unit"].to_pylist()
        self.period_ms = self.periods_ms[self.ends - 1]
        channels = zip(at_first["gateway"].to_pylist(), at_first["channel"].to_pylist(), strict=True)
        self.intervals: list[Interval] = list(zip(channels, start_us[self.begins].tolist(), strict=True))

    @classmethod
    def of_changes(cls, readings: Any, interval_s: int) -> Self:
        """Readings in any order; with a column ``added``: whether a row is new, and no correction."""
        return cls(
            readings.sort_by([(name, "ascending") for name in ("gateway", "channel", "time")]), interval_s
        )

    def regular(self) -> Bools:
        """Which intervals' readings are added ones, of different times, of one period, and numbers."""
        unlike = ~_differs(self.time_us) | _differs(self.periods_ms)
        flagged = entering(np.zeros(len(self.values)), self.quality)
        irregular = (unlike & ~self.first) | (flagged & ~self.enters) | ~self._readings["added"].to_numpy()
        # Of an interval the rows are counted: an empty table has none to reduce.
        counted = np.append(0, np.cumsum(irregular))
        return np.asarray(counted[self.ends] == counted[self.begins])

    def rows(self) -> Any:
        """The statistics of the intervals, of which all readings must be here."""
        lengths = self.ends - self.begins
        valid = np.where(self.enters & ~np.repeat(self.direction, lengths), self.values, np.nan)
        gust = gusts(self.begins, self.time_us, valid, self.periods_ms)
        sums = merged(
            sums_of(self.begins, self.time_us, self.values, self.quality, self.direction, self.wind),
            gust_sums(self.begins, self.time_us, gust),
        )
        return statistics_rows(
            self.intervals, sums, self.quantity, self.unit, self.period_ms, self._expected(), self._interval_s
        )

    def _expected(self) -> Floats:
        """Samples due: a reading's period holds until the next one, the first one's from the beginning."""
        starts_us = np.array([start_us for _, start_us in self.intervals], np.int64)
        from_us, until_us = self.time_us.copy(), np.append(self.time_us[1:], 0)
        from_us[self.begins] = starts_us
        until_us[self.ends - 1] = starts_us + self._interval_s * SECOND_US
        due = np.add.reduceat((until_us - from_us) / (self.periods_ms * 1000), self.begins)
        changed = np.add.reduceat(_differs(self.periods_ms) & ~self.first, self.begins) > 0
        return np.where(changed, due, self._interval_s * 1000.0 / self.period_ms)


def _codes(column: Any) -> Ints:
    codes: Ints = column.combine_chunks().dictionary_encode().indices.to_numpy()
    return codes


def _differs(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each value is another than the one before it; the first one isn't."""
    return np.append(False, values[1:] != values[:-1])[: len(values)]
