"""Reads the partition of one key of one topic, from a place on. One thread uses it.

For a ``group`` it is that group's one member, by a fixed name: who joins by the same name later fences it
off, and none but the last may ``claim`` a record. Kafka keeps what was claimed, and by whom.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition

from cloud.kafka.reader import ANSWER_S, Reader

log = logging.getLogger(__name__)


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


# A heartbeat takes some 350 bytes, 3 MB a month. Who was fenced off finds out by it, or by what it claims.
_MEMBER: Final[Mapping[str, str | int]] = {
    "heartbeat.interval.ms": 300_000,
    "session.timeout.ms": 900_000,
    "max.poll.interval.ms": 900_000,
}
_JOIN_S: Final = 20.0


class KeyReader(Reader):
    """Raises CloudError. ``member``: the group, and who it is that claims."""

    def __init__(
        self,
        bootstrap_servers: str,
        properties: Mapping[str, str],
        topic: str,
        key: bytes,
        place: Place,
        *,
        patient: bool = False,
        member: tuple[str, str] | None = None,
    ) -> None:
        self._topic = topic
        self._key = key
        self.place = place
        self._group: str | None
        self._group, self._owner = member or (None, "")
        own = {**_MEMBER, "group.id": self._group, "group.instance.id": self._group} if member else {}
        super().__init__(bootstrap_servers, properties, (topic,), patient=patient, own=own)

    def read(self, timeout_s: float) -> Fetched | None:
        """The next record, None without one in time. ``at_end``: no more was there. Raises CloudError."""
        message = self._next(timeout_s)
        if message is None:
            if self._group is not None and not self._consumer.assignment():
                # Librdkafka (2.16) says no more than that of a member that is fenced off.
                raise self._problem(KafkaError(KafkaError.FENCED_INSTANCE_ID))
            return None
        time_ms = max(message.timestamp()[1], 0)
        then = Place(message.partition(), (message.offset() or 0) + 1, time_ms)
        key, value = message.key(), message.value()
        return Fetched(
            key if isinstance(key, bytes) else None, value if isinstance(value, bytes) else b"", then
        )

    def claim(self, then: Place) -> None:
        """Have Kafka keep that the record before a place is taken. Raises CloudError if it is another's."""
        if self._group is None:
            return
        place = TopicPartition(self._topic, then.partition or 0, then.offset or 0, self._owner)
        try:
            self._consumer.commit(offsets=[place], asynchronous=False)
        except KafkaException as error:
            raise self._problem(error.args[0]) from error

    def _begin(self) -> None:
        """Join the group, and begin behind what another member has claimed."""
        if self._group is None:
            self._consumer.assign(list(self._assigned))
            return
        joined: list[bool] = []

        def assign(consumer: Consumer, _partitions: list[TopicPartition]) -> None:
            [place] = self._assigned
            [kept] = consumer.committed([TopicPartition(self._topic, place.partition)], timeout=ANSWER_S)
            if kept.offset > place.offset and kept.metadata != self._owner:
                place.offset = kept.offset
                self.place = Place(place.partition, place.offset, self.place.time_ms)
            consumer.assign([place])
            consumer.pause([place])
            joined.append(True)

        def left(_consumer: Consumer, _partitions: list[TopicPartition]) -> None:
            self._refused.append(KafkaError(KafkaError._ASSIGNMENT_LOST))

        self._consumer.subscribe([self._topic], on_assign=assign, on_revoke=left, on_lost=left)
        until_s = time.monotonic() + _JOIN_S
        while not joined:
            message = self._consumer.poll(0.1)
            error = None if message is None else message.error()
            if error is not None and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                log.warning("event=commands.unguarded group=%s remedy=provision_gateway_again", self._group)
                self._group = None
                self._consumer.unsubscribe()
                self._consumer.assign(list(self._assigned))
                return
            if self._refused or time.monotonic() > until_s:
                raise KafkaException((*self._refused, KafkaError(KafkaError._TIMED_OUT))[0])
        self._consumer.resume(list(self._assigned))

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
            # Where partitions were added, the key's is another one from now on.
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
