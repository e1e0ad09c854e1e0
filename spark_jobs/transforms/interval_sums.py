"""Interval statistics from sums of readings: the one definition of each figure, whole or batch by batch.

An interval holds the readings whose ``time`` (start of their period) lies in it. ``count`` = good + not
evaluated, and only these enter the statistics. ``sd`` is n−1. ``gust`` is the highest mean of the readings
that cover 3 consecutive seconds, all of them valid, all inside the interval; null for periods over 1 s.
``expected`` = interval length / period in force, piecewise where the period changed.

Values of ``wind_direction`` are degrees, which are never averaged: ``avg`` is the direction of the mean of
the unit vectors, in [0, 360), null where these cancel out; ``sd`` is by Yamartino's estimate from the same
mean (J. Climate Appl. Meteor. 23, 1984, 1362-1366; EPA-454/R-99-005 section 6.2.1), 0 to 103.9 degrees; min,
max and gust of a direction mean nothing and are null.

Mean and squared deviations are put together as by Chan, Golub and LeVeque (The American Statistician 37,
1983, 242-247), so that ``merged`` is associative but for rounding: in the last digits figures depend on how
the readings were divided.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cloud.wire.reading_records import FAIL, GOOD, MISSING, NOT_EVALUATED, SUSPECT
from spark_jobs.intervals import DAY_US, SECOND_US, TIMES, Interval

GUST_S: Final = 3
"""Averaging time of a gust in seconds (WMO-No. 8)."""
MAX_GUST_PERIOD_MS: Final = 1000
_NO_DIRECTION: Final = 1e-24
"""Square of a mean vector's length that is rounding alone."""
_YAMARTINO: Final = 2 / math.sqrt(3) - 1

FLAGS: Final = {
    "n_good": GOOD,
    "n_not_evaluated": NOT_EVALUATED,
    "n_suspect": SUSPECT,
    "n_fail": FAIL,
    "n_missing": MISSING,
}
_ROLL_UP: Final = (FAIL, SUSPECT, GOOD, NOT_EVALUATED)
"""The worst flag in an interval wins; missing stands alone."""

SUMS: Final = np.dtype(
    [
        ("count", np.int64),
        ("mean", np.float64),
        ("squares", np.float64),
        ("lowest", np.float64),
        ("highest", np.float64),
        ("highest_us", np.int64),
        ("gust", np.float64),
        ("gust_us", np.int64),
        ("cubes", np.float64),
        ("east", np.float64),
        ("north", np.float64),
        *((name, np.int64) for name in FLAGS),
    ]
)
"""What some readings of an interval amount to. ``count`` readings entered; ``squares`` are deviations from
``mean``, squared; of no value ``lowest`` is inf, ``highest`` and ``gust`` -inf. ``cubes``, ``east`` and
``north`` (of unit vectors) are sums. Directions have neither mean nor extremes."""

Sums = NDArray[np.void]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def nothing(number: int) -> Sums:
    """Sums of no readings: what changes nothing when merged."""
    sums = np.zeros(number, SUMS)
    sums["lowest"], sums["highest"], sums["gust"] = np.inf, -np.inf, -np.inf
    return sums


def merged(first: Sums, second: Sums) -> Sums:
    """Sums of the readings of both, element by element; no reading may be in both."""
    sums = np.zeros(len(first), SUMS)
    for name in ("count", "cubes", "east", "north", *FLAGS):
        sums[name] = first[name] + second[name]
    share = second["count"] / np.maximum(sums["count"], 1)
    apart = second["mean"] - first["mean"]
    sums["mean"] = first["mean"] + apart * share
    sums["squares"] = first["squares"] + second["squares"] + apart * apart * first["count"] * share
    sums["lowest"] = np.minimum(first["lowest"], second["lowest"])
    for value, time_us in (("highest", "highest_us"), ("gust", "gust_us")):
        sums[value] = np.maximum(first[value], second[value])
        earlier = np.minimum(first[time_us], second[time_us])
        of_one = np.where(first[value] > second[value], first[time_us], second[time_us])
        sums[time_us] = np.where(first[value] == second[value], earlier, of_one)
    return sums


