"""Kafka records, one row each, not yet parsed."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.settings import Settings


def kafka_records(spark: SparkSession, settings: Settings, pattern: str, max_records: int) -> DataFrame:
    """A stream of all records of the topics a Java pattern matches, those that appear later included.

    ``max_records`` bounds one batch. Works while no topic matches yet. Columns: value, key, topic, partition,
    offset, timestamp, timestampType, headers.
    """
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", settings.bootstrap_servers)
        .option("subscribePattern", pattern)
        .option("includeHeaders", "true")
        .option("startingOffsets", "earliest")
        .option("failOnDataLoss", str(settings.fail_on_data_loss).lower())
        .option("maxOffsetsPerTrigger", max_records)
        .option("kafka.metadata.max.age.ms", "5000")
        # A broker that is away for a minute or two is waited for inside the batch; the query lives on.
        .option("kafka.default.api.timeout.ms", "180000")
        .option("fetchOffset.numRetries", "10")
        .option("fetchOffset.retryIntervalMs", "1000")
        .option("kafkaConsumer.pollTimeoutMs", "180000")
        .option("kafka.reconnect.backoff.max.ms", "1000")
        .load()
    )
