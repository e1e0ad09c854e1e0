"""How far ``statistics`` has come with each channel, and what new readings add to that: pure.

A row is a channel of one interval length: ``newest_us``, the newest interval it has sent readings of, and
whether that one is open; ``first_us`` and ``last_us``, its first and last closed interval with readings,
``period_ms`` and ``unit`` of the last, and whether that one was closed as it happened (``is_live``);
``until_us``, before which nothing is missing any more. An older interval than the newest is never open: it is
closed by the pass in which it becomes one. Times are microseconds since the epoch.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window, functions as F

from spark_jobs.platform.intervals import DAY_US, SECOND_US
from spark_jobs.transforms.statistics import CHANNEL, begin_of, has_readings

STATE: Final = ("newest_us", "is_open", "first_us", "last_us", "period_ms", "unit", "is_live", "until_us")
SILENCE_S: Final = 60
"""An open interval is over when its end and the last reading in it were so long ago."""
LATE: Final = "version > 0 and (start_us < until_us or start_us < begun_us)"
"""SQL: whether an interval of ``to_compute`` lies before what was complete of its channel or gateway."""
_OFFLINE_S: Final = 900
"""The time after an interval's end in which a gateway that sends nothing at all may still be about to."""
_LIVE_S: Final = 3600
"""A gateway whose newest row was computed so long after its interval is one that is live, no replay."""
_OFFLINE_DAYS: Final = 31


def _of_gateway(figure: Column) -> Column:
    """An aggregate over all channels of a channel's gateway."""
    return figure.over(Window.partitionBy("gateway"))


def restored(rows: DataFrame, interval_s: int) -> DataFrame:
    """The state by ``statistics``: what is closed there. Open rows are to count as touched."""
    start_us, length_us = F.unix_micros("interval_start"), interval_s * SECOND_US
    closed = rows.where("version > 0").withColumn("data_us", F.when(has_readings(), start_us))
    age_us = F.unix_micros("updated_at") - start_us - length_us
    return closed.groupBy(*CHANNEL).agg(
        F.max("data_us").alias("newest_us"),
        F.lit(False).alias("is_open"),
        F.min("data_us").alias("first_us"),
        F.max("data_us").alias("last_us"),
        F.max_by("period_ms", "data_us").alias("period_ms"),
        F.max_by("unit", "data_us").alias("unit"),
        F.max_by(age_us < _LIVE_S * SECOND_US, "data_us").alias("is_live"),
        (F.max(start_us) + length_us).alias("until_us"),
    )


def advanced(
    state: DataFrame, touched: DataFrame, ended: DataFrame | None = None, *, is_end: bool = False
) -> DataFrame:
    """The state with the intervals ``touched`` (gateway, channel, start_us), and what it was in ``before``.

    ``ended`` are channels whose newest interval is over without a newer one, with ``is_end`` all of them.
    ``starts`` are the intervals touched, ``begun_us`` is the first interval of the channel's gateway so far.
    """
    came = touched.groupBy(*CHANNEL).agg(F.collect_list("start_us").alias("starts"))
    now = state.select(*CHANNEL, *STATE, F.struct(*STATE).alias("before")).join(came, list(CHANNEL), "full")
    came_us = F.array_max("starts")
    # What was closed by silence stays so: more readings of it are late ones.
    is_newer = came_us > F.coalesce("newest_us", came_us - 1)
    is_open = F.when(is_newer, True).otherwise(F.coalesce("is_open", F.lit(False)))
    if ended is not None:
        silent = ended.select(*CHANNEL, F.lit(True).alias("ended"))
        now = now.join(F.broadcast(silent), list(CHANNEL), "left")
        is_open = is_open & F.col("ended").isNull()
    if is_end:
        is_open = F.lit(False)
    return now.select(
        *CHANNEL,
        F.greatest("newest_us", came_us).alias("newest_us"),
        is_open.alias("is_open"),
        *STATE[2:],
        "before",
        F.coalesce("starts", F.array().cast("array<bigint>")).alias("starts"),
        _of_gateway(F.min("first_us")).alias("begun_us"),
    )


def to_compute(now: DataFrame) -> DataFrame:
    """The intervals whose rows change: start_us, and the ``version`` of a new row, 1 of those to be closed.

    The others, 0, have begun: until an interval is closed its row holds `mast` up, and where the state is
    lost it is found by it; until_us and begun_us are as they were before that.
    """
    was_open = F.when(F.col("before.is_open"), F.array("before.newest_us"))
    starts = F.array_union("starts", F.coalesce(was_open, F.array().cast("array<bigint>")))
    is_over = (F.col("start_us") < F.col("newest_us")) | ~F.col("is_open")
    found = now.select("*", F.explode(starts).alias("start_us")).withColumn("version", is_over.cast("int"))
    has_begun = "not coalesce(before.is_open and before.newest_us = newest_us, false)"
    wanted = found.where(f"version > 0 or {has_begun}")
    return wanted.select(*CHANNEL, "start_us", "period_ms", "version", "until_us", "begun_us")


