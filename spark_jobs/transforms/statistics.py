"""Readings to interval statistics: pure, and independent of the order readings arrived in.

Definitions: an interval holds the readings whose ``time`` (start of their period) lies in it. ``count`` =
good + not evaluated, and only these enter the statistics. ``sd`` is n−1. ``gust`` is the highest mean of the
readings that cover 3 consecutive seconds, all of them valid, all inside the interval; null for periods over
1 s. ``expected`` = interval length / period in force, piecewise where the period changed.

Values of ``wind_direction`` are degrees, which are never averaged: ``avg`` is the direction of the mean of
the unit vectors, in [0, 360), null where these cancel out; ``sd`` is by Yamartino's estimate from the same
mean (J. Climate Appl. Meteor. 23, 1984, 1362-1366; EPA-454/R-99-005 section 6.2.1), 0 to 103.9 degrees; min,
max and gust of a direction mean nothing and are null.
"""

from __future__ import annotations

import math
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own name for it

from cloud.wire.schema import FAIL, GOOD, MISSING, NOT_EVALUATED, SUSPECT, UNSYNCED
from spark_jobs.intervals import SECOND_US

GUST_S: Final = 3
"""Averaging time of a gust in seconds (WMO-No. 8)."""
MAX_GUST_PERIOD_MS: Final = 1000
NO_DIRECTION: Final = 1e-24
"""Square of a mean vector's length that is rounding alone."""
YAMARTINO: Final = 2 / math.sqrt(3) - 1

KEY: Final = ("gateway", "channel", "interval_start")

ROLL_UP: Final = (FAIL, SUSPECT, GOOD, NOT_EVALUATED)
"""The worst flag in an interval wins; missing stands alone."""


def interval_start(time: Column, interval_s: int) -> Column:
    """Start of the interval a time lies in; intervals are counted from midnight UTC."""
    length_us = interval_s * SECOND_US
    micros = F.unix_micros(time)
    return F.timestamp_micros(micros - F.pmod(micros, F.lit(length_us)))


def timely() -> Column:
    """Whether a reading's time is known: by a clock that was right, or repaired since."""
    return F.col("clock") != UNSYNCED


def touched_intervals(readings: DataFrame, interval_s: int) -> DataFrame:
    """The (gateway, channel, interval_start) that readings belong to, once each.

    Readings of an unsynchronised clock belong to none: their time is not known well enough.
    """
    return (
        readings.where(timely())
        .select("gateway", "channel", interval_start(F.col("time"), interval_s).alias("interval_start"))
        .distinct()
    )


def _gust_windows(by_time: DataFrame) -> DataFrame:
    """Adds ``gust_value``: mean of the 3 s that begin with this reading, if complete and valid."""
    period_us = F.col("period_ms").cast("long") * 1000
    ahead = (
        Window.partitionBy(*KEY).orderBy("time_us").rangeBetween(Window.currentRow, GUST_S * SECOND_US - 1)
    )
    needed = F.ceil(F.lit(GUST_S * 1000) / F.col("period_ms"))
    span_us = F.max("time_us").over(ahead) - F.col("time_us")
    complete = (
        (F.col("period_ms") <= MAX_GUST_PERIOD_MS)
        & (F.count(F.lit(1)).over(ahead) == needed)
        & (F.count("valid").over(ahead) == needed)
        & (F.min("period_ms").over(ahead) == F.max("period_ms").over(ahead))
        # As many readings as needed, but bunched up, don't cover the time.
        & (F.abs(span_us - (needed - 1) * period_us) * 2 <= period_us)
    )
    return by_time.withColumn("gust_value", F.when(complete, F.avg("valid").over(ahead)))


def _segments(readings: DataFrame, interval_s: int) -> DataFrame:
    """Adds ``expected_part``: samples due from this reading to the next, at this reading's period.

    The first reading also stands for the time before it, the last for the rest of the interval.
    """
    in_order = Window.partitionBy(*KEY).orderBy("time_us", "run", "seq")
    start_us = F.unix_micros("interval_start")
    begins_us = F.when(F.row_number().over(in_order) == 1, start_us).otherwise(F.col("time_us"))
    ends_us = F.coalesce(F.lead("time_us").over(in_order), start_us + interval_s * SECOND_US)
    return readings.withColumn("segment_us", ends_us - begins_us)


