"""The statistics of given intervals, and which intervals there are in given stretches of time."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession, functions as F

from spark_jobs.platform.frames import few_of, one_of
from spark_jobs.platform.intervals import SECOND_US, day_of, moment_of
from spark_jobs.platform.schemas import STATISTICS
from spark_jobs.platform.settings import Settings
from spark_jobs.transforms.statistics import has_readings


def _of_length(spark: SparkSession, settings: Settings) -> DataFrame:
    rows = spark.read.format("delta").load(settings.table(STATISTICS.name))
    return rows.where(F.col("interval_s") == settings.interval_s)


def other_intervals(spark: SparkSession, settings: Settings) -> str | None:
    """Returns a hint where all closed intervals of the lake have other lengths than the settings'."""
    rows = spark.read.format("delta").load(settings.table(STATISTICS.name)).where("version > 0")
    found = sorted(row.interval_s for row in rows.select("interval_s").distinct().collect())
    if not found or settings.interval_s in found:
        return None
    none, *there = (f"{s // 60}m" if s % 60 == 0 else f"{s}s" for s in (settings.interval_s, *found))
    return f"the lake has none of {none}, but of {' and '.join(there)}: name one by --interval"


def statistics_in(spark: SparkSession, settings: Settings, wanted: DataFrame) -> DataFrame:
    """All rows of the wanted intervals (gateway, start_us); reads the dates they lie in."""
    starts_us = [row.start_us for row in wanted.select("start_us").distinct().collect()]
    rows = _of_length(spark, settings).where(
        few_of("gateway", wanted)
        & F.col("date").isin(sorted(set(map(day_of, starts_us))))
        & one_of("interval_start", map(moment_of, starts_us))
    )
    keys = wanted.select("gateway", F.timestamp_micros("start_us").alias("interval_start"))
    return rows.join(keys, ["gateway", "interval_start"], "left_semi")


def intervals_within(spark: SparkSession, settings: Settings, spans: DataFrame) -> DataFrame:
    """The intervals (gateway, start_us) that share time with their gateway's spans (begin_us, end_us).

    Without those in which no channel with readings is closed: they come when one is.
    """
    begin_us = spans.agg(F.min("begin_us")).collect()[0][0]
    length_us = settings.interval_s * SECOND_US
    rows = _of_length(spark, settings).where(few_of("gateway", spans))
    if begin_us > length_us:
        rows = rows.where(F.col("date") >= day_of(begin_us - length_us))
    start_us = F.unix_micros("interval_start").alias("start_us")
    starts = rows.where("version > 0").where(has_readings()).select("gateway", start_us).distinct()
    inside = f"start_us + {length_us} > begin_us and start_us < end_us"
    return starts.join(F.broadcast(spans), "gateway").where(inside).select("gateway", "start_us")
