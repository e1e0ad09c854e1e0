"""Readings to interval statistics: pure, and independent of the order readings arrived in.

The figures are computed in Python workers, in which each interval is whole. Times in columns named ``_us``
are microseconds since the epoch.

An interval holds the readings whose ``time`` (start of their period) lies in it. ``count`` = good + not
evaluated in the row's unit, and only these enter the statistics; one beyond its quantity's plausible range
counts as failed, whatever its flag. ``sd`` is n−1. ``gust`` is the highest mean
of the readings that cover 3 consecutive seconds, all of them valid, all inside the interval; null for periods
over 1 s.
``expected`` = interval length / period in force, piecewise where the period changed.

What is made of the values depends on the quantity's kind (``cloud.wire.quantities``):

- ``direction``: degrees, which are never averaged: ``avg`` is the direction of the mean of the unit vectors,
  in [0, 360), null where these cancel out; ``sd`` is by Yamartino's estimate from the same mean (J. Climate
  Appl. Meteor. 23, 1984, 1362-1366; EPA-454/R-99-005 section 6.2.1), 0 to 103.9 degrees; min, max and gust
  mean nothing and are null.
- ``accumulated``: a reading is what was added in its period; ``sum`` is that of the interval, ``rate`` is it
  for an hour of the periods that enter it. No gust.
- ``state``: ``avg`` is the share of time that isn't 0, by the readings' periods; ``changes`` is how often a
  reading has another value than the one before it in the interval. No sd and gust.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain, groupby
from operator import itemgetter
from typing import Any, Final
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame, functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import TimestampType

from cloud.wire.quantities import KIND, QUANTITIES, plausible_range
from cloud.wire.reading_records import FAIL, GOOD, MISSING, NOT_EVALUATED, SUSPECT, UNSYNCED
from spark_jobs.platform.frames import rows_in, to_bytes
from spark_jobs.platform.intervals import DAY_US, SECOND_US, TIMES
from spark_jobs.platform.schemas import STATISTICS, columns

GUST_S: Final = 3
"""Averaging time of a gust in seconds (WMO-No. 8)."""
MAX_GUST_PERIOD_MS: Final = 1000
MS_PER_HOUR: Final = 3_600_000
_NO_DIRECTION: Final = 1e-10
"""Square of a mean vector's length below which its direction is rounding more than anything else."""
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

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def statistics_of(readings: Any, interval_s: int) -> Any:
    """The statistics of readings: columns of ``statistics`` but version and updated_at; ``ingested_from``.

    ``readings``: an Arrow table of gateway, channel, quantity, kind, unit, time, period_ms, value, quality
    and ingested_at, in the order of gateway, channel and time, of whole intervals. The quantity of
    an interval is that of its first reading, unit, period and kind (where the quantity isn't built in) are
    those of its last; ``ingested_from`` is when its first one was ingested.
    """
    time_us: Ints = readings["time"].cast(pa.int64()).to_numpy()
    values: Floats = readings["value"].to_numpy()
    quality: NDArray[np.int32] = readings["quality"].to_numpy()
    periods_ms: Ints = readings["period_ms"].to_numpy().astype(np.int64)
    first = begins_of(readings, interval_s)
    begins: Ints = np.flatnonzero(first)
    ends: Ints = np.append(begins, len(first))[1:]
    lengths = ends - begins

    def total(of_readings: NDArray[Any]) -> NDArray[Any]:
        return np.add.reduceat(of_readings, begins)

    def of(figures: NDArray[Any], there: Bools) -> Any:
        return pa.array(figures, mask=~there)

    names = {name: readings[name].take(pa.array(begins)) for name in ("gateway", "channel", "quantity")}
    quantities = names["quantity"].to_pylist()
    given = readings["kind"].take(pa.array(ends - 1)).to_pylist()
    kinds = np.array([
        QUANTITIES[quantity].kind if quantity in QUANTITIES else str(kind)
        for quantity, kind in zip(quantities, given, strict=True)
    ])  # fmt: skip
    direction, added, state = (kinds == kind for kind in ("direction", "accumulated", "state"))
    wind = np.array([quantity == "wind_speed" for quantity in quantities], bool)
    number = np.repeat(np.arange(len(begins)), lengths)
    # A config may have given its own quantity another unit meanwhile.
    units = readings["unit"].combine_chunks().dictionary_encode().indices.to_numpy()
    ranges = {quantity: plausible_range(quantity) for quantity in set(quantities)}
    lowest, upmost = np.array([ranges[quantity] for quantity in quantities]).reshape(-1, 2).T
    flagged_good = (quality == GOOD) | (quality == NOT_EVALUATED)
    wild = flagged_good & ((values < lowest[number]) | (values > upmost[number]))
    quality = np.where(wild, np.int32(FAIL), quality)
    enters = ((quality == GOOD) | (quality == NOT_EVALUATED)) & np.isfinite(values)
    enters &= units == units[ends - 1][number]
    count = total(enters.astype(np.int64))
    samples, some = np.maximum(count, 1), count > 0
    vector = enters & direction[number]
    scalar = enters & ~vector
    known = np.where(enters, values, 0.0)

    summed = total(np.where(scalar, known, 0.0))
    entered_ms = np.maximum(total(np.where(enters, periods_ms, 0)), 1)
    on = total(np.where(enters & (known != 0), periods_ms, 0)) / entered_ms
    mean = np.where(state, on, summed / samples)
    apart = np.where(scalar, known - mean[number], 0.0)
    deviation = np.sqrt(total(apart * apart) / np.maximum(count - 1, 1))
    highest = _first_at_highest(begins, lengths, time_us, np.where(scalar, known, -np.inf))
    blows = scalar & ~(added | state)[number]
    gust = _gusts(begins, time_us, np.where(blows, values, np.nan), periods_ms)
    gust, gust_us = _first_at_highest(begins, lengths, time_us, gust)

    radians = np.radians(known)
    east = total(np.where(vector, np.sin(radians), 0.0)) / samples
    north = total(np.where(vector, np.cos(radians), 0.0)) / samples
    square = east * east + north * north
    degrees = np.degrees(np.arctan2(east, north)) % 360.0
    degrees = np.where(degrees < 360.0, degrees, 0.0)
    # 1 - square without the rounding of a square near 1: by the half angles from the mean.
    half = np.where(vector, np.sin((radians - np.arctan2(east, north)[number]) / 2), 0.0)
    short = 2 * total(half * half) / samples
    epsilon = np.sqrt(np.clip(short * (2.0 - short), 0.0, 1.0))
    spread = np.degrees(np.arcsin(epsilon) * (1.0 + _YAMARTINO * epsilon**3))

    start_us = time_us[begins] - time_us[begins] % (interval_s * SECOND_US)
    period_ms = periods_ms[ends - 1]
    # A reading's period holds until the next one, the first one's from the beginning.
    from_us, until_us = time_us.copy(), np.append(time_us[1:], 0)
    from_us[begins], until_us[ends - 1] = start_us, start_us + interval_s * SECOND_US
    due = total((until_us - from_us) / (periods_ms * 1000))
    changed = total(_differs(periods_ms) & ~first) > 0
    expected = np.where(changed, due, interval_s * 1000.0 / period_ms)
    flags = {flag: total((quality == flag).astype(np.int64)) for flag in FLAGS.values()}
    rolled_up = np.select([flags[flag] > 0 for flag in _ROLL_UP], _ROLL_UP, MISSING)
    # Of a reading that doesn't have it, it was long ago.
    ingested_us = readings["ingested_at"].cast(pa.int64()).fill_null(0).to_numpy()
    return pa.table(
        {
            **names,
            "interval_start": pa.array(start_us).cast(TIMES),
            "unit": readings["unit"].take(pa.array(ends - 1)),
            "avg": of(np.where(direction, degrees, mean), some & (~direction | (square > _NO_DIRECTION))),
            "sum": of(summed, some & added),
            "rate": of(summed * MS_PER_HOUR / entered_ms, some & added),
            "changes": of(_changes(number, known, enters, len(begins)), some & state),
            "min": of(np.minimum.reduceat(np.where(scalar, known, np.inf), begins), some & ~direction),
            "max": of(highest[0], some & ~direction),
            "sd": of(np.where(direction, spread, deviation), (count > 1) & ~state),
            "gust": of(gust, np.isfinite(gust)),
            "max_time": of(highest[1], some & ~direction).cast(TIMES),
            "gust_time": of(gust_us, np.isfinite(gust)).cast(TIMES),
            "cube_mean": of(total(np.where(scalar, known * known * known, 0.0)) / samples, wind & some),
            "count": pa.array(count),
            "expected": pa.array(expected),
            "period_ms": pa.array(period_ms.astype(np.int32)),
            **{name: pa.array(flags[flag]) for name, flag in FLAGS.items()},
            "quality": pa.array(rolled_up.astype(np.int32)),
            "interval_s": pa.array(np.full(len(begins), interval_s, np.int32)),
            "recovery": pa.array(np.minimum(1.0, count / expected)),
            "date": pa.array((start_us // DAY_US).astype(np.int32)).cast(pa.date32()),
            "ingested_from": pa.array(np.minimum.reduceat(ingested_us, begins)).cast(TIMES),
        }
    )


def begins_of(readings: Any, interval_s: int) -> Bools:
    """Whether each of such readings is the first of its interval."""
    time_us = readings["time"].cast(pa.int64()).to_numpy()
    first = _differs(time_us - time_us % (interval_s * SECOND_US))
    for name in ("gateway", "channel"):
        first |= _differs(readings[name].combine_chunks().dictionary_encode().indices.to_numpy())
    first[:1] = True
    return first


def _changes(number: Ints, values: Floats, enters: Bools, intervals: int) -> Ints:
    """How often a value that enters is another than the one before it, by the number of their interval."""
    number, values = number[enters], values[enters]
    changed = _differs(values) & ~_differs(number)
    return np.bincount(number[changed], minlength=intervals)


def _first_at_highest(begins: Ints, lengths: Ints, time_us: Ints, values: Floats) -> tuple[Floats, Ints]:
    """The highest value of each group, and its time: the earliest of several."""
    highest = np.maximum.reduceat(values, begins)
    at_highest = values == np.repeat(highest, lengths)
    latest = np.iinfo(np.int64).max
    first_us = np.minimum.reduceat(np.where(at_highest, time_us, latest), begins)
    return highest, np.where(np.isfinite(highest), first_us, 0)


def _gusts(begins: Ints, time_us: Ints, values: Floats, period_ms: Ints) -> Floats:
    """The mean of the 3 s that begin with each reading, -inf where they aren't complete and valid.

    The readings lie group by group in the order of time, group n from ``begins[n]`` on; those that don't
    enter the statistics are NaN; each has its period.
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


def _differs(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each value is another than the one before it; the first one isn't."""
    return np.append(False, values[1:] != values[:-1])[: len(values)]


CHANNEL: Final = ("gateway", "channel")
READING: Final = (
    *("gateway", "channel", "quantity", "unit", "time", "period_ms", "value", "quality", "ingested_at"),
)
"""The columns of a reading that its statistics are made of."""
ROWS: Final = STATISTICS.without("version", "updated_at").add("ingested_from", TimestampType())
"""Computed rows; ``ingested_from`` is when the first of an interval's readings came, null without any."""
_ROWS: Final = to_arrow_schema(ROWS)
_TOUCHED: Final = pa.schema([("gateway", pa.string()), ("channel", pa.string()), ("start_us", pa.int64())])
_ORDER: Final = [(name, "ascending") for name in (*CHANNEL, "time", "run", "seq")]
"""A total order, so sums add up in the same order whenever they are computed again."""
_PARTED: Final = columns("part: int, readings: binary")
_PARCEL: Final = 200_000
"""Readings that a worker takes at once."""
_AT_ONCE: Final = 1_000_000
"""Readings of a task, about."""
_PARTS: Final = 4
"""Parts of a task, each of which a worker computes at once."""


def begin_of(time_us: Column, interval_s: int) -> Column:
    """Start of the interval a time lies in; intervals are counted from midnight UTC."""
    return time_us - F.pmod(time_us, F.lit(interval_s * SECOND_US))


def timely() -> Column:
    """Whether a reading's time is known: by a clock that was right, or repaired since."""
    return F.col("clock") != UNSYNCED


def counted(prefix: str = "") -> str:
    """SQL: how many readings a row stands for, of whatever quality; 0 in a missing interval."""
    return f"({' + '.join(prefix + name for name in FLAGS)})"


def has_readings() -> Column:
    """Whether a row stands for readings, of whatever quality, and not for a missing interval."""
    return F.expr(f"{counted()} > 0")


def _parcels(batches: Iterable[Any]) -> Iterator[Any]:
    """Tables of about _PARCEL rows."""
    pending: list[Any] = []
    for batch in batches:
        if batch.num_rows:
            pending.append(batch)
        if sum(each.num_rows for each in pending) >= _PARCEL:
            yield pa.Table.from_batches(pending).combine_chunks()
            pending = []
    if pending:
        yield pa.Table.from_batches(pending).combine_chunks()


def _touched(batches: Iterable[Any], interval_s: int) -> Iterator[Any]:
    names, length_us = [*CHANNEL, "start_us"], interval_s * SECOND_US
    for readings in _parcels(batches):
        given = readings.filter(pc.not_equal(readings["clock"], UNSYNCED))
        time_us = given["time"].cast(pa.int64()).to_numpy()
        found = given.select(CHANNEL).append_column("start_us", pa.array(time_us - time_us % length_us))
        yield from found.group_by(names).aggregate([]).select(names).to_batches()


def touched_intervals(readings: DataFrame, interval_s: int) -> DataFrame:
    """The intervals (gateway, channel, start_us) that readings belong to, once each.

    Readings of an unsynchronised clock belong to none: their time is not known well enough.
    """
    # Not by Spark, which takes 10 us for a reading where it generates no code.
    of_tasks = readings.select(*CHANNEL, "time", "clock").mapInArrow(
        partial(_touched, interval_s=interval_s), from_arrow_schema(_TOUCHED)
    )
    return of_tasks.distinct()


def _parted(batches: Iterable[Any], parts: int, interval_s: int) -> Iterator[Any]:
    """Readings by part, as byte strings: Spark would take each row apart to move and sort it."""
    for readings in _parcels(batches):
        gateways = readings["gateway"].combine_chunks().dictionary_encode()
        known = np.array([crc32(name.encode()) for name in gateways.dictionary.to_pylist()], np.int64)
        number = readings["time"].cast(pa.int64()).to_numpy() // (interval_s * SECOND_US)
        part = (known[gateways.indices.to_numpy()] + number) % parts
        rows = [
            {"part": each, "readings": to_bytes(readings.filter(pa.array(part == each)))}
            for each in np.unique(part).tolist()
        ]
        yield pa.RecordBatch.from_pylist(rows, schema=to_arrow_schema(_PARTED))


def _compute(batches: Iterable[Any], interval_s: int) -> Iterator[Any]:
    parcels = chain.from_iterable(batch.to_pylist() for batch in batches)
    for _, part in groupby(parcels, itemgetter("part")):
        readings = pa.concat_tables([rows_in(each["readings"]) for each in part]).sort_by(_ORDER)
        found = statistics_of(readings, interval_s)
        yield from found.select(_ROWS.names).cast(_ROWS).to_batches()


def interval_statistics(readings: DataFrame, interval_s: int, about: int = 0) -> DataFrame:
    """One row per (gateway, channel, interval_start) of the readings given, with the columns of ROWS.

    ``readings`` hold whole intervals; there are ``about`` so many.
    """
    slots = int(readings.sparkSession.conf.get("spark.sql.shuffle.partitions") or 2)
    tasks = max(slots, about // _AT_ONCE)
    kind = F.get_json_object("extra", f"$.{KIND}").alias("kind")
    parted = readings.select(*READING, "run", "seq", kind).mapInArrow(
        partial(_parted, parts=_PARTS * tasks, interval_s=interval_s), _PARTED
    )
    by_part = parted.repartition(tasks, "part").sortWithinPartitions("part")
    return by_part.mapInArrow(partial(_compute, interval_s=interval_s), ROWS)


def missing_statistics(missing: DataFrame, interval_s: int) -> DataFrame:
    """Rows of missing intervals (gateway, channel, start_us, period_ms, unit): no values, counts of 0."""
    start = F.timestamp_micros("start_us")
    given = {
        **{name: F.col(name) for name in (*CHANNEL, "period_ms", "unit")},
        **{name: F.lit(0) for name in (*FLAGS, "count", "recovery")},
        "interval_s": F.lit(interval_s),
        "interval_start": start,
        "quantity": F.substring_index("channel", ".", -1),
        "expected": interval_s * 1000.0 / F.col("period_ms"),
        "quality": F.lit(MISSING),
        "date": F.to_date(start),
    }
    return missing.select(
        *(given.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name) for field in ROWS)
    )
