"""What of a parsed batch is new."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own name for it

from spark_jobs.schemas import QUARANTINE, READINGS

_IDENTITY = ("gateway", "channel", "run")


def readings_of(parsed: DataFrame) -> DataFrame:
    """The valid readings of a parsed batch, with the columns of ``readings``."""
    good = parsed.where(F.col("reason").isNull()).withColumn("date", F.to_date("time"))
    return good.select(*READINGS.schema.names)


def rejects_of(parsed: DataFrame) -> DataFrame:
    """The rejected records of a parsed batch, with the columns of ``quarantine``."""
    return parsed.where(F.col("reason").isNotNull()).select(*QUARANTINE.schema.names)


def unseen_readings(readings: DataFrame, seen: DataFrame) -> DataFrame:
    """Readings outside the seen ranges, each identity once (the one Kafka took first).

    ``seen`` (small): gateway, channel, run and ``seen``, an array of (first, last); others are all new.
    """
    columns = readings.columns
    outside = ~F.exists(F.col("seen"), lambda span: F.col("seq").between(span["first"], span["last"]))
    new = readings.join(F.broadcast(seen), list(_IDENTITY), "left").where(F.col("seen").isNull() | outside)
    # Copies can lie in different partitions and topics, where offsets don't order them: any fixed order will
    # do.
    arrival = Window.partitionBy(*_IDENTITY, "seq").orderBy(
        "kafka_time", "kafka_topic", "kafka_partition", "kafka_offset"
    )
    return new.withColumn("_copy", F.row_number().over(arrival)).where("_copy = 1").select(*columns)


def unquarantined(rejects: DataFrame, quarantine: DataFrame) -> DataFrame:
    """Rejects that are not in quarantine yet.

    A record is its place and Kafka's time together: in a topic that was created anew offsets begin again.
    """
    record = ["kafka_topic", "kafka_partition", "kafka_offset", "kafka_time"]
    return rejects.join(quarantine.select(*record), record, "left_anti")
