"""Kafka records, one row each, not yet parsed."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession, functions as F

from spark_jobs.platform.kafka_access import require_access
from spark_jobs.platform.settings import Settings


def kafka_records(spark: SparkSession, settings: Settings, pattern: str, max_records: int) -> DataFrame:
    """A stream of all records of the topics a Java pattern matches, those that appear later included.

    ``max_records`` bounds one batch. Works while no topic matches yet. Columns: value, key, topic, partition,
    offset, timestamp, timestampType, headers. Raises CloudError.
    """
    return (
        spark.readStream.format("kafka")
        .options(**settings.kafka_options())
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
        # Spark requests the ends of a partition after each fetch, on the connection where the consumer's next
        # fetch already waits; a broker answers in order, so each quiet partition would cost up to half a
        # second a batch.
        .option("kafka.fetch.max.wait.ms", "5")
        .load()
    )


def kafka_between(
    spark: SparkSession, settings: Settings, begin_us: int, end_us: int, gateway: str | None = None
) -> DataFrame:
    """The records of a period by Kafka's time (whole milliseconds, the end not included), read once.

    The columns are those of ``kafka_records``; ``gateway`` selects those whose key is that gateway's.
    """
    require_access(spark, settings, settings.topic_pattern)
    records = (
        spark.read.format("kafka")
        .options(**settings.kafka_options())
        .option("subscribePattern", settings.topic_pattern)
        .option("includeHeaders", "true")
        .option("startingTimestamp", begin_us // 1000)
        .option("endingTimestamp", end_us // 1000)
        # A partition that has nothing so new has nothing to give.
        .option("startingOffsetsByTimestampStrategy", "latest")
        .option("kafka.default.api.timeout.ms", "180000")
        .load()
    )
    its = F.substring_index(F.col("key").cast("string"), "/", 1)
    return records if gateway is None else records.where(its == gateway)
