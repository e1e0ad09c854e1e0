"""The readers of Kafka that the gateway and ``notify`` have: whole topics by a group's position, or one key.

Partitions are assigned, not subscribed to: a group's members would send a heartbeat every few seconds. One
thread uses a reader.

A ``KeyReader`` for a group is that group's one member, by a fixed name: who joins by the same name later
fences it off, and none but the last may ``claim`` a record. Kafka keeps what was claimed, and by whom.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, Message, TopicPartition

from cloud.errors import CloudError
from cloud.kafka.librdkafka import open_client

log = logging.getLogger(__name__)

ANSWER_S: Final = 5.0
"""How long a request waits for Kafka."""
_UNKNOWN: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
_REFUSALS: Final = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.FENCED_INSTANCE_ID,
        *_UNKNOWN,
    }
)
"""Nothing comes until someone mends it: the reader ends with the reason, and another is made later."""

_MOVING: Final = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
)
"""Another broker than the one that was asked has the group or the partition, or will have in a moment."""
_FENCED: Final = (KafkaError.FENCED_INSTANCE_ID, KafkaError._FATAL)
_ANOTHER: Final = "another gateway with this id reads them (a cloned SD card?): it needs another gateway.id"

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


class Fenced(CloudError):
    """Another reader has taken this one's place."""


class Reader:
    """What readers share; one's constructor assigns partitions of ``topics``, and waits some seconds at most.

    ``patient``: as few bytes as can be while nothing comes; without it, it can pause at the end.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        properties: Mapping[str, str],
        topics: Collection[str],
        *,
        patient: bool,
        own: Mapping[str, object] = {},
    ) -> None:
        """Raises CloudError."""
        self._topics = ", ".join(topics)
        self._refused: list[KafkaError] = []
        self._assigned: Sequence[TopicPartition] = ()
        self._ended: set[tuple[str | None, int | None]] = set()
        settings: dict[str, object] = {
            **properties,
            **(_PATIENT if patient else {}),
            **_FIXED,
            **own,
            "bootstrap.servers": bootstrap_servers,
            "error_cb": self._on_error,
        }
        self._consumer = open_client(Consumer, settings)
        try:
            self._assigned = self._settled_places()
            self.start()
        except KafkaException as error:
            # The cause, where there is one, comes by the callback.
            self._consumer.poll(0)
            self._consumer.close()
            raise self._problem((*self._refused, error.args[0])[0]) from error

    @property
    def at_end(self) -> bool:
        """Whether no more was there in any partition."""
        return len(self._ended) == len(self._assigned)

    def pause(self) -> None:
        """Request nothing."""
        self._consumer.pause(list(self._assigned))

    def resume(self) -> None:
        """Request again; ``at_end`` is false until the end is reached."""
        self._ended.clear()
        self._consumer.resume(list(self._assigned))

    def close(self) -> None:
        """End."""
        self._consumer.close()

    def start(self) -> None:
        """Begin to read. Raises KafkaException."""
        self._consumer.assign(list(self._assigned))

    def has_grown(self) -> bool:
        """Returns True once partitions were added that this reader would read if it were opened again."""
        raise NotImplementedError

    def _places(self) -> Sequence[TopicPartition]:
        """Where to begin. Raises KafkaException."""
        raise NotImplementedError

    def _settled_places(self) -> Sequence[TopicPartition]:
        """Asks again while the brokers move what was asked for. Raises KafkaException."""
        until_s = time.monotonic() + ANSWER_S
        while True:
            try:
                return self._places()
            except KafkaException as error:
                if error.args[0].code() not in _MOVING or time.monotonic() > until_s:
                    raise
                self._consumer.poll(0.1)

    def _next(self, timeout_s: float) -> Message | None:
        """The next record, None without one in time. Raises CloudError."""
        message = self._consumer.poll(timeout_s)
        if self._refused:
            raise self._problem(self._refused[0])
        if message is None:
            return None
        error, place = message.error(), (message.topic(), message.partition())
        if error is None:
            self._ended.discard(place)
            return message
        if error.code() == KafkaError._PARTITION_EOF:
            self._ended.add(place)
        elif error.code() in _REFUSALS:
            raise self._problem(error)
        return None

    def _partitions(self, topic: str) -> list[int]:
        """Raises KafkaException."""
        found = self._consumer.list_topics(topic, ANSWER_S).topics[topic]
        if found.error is not None:
            raise KafkaException(found.error)
        return sorted(found.partitions)

    def _on_error(self, error: KafkaError) -> None:
        log.debug("event=kafka.reader_error error=%s", error)
        if error.code() in _REFUSALS:
            self._refused.append(error)

    def _problem(self, error: KafkaError) -> CloudError:
        if error.code() in _FENCED:
            return Fenced(f"{self._topics}: {_ANOTHER}")
        remedy = ""
        if error.code() in _UNKNOWN:
            remedy = ": run fieldgate provision topics"
        elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            remedy = ": allow Describe and Read"
        elif error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            remedy = (
                ": allow Read on the consumer group fieldgate-GATEWAY, as fieldgate provision gateway does"
            )
        return CloudError(f"{self._topics}: {error.str()}{remedy}")


Begin = Literal["latest", "earliest"]
Partition = tuple[str, int]
"""A topic and one of its partitions."""

# Kafka forgets after a week (offsets.retention.minutes), counted from the last commit.
KEEP_EVERY_S: Final = 6 * 3600.0
"""How often a position that stays the same is to be committed again."""
_FLUSH_TURNS: Final = 10
_FLUSH_S: Final = 0.1


class Place(NamedTuple):
    """Where to read on: an offset of a partition, and without one from a time (ms; 0: the end) on."""

    partition: int | None
    offset: int | None
    time_ms: int


class TopicRecord(NamedTuple):
    """A record, where it stands, and Kafka's time of it. A missing value is an empty one."""

    place: Partition
    offset: int
    key: bytes | None
    value: bytes
    time_ms: int = 0

    @property
    def then(self) -> Place:
        """Where to read on after it."""
        return Place(self.place[1], self.offset + 1, self.time_ms)


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
        """Returns True for more partitions than are read."""
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
        try:
            return self._consumer.committed(places, timeout=ANSWER_S)
        except KafkaException as error:
            # This only times out for a group that is forbidden; the cause comes as a message.
            cause = self._consumer.poll(0.1)
            if cause is not None and (reason := cause.error()) is not None:
                raise KafkaException(reason) from error
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
        max(message.timestamp()[1], 0),
    )


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

    def read(self, timeout_s: float) -> TopicRecord | None:
        """The next record, None without one in time. ``at_end``: no more was there. Raises CloudError."""
        message = self._next(timeout_s)
        if message is None:
            if self._group is not None and not self._consumer.assignment():
                # Librdkafka (2.16) says no more than that of a member that is fenced off.
                raise self._problem(KafkaError(KafkaError.FENCED_INSTANCE_ID))
            return None
        return _record(message)

    def claim(self, then: Place) -> None:
        """Have Kafka keep that the record before a place is taken. Raises CloudError if it is another's."""
        if self._group is None:
            return
        place = TopicPartition(self._topic, then.partition or 0, then.offset or 0, self._owner)
        try:
            self._consumer.commit(offsets=[place], asynchronous=False)
        except KafkaException as error:
            raise self._problem(error.args[0]) from error

    def has_grown(self) -> bool:
        """Returns True once the key's records go to another partition."""
        try:
            return partition_of(self._key, len(self._partitions(self._topic))) != self._assigned[0].partition
        except KafkaException:
            return False

    def start(self) -> None:
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