def completed(
    now: DataFrame, closed: DataFrame, in_force: DataFrame, now_us: int, interval_s: int
) -> DataFrame:
    """The state after the rows of ``closed``, and the windows in which rows may be missing: begin_us, end_us.

    ``closed``: start_us, period_ms and unit of intervals with readings; ``in_force``: ``times_in_force``,
    whose columns are added, as is ``gateway_us``, the gateway's first interval. ``has_gaps``: whether a
    window isn't filled by what was closed.
    """
    length_us = interval_s * SECOND_US
    found = closed.groupBy(*CHANNEL).agg(
        F.min("start_us").alias("found_first_us"),
        F.max("start_us").alias("found_us"),
        F.max_by(F.struct("period_ms", "unit"), "start_us").alias("found"),
        F.count("*").alias("number"),
    )
    is_last = F.col("found_us") >= F.coalesce("last_us", "found_us")
    is_new = F.col("found_us") > F.coalesce("last_us", F.col("found_us") - 1)
    is_live = F.lit(now_us) - F.col("found_us") - length_us < _LIVE_S * SECOND_US
    known = (
        now.join(found, list(CHANNEL), "left")
        .select(
            *CHANNEL,
            "before",
            "newest_us",
            "is_open",
            F.least("first_us", "found_first_us").alias("first_us"),
            F.greatest("last_us", "found_us").alias("last_us"),
            F.when(is_last, F.col("found.period_ms")).otherwise(F.col("period_ms")).alias("period_ms"),
            F.when(is_last, F.col("found.unit")).otherwise(F.col("unit")).alias("unit"),
            F.when(is_new, is_live).otherwise(F.col("is_live")).alias("is_live"),
            "until_us",
            "found_first_us",
            "number",
        )
        .join(in_force, list(CHANNEL), "full")
    )
    own_us = F.col("newest_us") + F.when(F.col("is_open"), 0).otherwise(length_us)
    offline_us = F.least(
        F.lit(now_us - _OFFLINE_S * SECOND_US), _of_gateway(F.max("newest_us")) + _OFFLINE_DAYS * DAY_US
    )
    is_live_gateway = _of_gateway(F.max_by("is_live", "last_us"))
    horizon_us = F.greatest(
        _of_gateway(F.max(own_us)), F.when(is_live_gateway, begin_of(offline_us, interval_s))
    )
    begun = known.withColumns(
        {
            "gateway_us": _of_gateway(F.min("first_us")),
            "end_us": F.when(F.col("is_open"), F.col("newest_us")).otherwise(horizon_us),
            "top_us": _of_gateway(F.max("newest_us")),
            "is_live_gateway": is_live_gateway,
        }
    ).withColumn("begin_us", F.coalesce("until_us", "gateway_us"))
    until_us = F.when(F.col("begin_us") < F.col("end_us"), F.col("end_us")).otherwise(F.col("until_us"))
    # The window has no gap where as many closed ones are in it as fit.
    full = f"found_first_us >= begin_us and number = (end_us - begin_us) div {length_us}"
    return begun.withColumns(
        {"until_us": until_us, "has_gaps": F.expr(f"begin_us < end_us and not coalesce({full}, false)")}
    )


def next_due_s(interval_s: int) -> Column:
    """When silence may change anything of a row of ``completed``, in seconds of the clock; 0 for at once.

    An open interval ends by silence; of a gateway that sends nothing at all the next interval is missing.
    """
    later_us = F.col("newest_us") + (interval_s + SILENCE_S) * SECOND_US
    open_us = F.when(F.col("top_us") >= later_us, 0).otherwise(later_us)
    goes_on = F.col("is_live_gateway") & (F.col("until_us") < F.col("top_us") + _OFFLINE_DAYS * DAY_US)
    missing_us = F.when(goes_on, F.col("until_us") + (interval_s + _OFFLINE_S) * SECOND_US)
    return F.when(F.col("is_open"), open_us).otherwise(missing_us) / SECOND_US


def silent_by_time(state: DataFrame, now_us: int, interval_s: int) -> DataFrame:
    """Open intervals whose end is 60 s ago by the clock or by their gateway's newest interval: start_us."""
    latest_us = F.greatest(F.lit(now_us), _of_gateway(F.max("newest_us")))
    later_us = F.col("newest_us") + (interval_s + SILENCE_S) * SECOND_US
    found = state.withColumn("is_late", later_us <= latest_us).where("is_open and is_late")
    return found.select(*CHANNEL, F.col("newest_us").alias("start_us"), "period_ms")
