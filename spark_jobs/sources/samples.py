"""What the rules need, out of Spark into the driver's memory."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own name for it

from cloud.schema import UNSYNCED
from spark_jobs.alerting.engine import Interval
from spark_jobs.alerting.places import Sample


def judged_columns(parsed: DataFrame) -> DataFrame:
    """Of validated records (PARSED) those that may be judged: readings of a known time, as ``Sample``."""
    return parsed.where(F.col("reason").isNull() & (F.col("clock") != UNSYNCED)).select(
        "gateway", "channel", "time", "period_ms", "value", "quality", "replayed", "kafka_time"
    )


def collect_samples(parsed: DataFrame) -> Iterator[Sample]:
    """Runs one job; the samples of each Kafka partition in the order of its offsets."""
    rows = judged_columns(parsed).toArrow()
    columns = [
        column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in rows.columns
    ]
    gateways, channels, times, periods, values, qualities, replayed, arrived = (
        column.to_pylist() for column in columns
    )
    return map(
        Sample,
        gateways,
        channels,
        times,
        (period * 1000 for period in periods),
        values,
        qualities,
        replayed,
        arrived,
    )


def collect_recovery(changes: DataFrame, interval_s: int) -> list[Interval]:
    """Closed intervals of ``statistics`` of one length."""
    closed = changes.where(
        (F.col("interval_s") == interval_s) & (F.col("version") >= 1) & F.col("recovery").isNotNull()
    )
    rows = closed.select(
        "gateway",
        "channel",
        F.unix_micros("interval_start").alias("start_us"),
        F.col("recovery").alias("measure"),
        "version",
    )
    return [
        Interval(row.gateway, row.channel, row.start_us, interval_s * 1_000_000, row.measure, row.version)
        for row in rows.collect()
    ]


def collect_anomalies(changes: DataFrame, interval_s: int) -> list[Interval]:
    """Scored intervals of one length; the measure is the score as a multiple of its threshold."""
    scored = changes.where((F.col("interval_s") == interval_s) & (F.col("threshold") > 0))
    rows = scored.select(
        "gateway",
        F.unix_micros("interval_start").alias("start_us"),
        (F.col("score") / F.col("threshold")).alias("measure"),
        "version",
        F.try_element_at("channels", F.lit(1))["channel"].alias("about"),
    ).where(F.col("measure").isNotNull())
    length_us = interval_s * 1_000_000
    return [
        Interval(row.gateway, None, row.start_us, length_us, row.measure, row.version, row.about)
        for row in rows.collect()
    ]
