"""Kafka records, one row each, not yet parsed; and which gateways must prove themselves."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import DataFrame, SparkSession, functions as F

from cloud.wire.fields import InvalidFields
from cloud.wire.identities import IDENTITIES_TOPIC, NOBODY, Identities, Identity, IdentityRecord
from spark_jobs.platform.errors import JobError
from spark_jobs.platform.java import java_of
from spark_jobs.platform.kafka_access import require_access
from spark_jobs.platform.settings import Settings

log = logging.getLogger("fieldgate.jobs.identities")


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


_EVERY_S: Final = 15.0
"""A change counts a minute after it was made."""
_PATIENCE_MS: Final = 10_000
_BYTES: Final = "org.apache.kafka.common.serialization.ByteArrayDeserializer"


class IdentitySource:
    """Reads which gateways must prove themselves (``gateway.identities``), again now and then. Any thread.

    It has a consumer of the driver's Java, as the jobs have no other client of Kafka: one request while
    nothing is new. The master key stays in the driver; executors get the keys of gateways. Without a master
    key there is nothing to read.
    """

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self._java = java_of(spark)
        self._settings = settings
        self._lock = threading.Lock()
        self._consumer: Any = None
        self._partitions: list[Any] = []
        self._read_at_s: float | None = None
        self._known: dict[str, Identity] = {}
        self._identities = NOBODY

    def current(self) -> Identities:
        """Returns them as they were some seconds ago at most; while Kafka is away, as they were last.

        Raises UnreadableError, and JobError where they were never read.
        """
        with self._lock:
            if self._read_at_s is None or time.monotonic() - self._read_at_s >= _EVERY_S:
                master = self._settings.master_key()
                try:
                    if master is not None:
                        self._read(master)
                except Py4JJavaError as error:
                    self._close()
                    reason = str(error.java_exception.toString())
                    if self._read_at_s is None:
                        raise JobError(f"{IDENTITIES_TOPIC} can't be read: {reason}") from None
                    log.warning("event=identities.unread %s", reason)
                self._read_at_s = time.monotonic()
            return self._identities

    def close(self) -> None:
        """Leave Kafka."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._consumer is not None:
            # A Java that has died has no connections either, and that it died is being raised.
            with suppress(Py4JError, OSError):
                self._consumer.close()
            self._consumer = None

    def _read(self, master: str) -> None:
        """Take up what came since the last time."""
        if self._consumer is None and not self._open():
            return
        consumer, changed = self._consumer, False
        patience = self._java.java.time.Duration.ofMillis(_PATIENCE_MS)
        ends = consumer.endOffsets(self._partitions, patience)
        begun_s = time.monotonic()
        while any(consumer.position(each) < ends.get(each) for each in self._partitions):
            if time.monotonic() - begun_s > 3 * _PATIENCE_MS / 1000:
                raise JobError(f"{IDENTITIES_TOPIC} can't be read: Kafka sends nothing of it")
            found = consumer.poll(self._java.java.time.Duration.ofMillis(200)).iterator()
            while found.hasNext():
                changed = self._take(found.next(), master) or changed
        if changed:
            self._identities = Identities(self._known.values())
            log.info("event=identities.read gateways=%d", len(self._identities))

    def _take(self, record: Any, master: str) -> bool:
        if record.key() is None:
            return False
        name = bytes(record.key()).decode(errors="replace")
        if record.value() is None:
            return self._known.pop(name, None) is not None
        try:
            found = IdentityRecord.from_json(bytes(record.value()))
            if found.gateway != name:
                raise InvalidFields("INCONSISTENT", f"it is {found.gateway}'s")
            self._known[name] = Identity.of(found, master)
        except InvalidFields as problem:
            # Without the record it is unknown what is the gateway's; a newer version may have written it.
            raise JobError(f"{name}'s record in {IDENTITIES_TOPIC} can't be read: {problem}") from None
        return True

    def _open(self) -> bool:
        """Whether the topic is there. What was known is read once more, from the beginning."""
        options = self._settings.kafka_properties() | {
            "key.deserializer": _BYTES, "value.deserializer": _BYTES, "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            "allow.auto.create.topics": "false",
            "default.api.timeout.ms": str(_PATIENCE_MS),
        }  # fmt: skip
        kafka, topic = self._java.org.apache.kafka, self._settings.prefix + IDENTITIES_TOPIC
        self._consumer = consumer = kafka.clients.consumer.KafkaConsumer(options)
        self._partitions = [
            kafka.common.TopicPartition(topic, each.partition())
            for each in consumer.partitionsFor(topic) or ()
        ]
        if not self._partitions:
            self._close()
            log.warning("event=identities.no_topic nothing is verified: fieldgate provision topics makes it")
            return False
        consumer.assign(self._partitions)
        consumer.seekToBeginning(self._partitions)
        self._known = {}
        return True
