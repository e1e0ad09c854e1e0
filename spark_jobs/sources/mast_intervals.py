"""The statistics of given intervals, and which intervals there are in given stretches of time."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own name for it

from spark_jobs.frames import one_of, rows_frame
from spark_jobs.intervals import SECOND_US, day_of, moment_of
from spark_jobs.schemas import STATISTICS
from spark_jobs.settings import Settings
from spark_jobs.transforms.statistics import has_readings

MastInterval = tuple[str, int]
"""Gateway and start, microseconds since the epoch."""


def _of_length(spark: SparkSession, settings: Settings, gateways: Iterable[str]) -> DataFrame:
    rows = spark.read.format("delta").load(settings.table(STATISTICS.name))
    return rows.where((F.col("interval_s") == settings.interval_s) & one_of("gateway", gateways))


def statistics_in(spark: SparkSession, settings: Settings, wanted: Collection[MastInterval]) -> DataFrame:
    """All rows of the wanted intervals of all channels of these gateways; reads the dates they lie in."""
    keys = rows_frame(spark, "gateway: string, interval_start: time", wanted)
    rows = _of_length(spark, settings, (gateway for gateway, _ in wanted))
    rows = rows.where(
        F.col("date").isin(sorted({day_of(start_us) for _, start_us in wanted}))
        & one_of("interval_start", (moment_of(start_us) for _, start_us in wanted))
    )
    return rows.join(F.broadcast(keys), ["gateway", "interval_start"], "left_semi")


def intervals_within(
    spark: SparkSession, settings: Settings, spans: Iterable[tuple[str, tuple[int, int]]]
) -> set[MastInterval]:
    """The intervals of each gateway that share time with its spans (begin, end in microseconds).

    Without those in which no channel with readings is closed: they come when one is.
    """
    wanted = list(spans)
    if not wanted:
        return set()
    length_us = settings.interval_s * SECOND_US
    keys = rows_frame(
        spark,
        "gateway: string, begin_us end_us: long",
        [(gateway, begin - length_us, end) for gateway, (begin, end) in wanted],
    )
    rows = _of_length(spark, settings, (gateway for gateway, _ in wanted))
    first_us = min(begin for _, (begin, _) in wanted) - length_us
    if first_us > 0:
        rows = rows.where(F.col("date") >= day_of(first_us) - timedelta(days=1))
    start_us = F.unix_micros("interval_start").alias("start_us")
    starts = rows.where("version > 0").where(has_readings()).select("gateway", start_us).distinct()
    inside = starts.join(F.broadcast(keys), "gateway").where("start_us > begin_us and start_us < end_us")
    return {(row.gateway, row.start_us) for row in inside.select("gateway", "start_us").distinct().collect()}
