"""Reads whole topics; where it is, is kept in Kafka for a consumer group. One thread uses it.

Partitions are assigned, not subscribed to: a group's members would send a heartbeat every few seconds.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from cloud.kafka.reader import ANSWER_S, Reader

Begin = Literal["latest", "earliest"]
Partition = tuple[str, int]
"""A topic and one of its partitions."""

# Kafka forgets after a week (offsets.retention.minutes), counted from the last commit.
KEEP_EVERY_S: Final = 6 * 3600.0
"""How often a position that stays the same is to be committed again."""
_MOVING: Final = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
)
"""The broker that has the group's positions is not the one that was asked, or not ready."""
_FLUSH_TURNS: Final = 10
_FLUSH_S: Final = 0.1


class TopicRecord(NamedTuple):
    """A record, and where it stands. A missing value is an empty one."""

    place: Partition
    offset: int
    key: bytes | None
    value: bytes


class TopicReader(Reader):
    """``begins``: by topic, where to begin without a position of the group's. Raises CloudError."""

    def __init__(
        self,
        bootstrap_servers: str,
        properties: Mapping[str, str],
        group: str,
        begins: Mapping[str, Begin],
        *,
        patient: bool = False,
    ) -> None:
        self._begins = begins
        self._committing = False
        self.committed: dict[Partition, int] = {}
        """What Kafka has confirmed, by partition."""
        own = {"group.id": group, "on_commit": self._on_commit}
        super().__init__(bootstrap_servers, properties, begins, patient=patient, own=own)
        self.begun: dict[Partition, int] = {
            (each.topic, each.partition): each.offset for each in self._assigned
        }
        """Where each partition is read from."""

    def read(self, timeout_s: float) -> TopicRecord | None:
        """The next record, None without one in time. Raises CloudError."""
        message = self._next(timeout_s)
        return None if message is None else _record(message)

    def commit(self, positions: Mapping[Partition, int]) -> None:
        """Have Kafka keep where to read on; ``committed`` once it has. Called again after a failure."""
        if positions and not self._committing:
            self._committing = True
            self._consumer.commit(offsets=_offsets(positions), asynchronous=True)

    def flush(self) -> None:
        """Wait a little for what is being committed; what is read meanwhile is read again another time."""
        for _ in range(_FLUSH_TURNS):
            if not self._committing:
                return
            self._consumer.poll(_FLUSH_S)

    def has_grown(self) -> bool:
        """Whether a topic has more partitions than are read."""
        try:
            return sum(len(self._partitions(topic)) for topic in self._begins) > len(self._assigned)
        except KafkaException:
            return False

    def lag(self, topic: str, positions: Mapping[Partition, int]) -> int | None:
        """How many records are still to be read, as of the last fetch; None before it."""
        lag = 0
        for place, position in positions.items():
            if place[0] == topic:
                end = self._consumer.get_watermark_offsets(TopicPartition(*place), cached=True)[1]
                if end < 0:
                    return None
                lag += max(end - position, 0)
        return lag

    def _places(self) -> Sequence[TopicPartition]:
        places = [TopicPartition(topic, each) for topic in self._begins for each in self._partitions(topic)]
        found = self._kept(places)
        for each in found:
            if each.error is not None:
                raise KafkaException(each.error)
        known = {each.topic for each in found if each.offset >= 0}
        for each in found:
            if each.offset < 0:
                low, high = self._consumer.get_watermark_offsets(each, timeout=ANSWER_S)
                # Of a topic that is known, a partition that was added: nothing in it has been read.
                skips = self._begins[each.topic] == "latest" and each.topic not in known
                each.offset = high if skips else low
        return found

    def _kept(self, places: list[TopicPartition]) -> list[TopicPartition]:
        """The group's positions, below 0 where there is none. Raises KafkaException."""
        until_s = time.monotonic() + ANSWER_S
        while True:
            try:
                return self._consumer.committed(places, timeout=ANSWER_S)
            except KafkaException as error:
                # This only times out for a group that is forbidden; the cause comes as a message.
                cause = self._consumer.poll(0.1)
                if cause is not None and (reason := cause.error()) is not None:
                    raise KafkaException(reason) from error
                if error.args[0].code() not in _MOVING or time.monotonic() > until_s:
                    raise

    def _on_commit(self, error: KafkaError | None, places: Collection[TopicPartition]) -> None:
        self._committing = False
        for each in places:
            if (failed := error or each.error) is None:
                self.committed[each.topic, each.partition] = each.offset
            elif failed.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                self._refused.append(failed)


def _offsets(positions: Mapping[Partition, int]) -> list[TopicPartition]:
    return [TopicPartition(*place, offset) for place, offset in positions.items()]


def _record(message: Message) -> TopicRecord:
    place = message.topic() or "", message.partition() or 0
    key, value = message.key(), message.value()
    return TopicRecord(
        place,
        message.offset() or 0,
        key if isinstance(key, bytes) else None,
        value if isinstance(value, bytes) else b"",
    )
