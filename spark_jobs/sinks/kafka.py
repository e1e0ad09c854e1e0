"""Rows to Kafka's topics, by Spark's own sink."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame

from spark_jobs.platform.settings import Settings

AS_JSON: Final = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "ignoreNullFields": "false"}
"""How a record's value is written: microseconds, as the tables have them; every record has all columns."""


def produce_rows(rows: DataFrame, settings: Settings) -> None:
    """Writes rows (topic, key, value) and waits until all in-sync replicas have them; a repeat writes again.

    Raises CloudError; PySparkException where Kafka refuses a record or stays away.
    """
    (rows.write.format("kafka").options(**settings.kafka_options()).option("kafka.acks", "all").save())
