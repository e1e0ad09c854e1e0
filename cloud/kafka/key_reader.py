"""Reads the partition of one key of one topic, from a place on. One thread uses it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from confluent_kafka import OFFSET_END, KafkaException, TopicPartition

from cloud.kafka.reader import ANSWER_S, Reader


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
    headers: Mapping[str, bytes | str | None] = {}


class KeyReader(Reader):
    """Raises CloudError."""

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
        self._key = key
        self.place = place
        super().__init__(bootstrap_servers, properties, (topic,), patient=patient)

    def read(self, timeout_s: float) -> Fetched | None:
        """The next record, None without one in time. ``at_end``: no more was there. Raises CloudError."""
        message = self._next(timeout_s)
        if message is None:
            return None
        time_ms = max(message.timestamp()[1], 0)
        then = Place(message.partition(), (message.offset() or 0) + 1, time_ms)
        key, value = message.key(), message.value()
        return Fetched(
            key if isinstance(key, bytes) else None,
            value if isinstance(value, bytes) else b"",
            then,
            dict(message.headers() or ()),
        )

    def _places(self) -> Sequence[TopicPartition]:
        partition, offset = self._locate(self.place)
        self.place = Place(partition, offset, self.place.time_ms)
        return (TopicPartition(self._topic, partition, offset),)

    def _locate(self, place: Place) -> tuple[int, int]:
        """Partition and offset."""
        partition = partition_of(self._key, len(self._partitions(self._topic)))
        if place.offset is not None and place.partition == partition:
            return partition, place.offset
        offset = OFFSET_END
        if place.time_ms:
            # Also where partitions were added: then the key's is another one from now on.
            wanted = TopicPartition(self._topic, partition, place.time_ms)
            answer = self._consumer.offsets_for_times([wanted], timeout=ANSWER_S)[0]
            if answer.error is not None:
                raise KafkaException(answer.error)
            offset = answer.offset
        if offset < 0:
            # Now, for what comes while nothing has been read yet.
            wanted = TopicPartition(self._topic, partition)
            offset = self._consumer.get_watermark_offsets(wanted, timeout=ANSWER_S)[1]
        return partition, offset


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
