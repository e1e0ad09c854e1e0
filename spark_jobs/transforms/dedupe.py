"""What of a batch is new."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame, Window, functions as F

from spark_jobs.platform.schemas import QUARANTINE
from spark_jobs.transforms.seen import IDENTITY


def as_quarantined(rejects: DataFrame) -> DataFrame:
    """Rejects with the columns of ``quarantine``."""
    uncounted = {name: F.lit(None).cast("bigint") for name in ("overflow", "overflow_from")}
    return rejects.withColumns(uncounted).select(*QUARANTINE.schema.names)


def joined_ranges(ranges: DataFrame, key: Sequence[str] = IDENTITY) -> DataFrame:
    """Ranges of whole numbers (``key``, first, last); of those that overlap or touch one is made."""
    in_order = Window.partitionBy(*key).orderBy("first")
    reached = F.max("last").over(in_order.rowsBetween(Window.unboundedPreceding, -1))
    # The highest number has no next one (null): nothing begins after it.
    is_apart = F.coalesce(F.col("first") > F.try_add(reached, F.lit(1)), reached.isNull())
    begins = is_apart.cast("int")
    numbered = ranges.withColumn("_begins", begins).withColumn("_number", F.sum("_begins").over(in_order))
    bounds = F.min("first").alias("first"), F.max("last").alias("last")
    return numbered.groupBy(*key, "_number").agg(*bounds).drop("_number")


RECORD: Final = ("kafka_topic", "kafka_partition", "kafka_offset", "kafka_time")
"""What makes a Kafka record the same: in a topic that was created again offsets begin again."""


def unstored(rows: DataFrame, stored: DataFrame) -> DataFrame:
    """Rows of Kafka records that a table doesn't hold yet."""
    return rows.join(stored.select(*RECORD), list(RECORD), "left_anti").select(*rows.columns)


def unquarantined(rejects: DataFrame, quarantine: DataFrame) -> DataFrame:
    """Rejects that are neither in quarantine yet nor counted there."""
    counted = quarantine.where("overflow is not null").select(
        *(F.col(name).alias(f"_{name}") for name in ("gateway", "overflow_from", *RECORD))
    )
    in_it = F.expr(
        "gateway = _gateway and kafka_topic = _kafka_topic and kafka_partition = _kafka_partition"
        " and kafka_offset between _overflow_from and _kafka_offset and kafka_time <= _kafka_time"
        " and date_trunc('hour', kafka_time) = date_trunc('hour', _kafka_time)"
    )
    stored = quarantine.where("overflow is null")
    return unstored(rejects, stored).join(F.broadcast(counted), in_it, "left_anti")
