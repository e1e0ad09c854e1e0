"""Interval statistics carried on from sums: pure, and without the readings that came before.

The definitions are those of ``transforms.statistics``; so are the results, but for the last digits, which
depend on how the readings were divided. Mean and squared deviations are put together as by Chan, Golub and
LeVeque (The American Statistician 37, 1983, 242-247), so that ``merged`` is associative but for rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cloud.wire.schema import FAIL, GOOD, MISSING, NOT_EVALUATED, SUSPECT
from spark_jobs.intervals import DAY_US, SECOND_US, TIMES, Interval
from spark_jobs.transforms.statistics import GUST_S, MAX_GUST_PERIOD_MS, NO_DIRECTION, ROLL_UP, YAMARTINO

_FLAGS: Final = {
    "n_good": GOOD,
    "n_not_evaluated": NOT_EVALUATED,
    "n_suspect": SUSPECT,
    "n_fail": FAIL,
    "n_missing": MISSING,
}

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
        *((name, np.int64) for name in _FLAGS),
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
    for name in ("count", "cubes", "east", "north", *_FLAGS):
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


def sums_of(
    begins: Ints, time_us: Ints, values: Floats, quality: NDArray[np.int32], direction: Bools, wind: Bools
) -> Sums:
    """Sums of groups of readings, without gusts.

    The readings lie group by group in the order of time, group n from ``begins[n]`` on. ``values`` are finite
    where the quality is good or not evaluated; ``direction`` and ``wind`` say of each group whether its
    quantity is a direction, or a wind speed.
    """
    sums = nothing(len(begins))
    lengths = np.diff(begins, append=len(time_us))

    def total(of_readings: NDArray[Any]) -> NDArray[Any]:
        return np.add.reduceat(of_readings, begins)

    for name, flag in _FLAGS.items():
        sums[name] = total((quality == flag).astype(np.int64))
    sums["count"] = sums["n_good"] + sums["n_not_evaluated"]
    enters = (quality == GOOD) | (quality == NOT_EVALUATED)
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

    The readings lie as in ``sums_of``, those that don't enter the statistics as NaN; ``period_ms`` is that of
    each group.
    """
    lengths = np.diff(begins, append=len(time_us))
    # Group after group on one axis of time, too far apart for a window to reach into the next one.
    since_us = time_us - np.repeat(time_us[begins], lengths)
    group = np.repeat(np.arange(len(begins)), lengths)
    place = since_us + group * (int(since_us.max(initial=0)) + GUST_S * SECOND_US + 1)
    ends = np.searchsorted(place, place + GUST_S * SECOND_US)
    here = np.arange(len(place))
    period = period_ms[group]
    needed = -(-GUST_S * 1000 // period)
    entered = np.concatenate(([0], np.cumsum(~np.isnan(values))))
    off_us = np.abs(time_us[ends - 1] - time_us - (needed - 1) * period * 1000)
    complete = (
        (period <= MAX_GUST_PERIOD_MS)
        & (ends - here == needed)
        & (entered[ends] - entered[here] == needed)
        & (off_us * 2 <= period * 1000)
    )
    found = np.full(len(place), -np.inf)
    if complete.any():
        borders = np.column_stack((here[complete], ends[complete])).ravel()
        found[complete] = np.add.reduceat(np.append(values, 0.0), borders)[::2] / needed[complete]
    return found


def gust_sums(begins: Ints, time_us: Ints, gust: Floats) -> Sums:
    """Sums that know the highest gust of each group and nothing else; ``gust`` as ``gusts`` gives it."""
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
    interval_s: int,
) -> Any:
    """An Arrow table with the columns of ``interval_statistics``: a row per interval, of one period each."""
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
    spread = np.degrees(np.arcsin(epsilon) * (1.0 + YAMARTINO * epsilon**3))
    deviation = np.sqrt(sums["squares"] / np.maximum(count - 1, 1))
    flags = {flag: sums[name] for name, flag in _FLAGS.items()}
    expected = interval_s * 1000.0 / period_ms
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
                (count > 0) & (scalar | (square > NO_DIRECTION)),
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
            **{name: pa.array(sums[name]) for name in _FLAGS},
            "quality": pa.array(
                np.select([flags[flag] > 0 for flag in ROLL_UP], ROLL_UP, MISSING).astype(np.int32)
            ),
            "interval_s": pa.array(np.full(len(intervals), interval_s, np.int32)),
            "recovery": pa.array(np.minimum(1.0, count / expected)),
            "date": pa.array((starts_us // DAY_US).astype(np.int32)).cast(pa.date32()),
        }
    )
