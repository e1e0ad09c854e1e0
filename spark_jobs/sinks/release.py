"""Records that leave ``quarantine``, because they are readings by now."""

from __future__ import annotations

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.schemas import QUARANTINE
from spark_jobs.settings import Settings
from spark_jobs.sinks.retry import retried

RECORD = ("kafka_topic", "kafka_partition", "kafka_offset", "kafka_time")
"""A record's place in Kafka, and its time: offsets begin again in a topic that was created anew."""


def release(spark: SparkSession, settings: Settings, records: DataFrame) -> None:
    """Removes the rows of these records (by their places in Kafka)."""
    same_record = " and ".join(f"t.{name} = s.{name}" for name in RECORD)

    def delete() -> None:
        (
            DeltaTable.forPath(spark, settings.table(QUARANTINE.name))
            .alias("t")
            .merge(records.select(*RECORD).distinct().alias("s"), same_record)
            .whenMatchedDelete()
            .execute()
        )

    retried(delete, "release-quarantine")
