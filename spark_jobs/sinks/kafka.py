"""Rows to Kafka's topics, by Spark's own sink."""

from __future__ import annotations

from pyspark.sql import DataFrame

from spark_jobs.platform.settings import Settings


def produce_rows(rows: DataFrame, settings: Settings) -> None:
    """Writes rows (topic, key, value) and waits until all in-sync replicas have them; a repeat writes again.

    Raises CloudError; PySparkException where Kafka refuses a record or stays away.
    """
    (rows.write.format("kafka").options(**settings.kafka_options()).option("kafka.acks", "all").save())
