"""Reads the partition of one key of one topic, from a place on, without a group. One thread uses it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, NamedTuple

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition

from cloud.errors import CloudError

log = logging.getLogger(__name__)
_librdkafka_log = log.getChild("librdkafka")
_librdkafka_log.setLevel(logging.CRITICAL)

_ANSWER_S: Final = 5.0
_REFUSALS: Final = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    }
)
"""Nothing comes until someone mends it: the reader ends with the reason, and another is made later."""

# An idle reader waits in the broker for a minute: 25 MB a month in place of 2,800 (measured).
# The metadata's refresh must stay below 899 s, beyond which librdkafka requests it each second.
_PATIENT: Final[Mapping[str, str | int | bool]] = {
    "fetch.wait.max.ms": 60_000,
    "socket.timeout.ms": 90_000,
    "topic.metadata.refresh.interval.ms": 600_000,
}
_FIXED: Final[Mapping[str, str | int | bool]] = {
    "group.id": "fieldgate",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",
    "queued.max.messages.kbytes": 1024,
    "fetch.message.max.bytes": 65_536,
    "fetch.max.bytes": 1_048_576,
    "log_level": 0,
}


class Place(NamedTuple):
    """Where to read on: an offset of a partition, and without one from a time (ms; 0: the end) on."""

    partition: int | None
    offset: int | None
    time_ms: int


class Fetched(NamedTuple):
    """A record, and where to read on after it."""

    key: bytes | None
    value: bytes
    then: Place


class KeyReader:
    """``patient``: as few bytes as can be while nothing comes; without it, it can pause at the end.

    The constructor waits some seconds for Kafka at most. Raises CloudError.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        properties: Mapping[str, str],
        topic: str,
        key: bytes,
        place: Place,
        *,
        patient: bool = False,
    ) -> None:
        self._topic = topic
        self._refused: list[KafkaError] = []
        settings: dict[str, object] = {
            **properties,
            **(_PATIENT if patient else {}),
            **_FIXED,
            "bootstrap.servers": bootstrap_servers,
            "error_cb": self._on_error,
        }
        self._consumer = _open(settings)
        try:
            partition, offset = self._locate(key, place)
            self._assigned = [TopicPartition(topic, partition, offset)]
            self._consumer.assign(self._assigned)
        except KafkaException as error:
            # The cause, where there is one, comes by the callback.
            self._consumer.poll(0)
            self._consumer.close()
            raise self._problem((*self._refused, error.args[0])[0]) from error
        self.place = Place(partition, offset, place.time_ms)
        self.at_end = False

    def read(self, timeout_s: float) -> Fetched | None:
        """The next record, None without one in time. ``at_end``: no more was there. Raises CloudError."""
        message = self._consumer.poll(timeout_s)
        if self._refused:
            raise self._problem(self._refused[0])
        if message is None:
            return None
        error = message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                self.at_end = True
            elif error.code() in _REFUSALS:
                raise self._problem(error)
            return None
        self.at_end = False
        time_ms = max(message.timestamp()[1], 0)
        then = Place(message.partition(), (message.offset() or 0) + 1, time_ms)
        key, value = message.key(), message.value()
        return Fetched(
            key if isinstance(key, bytes) else None, value if isinstance(value, bytes) else b"", then
        )

    def pause(self) -> None:
        """Request nothing."""
        self._consumer.pause(self._assigned)

    def resume(self) -> None:
        """Request again; ``at_end`` is false until the end is reached."""
        self.at_end = False
        self._consumer.resume(self._assigned)

    def close(self) -> None:
        """End."""
        self._consumer.close()

    def _locate(self, key: bytes, place: Place) -> tuple[int, int]:
        """Partition and offset."""
        found = self._consumer.list_topics(self._topic, _ANSWER_S).topics[self._topic]
        if found.error is not None:
            raise KafkaException(found.error)
        partition = partition_of(key, len(found.partitions))
        if place.offset is not None and place.partition == partition:
            return partition, place.offset
        offset = OFFSET_END
        if place.time_ms:
            # Also where partitions were added: then the key's is another one from now on.
            wanted = TopicPartition(self._topic, partition, place.time_ms)
            answer = self._consumer.offsets_for_times([wanted], timeout=_ANSWER_S)[0]
            if answer.error is not None:
                raise KafkaException(answer.error)
            offset = answer.offset
        if offset < 0:
            # Now, for what comes while nothing has been read yet.
            wanted = TopicPartition(self._topic, partition)
            offset = self._consumer.get_watermark_offsets(wanted, timeout=_ANSWER_S)[1]
        return partition, offset

    def _on_error(self, error: KafkaError) -> None:
        log.debug("event=kafka.reader_error error=%s", error)
        if error.code() in _REFUSALS:
            self._refused.append(error)

    def _problem(self, error: KafkaError) -> CloudError:
        remedy = ""
        if error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
            remedy = ": run fieldgate provision topics"
        elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            remedy = ": allow Describe and Read"
        return CloudError(f"{self._topic}: {error.str()}{remedy}")


def _open(settings: dict[str, object]) -> Consumer:
    try:
        return Consumer(settings, logger=_librdkafka_log)
    except KafkaException as error:
        raise CloudError(f"kafka.properties: {error.args[0].str()}") from error
    except (TypeError, AttributeError, ValueError) as error:
        raise CloudError(f"kafka.properties: {error}") from error


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a key by Java's default partitioner (murmur2), which all producers here use."""
    length, mask = len(key), 0xFFFFFFFF
    found = 0x9747B28C ^ length
    for at in range(0, length - 3, 4):
        part = int.from_bytes(key[at : at + 4], "little") * 0x5BD1E995 & mask
        part = (part ^ part >> 24) * 0x5BD1E995 & mask
        found = (found * 0x5BD1E995 & mask) ^ part
    rest = key[length // 4 * 4 :]
    if rest:
        found = (found ^ int.from_bytes(rest, "little")) * 0x5BD1E995 & mask
    found = (found ^ found >> 13) * 0x5BD1E995 & mask
    return ((found ^ found >> 15) & 0x7FFFFFFF) % partitions
