"""Rejected records as Kafka gave them, as far as they were kept whole."""

from __future__ import annotations

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession, functions as F

from spark_jobs.errors import JobError
from spark_jobs.intervals import moment_of
from spark_jobs.schemas import QUARANTINE
from spark_jobs.settings import Settings


def quarantined_records(
    spark: SparkSession, settings: Settings, begin_us: int, end_us: int, gateway: str | None
) -> DataFrame:
    """Records of reading topics whose every byte is in quarantine, with the columns of the Kafka source.

    By Kafka's time (microseconds since the epoch, the end not included), and by the key where a gateway is
    named. Dead letters are left out. Raises JobError where the lake has no quarantine.
    """
    location = settings.table(QUARANTINE.name)
    if not DeltaTable.isDeltaTable(spark, location):
        raise JobError(f"there is no table {location}: is --lake right?")
    rejects = spark.read.format("delta").load(location)
    whole = (F.col("payload_bytes") == F.length("payload")) & (F.col("kafka_offset").isNotNull())
    chosen = rejects.where(
        whole
        & (F.col("kafka_topic") != settings.dead_letter_topic)
        & F.col("kafka_topic").rlike(f"^(?:{settings.topic_pattern})$")
        & (F.col("kafka_time") >= moment_of(begin_us))
        & (F.col("kafka_time") < moment_of(end_us))
    )
    if gateway is not None:
        chosen = chosen.where(F.startswith(F.col("key"), F.lit(f"{gateway}/")))
    names = ("topic", "partition", "offset")
    places = (*(f"kafka_{name} as {name}" for name in names), "kafka_time as timestamp")
    return chosen.selectExpr("payload as value", "encode(key, 'UTF-8') as key", *places, "headers")


def schema_ids(records: DataFrame) -> set[int]:
    """The schemas that those in Avro name, by id."""
    value = F.col("value")
    named = records.where((F.substring(value, 1, 1) == F.lit(b"\0")) & (F.length(value) >= 5))
    number = F.conv(F.hex(F.substring(value, 2, 4)), 16, 10).cast("long").alias("id")
    return {row.id for row in named.select(number).distinct().collect()}
