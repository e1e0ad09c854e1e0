"""A few records into Kafka, by Spark's own sink."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from spark_jobs.frames import rows_frame
from spark_jobs.settings import Settings

Outgoing = tuple[str, str, str]
"""Topic, key, value."""


def produce(spark: SparkSession, settings: Settings, records: Sequence[Outgoing]) -> None:
    """Writes records and waits until all in-sync replicas have them; a repeat writes them again."""
    if not records:
        return
    (
        rows_frame(spark, "topic key value: string", records)
        .coalesce(1)
        .write.format("kafka")
        .options(**settings.kafka_options())
        .option("kafka.acks", "all")
        .save()
    )
