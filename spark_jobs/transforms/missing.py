"""Intervals in which a channel was due and has no reading: pure. Times are microseconds since the epoch.

A channel is due in an interval that lies

- between two intervals of it that have readings,
- after its last reading, up to its gateway's horizon,
- before its first reading, in a time its records were in force, from the gateway's first reading on,

and, where it has records, wholly within the times they were in force. After a reading (or the begin of such a
time) 400 days are due at most; where what follows it is further away, a reading or the end of the time looked
at, it is of a wrong date and one day is due: not a million rows. The period in force, and the unit, are those
of the last reading before; the newest record's where there is none. A channel whose period is longer than the
interval is due in those intervals alone that have a sample on the period's grid.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window, functions as F

from spark_jobs.platform.intervals import DAY_US, FOREVER_US, SECOND_US, changed_spans, periods_as_spans
from spark_jobs.transforms.dedupe import joined_ranges
from spark_jobs.transforms.statistics import CHANNEL, begin_of

LONGEST_US: Final = 400 * DAY_US
"""Rows are made for what is missing so long after a reading: a year and a month."""
_MOST_MS: Final = (1 << 31) - 1
_SPANS: Final = "array<struct<begin_us:bigint,end_us:bigint>>"


def times_in_force(channels: DataFrame) -> DataFrame:
    """Returns the newest calibration record's period and unit of each channel, and the times they held.

    Columns: gateway, channel, record_ms, record_unit, ``spans`` (begin_us, end_us), the times any of them was
    in force: disjoint, ascending, ±FOREVER_US where unbounded. A period whose end is unknown though its
    record is no longer in force ends where the channel's next one begins; where there is none, nothing is
    known to be due.
    """
    newest = F.max_by(F.struct("interval_s", "unit"), F.struct("in_force", "revision")).alias("newest")
    later = Window.partitionBy(*CHANNEL).orderBy("begin_us").rangeBetween(1, Window.unboundedFollowing)
    is_known = (F.col("end_us") < FOREVER_US) | F.col("in_force")
    next_us = F.coalesce(F.min("begin_us").over(later), "begin_us")
    end_us = F.when(is_known, F.col("end_us")).otherwise(next_us)
    held = (
        channels.select(*CHANNEL, "in_force", periods_as_spans())
        .select(*CHANNEL, F.col("begin_us").alias("first"), (end_us - 1).alias("last"))
        .where("first <= last")
    )
    spans = "array_sort(collect_list(struct(first as begin_us, last + 1 as end_us))) as spans"
    return (
        channels.groupBy(*CHANNEL)
        .agg(newest)
        .join(joined_ranges(held, CHANNEL).groupBy(*CHANNEL).agg(F.expr(spans)), list(CHANNEL), "left")
        .select(
            *CHANNEL,
            F.greatest(F.lit(1), F.least(F.lit(_MOST_MS), F.round(F.col("newest.interval_s") * 1000)))
            .cast("int")
            .alias("record_ms"),
            F.col("newest.unit").alias("record_unit"),
            F.coalesce("spans", F.array().cast(_SPANS)).alias("spans"),
        )
    )


def changed_times(before: DataFrame, after: DataFrame) -> DataFrame:
    """Of channels whose ``times_in_force`` are others now, the time in which they are: begin_us, end_us."""
    was, now = (
        records.select(*CHANNEL, F.inline("spans"), F.lit(sign).alias("sign"))
        for records, sign in ((before, -1), (after, 1))
    )
    changed = changed_spans(was.unionByName(now), CHANNEL)
    # A channel without records was due whenever it had sent.
    new = after.join(before, list(CHANNEL), "left_anti").select(
        *CHANNEL, F.lit(-FOREVER_US).alias("begin_us"), F.lit(FOREVER_US).alias("end_us")
    )
    return changed.join(new, list(CHANNEL), "left_anti").unionByName(new)


def next_due_us(interval_s: int) -> Column:
    """The first interval after that of ``start_us`` in which a sample is due, at ``period_ms``."""
    end_us, period_us = F.col("start_us") + interval_s * SECOND_US, F.col("period_ms").cast("long") * 1000
    sample_us = end_us + F.when(period_us > interval_s * SECOND_US, F.pmod(-end_us, period_us)).otherwise(0)
    return begin_of(sample_us, interval_s)


def stretches(anchors: DataFrame, windows: DataFrame, interval_s: int) -> DataFrame:
    """Intervals without a reading in which a channel was due: first_us, end_us, both starts of intervals.

    ``anchors`` are intervals with readings: gateway, channel, start_us, period_ms, unit, and ``rank``, by
    which the higher of two of one interval holds. ``windows`` are the times looked at, one a channel:
    begin_us, end_us; gateway_us, the gateway's first interval; ``is_first``, whether there are no readings
    before the anchors; and the columns of ``times_in_force``, null without records.
    """
    length_us = interval_s * SECOND_US
    leading = windows.where("is_first and spans is not null").select(
        *CHANNEL,
        F.lit(None).cast("long").alias("start_us"),
        F.col("record_ms").alias("period_ms"),
        F.col("record_unit").alias("unit"),
        F.lit(0).alias("rank"),
    )
    in_order = Window.partitionBy(*CHANNEL).orderBy(F.col("start_us").asc_nulls_first(), "rank")
    always = F.array(F.struct(F.lit(-FOREVER_US).alias("begin_us"), F.lit(FOREVER_US).alias("end_us")))
    each = (
        anchors.unionByName(leading)
        .withColumn("next_us", F.lead("start_us").over(in_order))
        .join(windows, list(CHANNEL))
        .withColumn("span", F.explode(F.coalesce("spans", always.cast(_SPANS))))
        .where(f"start_us is not null or span.begin_us > {-FOREVER_US}")
    )
    forced_us = -begin_of(-F.col("span.begin_us"), interval_s)
    since_us = F.coalesce("start_us", F.greatest("gateway_us", forced_us))
    first_us = F.greatest("begin_us", F.coalesce(F.col("start_us") + length_us, "gateway_us"), forced_us)
    reach_us = F.least("end_us", "next_us", begin_of(F.col("span.end_us"), interval_s))
    is_far = reach_us - since_us > LONGEST_US
    end_us = F.when(is_far, F.least(reach_us, since_us + DAY_US)).otherwise(reach_us)
    return (
        each.select(*CHANNEL, "period_ms", "unit", first_us.alias("first_us"), end_us.alias("stretch_end_us"))
        .where("first_us < stretch_end_us")
        .withColumnRenamed("stretch_end_us", "end_us")
    )


def missing_intervals(found: DataFrame, interval_s: int) -> DataFrame:
    """The intervals of ``stretches`` in which a sample was due: start_us, with period_ms and unit."""
    length_us = interval_s * SECOND_US
    starts = F.sequence("first_us", F.col("end_us") - length_us, F.lit(length_us))
    period_us = F.col("period_ms").cast("long") * 1000
    return found.select(*CHANNEL, "period_ms", "unit", F.explode(starts).alias("start_us")).where(
        (period_us <= length_us) | (F.pmod(-F.col("start_us"), period_us) < length_us)
    )
