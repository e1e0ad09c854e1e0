"""The statistics of given intervals, and which intervals there are in given stretches of time."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import UTC, date, datetime, timedelta
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own name for it

from spark_jobs.intervals import SECOND_US
from spark_jobs.schemas import STATISTICS
from spark_jobs.settings import Settings

MastInterval = tuple[str, int]
"""Gateway and start, microseconds since the epoch."""

_MAX_GATEWAYS: Final = 64
"""With more of them files are pruned by date alone."""
_MAX_STARTS: Final = 64


def _of_length(spark: SparkSession, settings: Settings, gateways: Collection[str]) -> DataFrame:
    rows = spark.read.format("delta").load(settings.table(STATISTICS.name))
    rows = rows.where(F.col("interval_s") == settings.interval_s)
    return rows.where(F.col("gateway").isin(sorted(gateways))) if len(gateways) <= _MAX_GATEWAYS else rows


def _day(micros: int) -> date:
    return datetime.fromtimestamp(micros // SECOND_US, UTC).date()


def statistics_in(spark: SparkSession, settings: Settings, wanted: Collection[MastInterval]) -> DataFrame:
    """All rows of the wanted intervals of all channels of these gateways; reads the dates they lie in."""
    gateways, starts_us = zip(*wanted, strict=True)
    keys = spark.createDataFrame(
        pa.table(
            {
                "gateway": pa.array(gateways, pa.string()),
                "interval_start": pa.array(starts_us, pa.int64()).cast(pa.timestamp("us", tz="UTC")),
            }
        )
    )
    rows = _of_length(spark, settings, set(gateways))
    rows = rows.where(F.col("date").isin(sorted({_day(start_us) for start_us in starts_us})))
    if len(distinct := sorted(set(starts_us))) <= _MAX_STARTS:
        moments = [datetime.fromtimestamp(start_us // SECOND_US, UTC) for start_us in distinct]
        rows = rows.where(F.col("interval_start").isin(moments))
    return rows.join(F.broadcast(keys), ["gateway", "interval_start"], "left_semi")


def intervals_within(
    spark: SparkSession, settings: Settings, spans: Iterable[tuple[str, tuple[int, int]]]
) -> set[MastInterval]:
    """The intervals of each gateway that share time with its spans (begin, end in microseconds).

    Without those in which no channel is closed: they come when one is.
    """
    wanted = list(spans)
    if not wanted:
        return set()
    length_us = settings.interval_s * SECOND_US
    keys = spark.createDataFrame(
        pa.table(
            {
                "gateway": pa.array([gateway for gateway, _ in wanted], pa.string()),
                "begin_us": pa.array([begin - length_us for _, (begin, _) in wanted], pa.int64()),
                "end_us": pa.array([end for _, (_, end) in wanted], pa.int64()),
            }
        )
    )
    rows = _of_length(spark, settings, {gateway for gateway, _ in wanted})
    first_us = min(begin for _, (begin, _) in wanted) - length_us
    if first_us > 0:
        rows = rows.where(F.col("date") >= _day(first_us) - timedelta(days=1))
    start_us = F.unix_micros("interval_start").alias("start_us")
    starts = rows.where("version > 0").select("gateway", start_us).distinct()
    inside = starts.join(F.broadcast(keys), "gateway").where("start_us > begin_us and start_us < end_us")
    found = inside.select("gateway", "start_us").distinct().toArrow()
    return set(zip(found["gateway"].to_pylist(), found["start_us"].to_pylist(), strict=True))