def _mean_vector() -> tuple[Column, Column, Column]:
    """East and north of the mean of the unit vectors, and the square of its length (0 to 1)."""
    east, north = F.avg("east"), F.avg("north")
    return east, north, east * east + north * north


def _mean_direction() -> Column:
    """Degrees in [0, 360); null when the vectors cancel out, but for rounding."""
    east, north, square = _mean_vector()
    degrees = F.pmod(F.degrees(F.atan2(east, north)), F.lit(360.0))
    # A hair below 0 comes out as 360.
    return F.when(square > NO_DIRECTION, F.when(degrees < 360.0, degrees).otherwise(0.0))


def _spread_of_direction() -> Column:
    """Degrees, by Yamartino's estimate; null for fewer than two readings."""
    *_, square = _mean_vector()
    epsilon = F.sqrt(F.greatest(F.lit(0.0), 1.0 - square))
    sd = F.degrees(F.asin(epsilon) * (1.0 + YAMARTINO * epsilon * epsilon * epsilon))
    return F.when(F.count("east") >= 2, sd)


def interval_statistics(readings: DataFrame, interval_s: int) -> DataFrame:
    """One row per (gateway, channel, interval_start) of the readings given.

    ``readings`` hold whole intervals and carry ``interval_start``. Columns: those of ``statistics`` but for
    version and updated_at.
    """
    evaluated = F.col("quality").isin(GOOD, NOT_EVALUATED)
    scalar = F.col("quantity") != "wind_direction"
    direction = F.radians(F.when(evaluated & ~scalar, F.col("value")))
    prepared = readings.withColumns(
        {
            "time_us": F.unix_micros("time"),
            "valid": F.when(evaluated & scalar, F.col("value")),
            "east": F.sin(direction),
            "north": F.cos(direction),
        }
    )
    # The last sort is a total order, so sums add up in the same order whenever they are computed again.
    rows = _segments(_gust_windows(prepared), interval_s)

    def number_of(flag: int) -> Column:
        return F.count_if(F.col("quality") == flag)

    def first_at_highest(value: str) -> Column:
        """Time of the highest value; the earliest of several."""
        order = F.struct(F.col(value), -F.col("time_us"))
        return F.max_by("time", F.when(F.col(value).isNotNull(), order))

    quality = F.lit(MISSING)
    for flag in reversed(ROLL_UP):
        quality = F.when(number_of(flag) > 0, flag).otherwise(quality)

    one_period = F.min("period_ms") == F.max("period_ms")
    piecewise = F.sum(F.col("segment_us") / (F.col("period_ms") * 1000))
    valid = F.col("valid")
    wind = F.col("quantity") == "wind_speed"
    result = rows.groupBy(*KEY).agg(
        F.max("quantity").alias("quantity"),
        F.max_by("unit", F.struct("time_us", "run", "seq")).alias("unit"),
        F.coalesce(F.avg(valid), _mean_direction()).alias("avg"),
        F.min(valid).alias("min"),
        F.max(valid).alias("max"),
        F.coalesce(F.stddev_samp(valid), _spread_of_direction()).alias("sd"),
        F.max("gust_value").alias("gust"),
        first_at_highest("valid").alias("max_time"),
        first_at_highest("gust_value").alias("gust_time"),
        F.avg(F.when(wind, valid * valid * valid)).alias("cube_mean"),
        F.count_if(evaluated).alias("count"),
        F.when(one_period, F.lit(interval_s * 1000.0) / F.max("period_ms"))
        .otherwise(piecewise)
        .alias("expected"),
        F.max_by("period_ms", F.struct("time_us", "run", "seq")).alias("period_ms"),
        number_of(GOOD).alias("n_good"),
        number_of(NOT_EVALUATED).alias("n_not_evaluated"),
        number_of(SUSPECT).alias("n_suspect"),
        number_of(FAIL).alias("n_fail"),
        number_of(MISSING).alias("n_missing"),
        quality.cast("int").alias("quality"),
    )
    return result.withColumns(
        {
            "interval_s": F.lit(interval_s),
            "recovery": F.least(F.lit(1.0), F.col("count") / F.col("expected")),
            "date": F.to_date("interval_start"),
        }
    )