def entering(values: Floats, quality: NDArray[np.int32]) -> Bools:
    """Which readings enter the statistics."""
    flagged: Bools = (quality == GOOD) | (quality == NOT_EVALUATED)
    return flagged & np.isfinite(values)


def sums_of(
    begins: Ints, time_us: Ints, values: Floats, quality: NDArray[np.int32], direction: Bools, wind: Bools
) -> Sums:
    """Sums of groups of readings, without gusts.

    The readings lie group by group in the order of time, group n from ``begins[n]`` on; ``direction`` and
    ``wind``: whether a group's quantity is a direction, or a wind speed.
    """
    sums = nothing(len(begins))
    lengths = np.diff(begins, append=len(time_us))

    def total(of_readings: NDArray[Any]) -> NDArray[Any]:
        return np.add.reduceat(of_readings, begins)

    for name, flag in FLAGS.items():
        sums[name] = total((quality == flag).astype(np.int64))
    enters = entering(values, quality)
    sums["count"] = total(enters.astype(np.int64))
    vector = enters & np.repeat(direction, lengths)
    scalar = enters & ~vector
    known = np.where(enters, values, 0.0)
    radians = np.radians(known)
    sums["east"] = total(np.where(vector, np.sin(radians), 0.0))
    sums["north"] = total(np.where(vector, np.cos(radians), 0.0))
    mean = total(np.where(scalar, known, 0.0)) / np.maximum(sums["count"], 1)
    apart = np.where(scalar, known - np.repeat(mean, lengths), 0.0)
    sums["mean"], sums["squares"] = mean, total(apart * apart)
    sums["cubes"] = np.where(wind, total(np.where(scalar, known * known * known, 0.0)), 0.0)
    sums["lowest"] = np.minimum.reduceat(np.where(scalar, known, np.inf), begins)
    highest = np.where(scalar, known, -np.inf)
    sums["highest"], sums["highest_us"] = _first_at_highest(begins, lengths, time_us, highest)
    return sums


def _first_at_highest(begins: Ints, lengths: Ints, time_us: Ints, values: Floats) -> tuple[Floats, Ints]:
    """The highest value of each group, and its time: the earliest of several."""
    highest = np.maximum.reduceat(values, begins)
    at_highest = values == np.repeat(highest, lengths)
    latest = np.iinfo(np.int64).max
    first_us = np.minimum.reduceat(np.where(at_highest, time_us, latest), begins)
    return highest, np.where(np.isfinite(highest), first_us, 0)


