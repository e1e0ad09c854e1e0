"""The statistics of given intervals, and which intervals there are in given stretches of time."""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own name for it

from spark_jobs.frames import few_of, one_of, rows_frame
from spark_jobs.intervals import SECOND_US, day_of, moment_of
from spark_jobs.schemas import STATISTICS
from spark_jobs.settings import Settings
from spark_jobs.transforms.statistics import has_readings

MastInterval = tuple[str, int]
"""Gateway and start, microseconds since the epoch."""


def _of_length(spark: SparkSession, settings: Settings) -> DataFrame:
    rows = spark.read.format("delta").load(settings.table(STATISTICS.name))
    return rows.where(F.col("interval_s") == settings.interval_s)


def statistics_in(spark: SparkSession, settings: Settings, wanted: Collection[MastInterval]) -> DataFrame:
    """All rows of the wanted intervals of all channels of these gateways; reads the dates they lie in."""
    keys = rows_frame(spark, "gateway: string, interval_start: time", wanted)
    rows = _of_length(spark, settings).where(
        one_of("gateway", (gateway for gateway, _ in wanted))
        & F.col("date").isin(sorted({day_of(start_us) for _, start_us in wanted}))
        & one_of("interval_start", (moment_of(start_us) for _, start_us in wanted))
    )
    return rows.join(F.broadcast(keys), ["gateway", "interval_start"], "left_semi")


def intervals_within(spark: SparkSession, settings: Settings, spans: DataFrame) -> set[MastInterval]:
    """The intervals of each gateway that share time with its spans (gateway, begin_us, end_us).

    Without those in which no channel with readings is closed: they come when one is.
    """
    begin_us: int | None = spans.agg(F.min("begin_us")).collect()[0][0]
    if begin_us is None:
        return set()
    length_us = settings.interval_s * SECOND_US
    rows = _of_length(spark, settings).where(few_of("gateway", spans))
    if begin_us > length_us:
        rows = rows.where(F.col("date") >= day_of(begin_us - length_us))
    start_us = F.unix_micros("interval_start").alias("start_us")
    starts = rows.where("version > 0").where(has_readings()).select("gateway", start_us).distinct()
    inside = f"start_us + {length_us} > begin_us and start_us < end_us"
    found = starts.join(F.broadcast(spans), "gateway").where(inside).select("gateway", "start_us").distinct()
    return {(row.gateway, row.start_us) for row in found.collect()}