def gusts(begins: Ints, time_us: Ints, values: Floats, period_ms: Ints) -> Floats:
    """The mean of the 3 s that begin with each reading, -inf where they aren't complete and valid.

    The readings lie as in ``sums_of``, those that don't enter the statistics as NaN; each has its period.
    """
    lengths = np.diff(begins, append=len(time_us))
    # Group after group on one axis of time, too far apart for a window to reach into the next one.
    since_us = time_us - np.repeat(time_us[begins], lengths)
    group = np.repeat(np.arange(len(begins)), lengths)
    place = since_us + group * (int(since_us.max(initial=0)) + GUST_S * SECOND_US + 1)
    # Readings of one time are all in a window that begins there.
    firsts, ends = np.searchsorted(place, place), np.searchsorted(place, place + GUST_S * SECOND_US)
    needed = -(-GUST_S * 1000 // period_ms)
    entered = np.concatenate(([0], np.cumsum(~np.isnan(values))))
    changes = np.cumsum(np.diff(period_ms, prepend=period_ms[:1]) != 0)
    off_us = np.abs(time_us[ends - 1] - time_us - (needed - 1) * period_ms * 1000)
    complete = (
        (period_ms <= MAX_GUST_PERIOD_MS)
        & (changes[ends - 1] == changes[firsts])
        & (ends - firsts == needed)
        & (entered[ends] - entered[firsts] == needed)
        # As many readings as needed, but bunched up, don't cover the time.
        & (off_us * 2 <= period_ms * 1000)
    )
    found = np.full(len(place), -np.inf)
    if complete.any():
        borders = np.column_stack((firsts[complete], ends[complete])).ravel()
        found[complete] = np.add.reduceat(np.append(values, 0.0), borders)[::2] / needed[complete]
    return found


def gust_sums(begins: Ints, time_us: Ints, gust: Floats) -> Sums:
    """Sums of the highest gust of each group and nothing else; ``gust`` as ``gusts`` gives it."""
    sums = nothing(len(begins))
    lengths = np.diff(begins, append=len(time_us))
    sums["gust"], sums["gust_us"] = _first_at_highest(begins, lengths, time_us, gust)
    return sums


def statistics_rows(
    intervals: Sequence[Interval],
    sums: Sums,
    quantity: Sequence[str],
    unit: Sequence[str],
    period_ms: Ints,
    expected: Floats,
    interval_s: int,
) -> Any:
    """An Arrow table with the columns of ``statistics`` but for version and updated_at."""
    count = sums["count"]
    samples = np.maximum(count, 1)
    direction = np.array([name == "wind_direction" for name in quantity], bool)
    wind = np.array([name == "wind_speed" for name in quantity], bool)
    scalar = (count > 0) & ~direction
    east, north = sums["east"] / samples, sums["north"] / samples
    square = east * east + north * north
    degrees = np.degrees(np.arctan2(east, north)) % 360.0
    degrees = np.where(degrees < 360.0, degrees, 0.0)
    epsilon = np.sqrt(np.maximum(0.0, 1.0 - square))
    spread = np.degrees(np.arcsin(epsilon) * (1.0 + _YAMARTINO * epsilon**3))
    deviation = np.sqrt(sums["squares"] / np.maximum(count - 1, 1))
    flags = {flag: sums[name] for name, flag in FLAGS.items()}
    starts_us = np.array([start_us for _, start_us in intervals], np.int64)

    def of(values: NDArray[Any], there: Bools, kind: Any = None) -> Any:
        return pa.array(values, kind, mask=~there)

    gusty = np.isfinite(sums["gust"])
    return pa.table(
        {
            "gateway": pa.array([gateway for (gateway, _), _ in intervals], pa.string()),
            "channel": pa.array([channel for (_, channel), _ in intervals], pa.string()),
            "interval_start": pa.array(starts_us).cast(TIMES),
            "quantity": pa.array(quantity, pa.string()),
            "unit": pa.array(unit, pa.string()),
            "avg": of(
                np.where(direction, degrees, sums["mean"]),
                (count > 0) & (scalar | (square > _NO_DIRECTION)),
            ),
            "min": of(sums["lowest"], scalar),
            "max": of(sums["highest"], scalar),
            "sd": of(np.where(direction, spread, deviation), count > 1),
            "gust": of(sums["gust"], gusty),
            "max_time": of(sums["highest_us"], scalar).cast(TIMES),
            "gust_time": of(sums["gust_us"], gusty).cast(TIMES),
            "cube_mean": of(sums["cubes"] / samples, wind & (count > 0)),
            "count": pa.array(count),
            "expected": pa.array(expected),
            "period_ms": pa.array(period_ms.astype(np.int32)),
            **{name: pa.array(sums[name]) for name in FLAGS},
            "quality": pa.array(
                np.select([flags[flag] > 0 for flag in _ROLL_UP], _ROLL_UP, MISSING).astype(np.int32)
            ),
            "interval_s": pa.array(np.full(len(intervals), interval_s, np.int32)),
            "recovery": pa.array(np.minimum(1.0, count / expected)),
            "date": pa.array((starts_us // DAY_US).astype(np.int32)).cast(pa.date32()),
        }
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
