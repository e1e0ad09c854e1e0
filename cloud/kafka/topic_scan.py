"""Reads Kafka for people and commands: whole topics once, what arrives from now on, and how much there is.

The readers belong to no group and commit nothing. The daemon's own are in ``cloud.kafka.readers``.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined] # no __all__

from cloud.errors import CloudError
from cloud.kafka.cluster_check import NoAnswer, first_metadata
from cloud.kafka.librdkafka import open_client
from cloud.wire.avro_readings import NO_SCHEMAS, UnknownSchema, plain
from cloud.wire.channel_records import CHANNELS_TOPIC, ChannelRecord, parse_channel
from cloud.wire.fields import InvalidFields
from cloud.wire.reading_records import RAW_TOPIC, READING_TOPIC_PREFIX, RUNS_TOPIC, Reading, parse_reading
from cloud.wire.run_records import RunRecord
from cloud.wire.site_records import SITES_TOPIC, SiteRecord, parse_site

_BATCH: Final = 1000
_POLL_S: Final = 0.2
_SILENCE_S: Final = 30.0
_MOST: Final = 2000
"""Readings that are passed to a watching person at once."""
_TIMEOUT_S: Final = 3.0
_OLDEST_WITHIN_S: Final = 2.0
_SMALL: Final = {"queued.max.messages.kbytes": "1024", "fetch.message.max.bytes": "16384"}
"""One record of each partition fits; Kafka sends a larger one all the same."""

Compacted = RunRecord | ChannelRecord | SiteRecord
COMPACTED: Final[Mapping[str, Callable[[bytes], Compacted]]] = {
    RUNS_TOPIC: RunRecord.from_json,
    CHANNELS_TOPIC: parse_channel,
    SITES_TOPIC: parse_site,
}
"""The topics in which Kafka keeps each key's last record, and how a record is parsed."""

Receive = Callable[[str, Message], None]
"""Called with each record and its topic, without the prefix."""


def rank(record: Compacted) -> tuple[int, ...]:
    """Returns a rank that grows with each record of one key."""
    return record.reach if isinstance(record, RunRecord) else (record.revision,)


def read_furthest(
    bootstrap_servers: str,
    *,
    properties: Mapping[str, str] | None = None,
    prefix: str = "",
    timeout_s: float = 10.0,
) -> dict[tuple[str, bytes], tuple[int, ...]]:
    """Returns the highest rank that Kafka has, by topic (of ``COMPACTED``) and key. Raises CloudError.

    Records that can't be parsed are ignored.
    """
    found: dict[tuple[str, bytes], tuple[int, ...]] = {}

    def receive(topic: str, message: Message) -> None:
        place = topic, message.key() or b""
        try:
            found[place] = max(rank(COMPACTED[topic](message.value() or b"")), found.get(place, ()))
        except InvalidFields:
            return

    with open_scan(bootstrap_servers, properties, timeout_s, prefix) as scan:
        scan.read(sorted(COMPACTED.keys() & scan.topics()), receive)
    return found


def reading_topics(known: Iterable[str]) -> set[str]:
    """Those of them that have readings."""
    return {name for name in known if name.startswith(READING_TOPIC_PREFIX) and name != RAW_TOPIC}


@contextmanager
def open_scan(
    bootstrap_servers: str, properties: Mapping[str, str] | None, timeout_s: float, prefix: str = ""
) -> Iterator[Scan]:
    """A scan whose errors are CloudErrors, with place and cause."""
    scan = Scan(bootstrap_servers, dict(properties or {}), timeout_s, prefix)
    try:
        yield scan
    except KafkaException as error:
        raise CloudError(f"reading from Kafka at {bootstrap_servers}: {error.args[0].str()}") from error
    finally:
        scan.close()


def open_consumer(
    bootstrap_servers: str, properties: Mapping[str, str], errors: list[KafkaError], *, ends: bool = False
) -> Consumer:
    """A consumer that belongs to no group and commits nothing; ``ends``: it reports partitions' ends.

    librdkafka's complaints are appended to ``errors``. Raises CloudError for wrong properties.
    """
    settings: dict[str, object] = {
        **properties,
        "bootstrap.servers": bootstrap_servers,
        "group.id": f"fieldgate-scan-{uuid.uuid4().hex}",
        "enable.auto.commit": False,
        "enable.partition.eof": ends,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "error_cb": errors.append,
    }
    # An outage is reported by the exception; librdkafka would repeat it on stderr.
    return open_client(Consumer, {**settings, "log_level": 0})


class Scan:
    """Reads topics whose names begin with ``prefix``; names are without it everywhere else."""

    def __init__(
        self, bootstrap_servers: str, properties: dict[str, str], timeout_s: float, prefix: str
    ) -> None:
        self._prefix = prefix
        self._servers = bootstrap_servers
        self._timeout_s = timeout_s
        self._properties = properties
        self._errors: list[KafkaError] = []
        self._consumer = open_consumer(bootstrap_servers, properties, self._errors, ends=True)

    def topics(self) -> set[str]:
        """Names of all topics."""
        try:
            found = first_metadata(
                self._consumer, self._errors, self._servers, self._properties, self._timeout_s
            )
        except NoAnswer as error:
            raise CloudError(f"no answer from Kafka at {self._servers}: {error}") from error
        if (runs := self._prefix + RUNS_TOPIC) not in found.topics:
            # Left out where the user may not see it; asked for by name the broker gives the reason.
            refusal = self._consumer.list_topics(runs, self._timeout_s).topics[runs].error
            if refusal is not None and refusal.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise CloudError(f"Kafka at {self._servers} forbids {runs}: allow Describe and Read")
        return {name[len(self._prefix) :] for name in found.topics if name.startswith(self._prefix)}

    def read(self, topics: list[str], receive: Receive) -> None:
        """Passes on each message up to where its partition ends now."""
        ends: dict[tuple[str, int], int] = {}
        total = read = 0
        known = self._consumer.list_topics(timeout=self._timeout_s).topics
        for topic in topics:
            full = self._prefix + topic
            for partition in known[full].partitions:
                place = TopicPartition(full, partition, OFFSET_BEGINNING)
                begin, end = self._consumer.get_watermark_offsets(place, timeout=self._timeout_s)
                if begin < end:
                    ends[full, partition] = end
                    total += end - begin
        self._consumer.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in ends])
        received_s = time.monotonic()
        while ends:
            messages = self._consumer.consume(_BATCH, timeout=_POLL_S)
            for message in messages:
                place_read = (message.topic() or "", message.partition() or 0)
                error = message.error()
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        # The last offsets may be of markers, or compacted away.
                        ends.pop(place_read, None)
                    elif not error.retriable() and error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
                        # It commits nothing, so it needs no permission for its group.
                        raise KafkaException(error)
                    continue
                if place_read not in ends:
                    continue
                read += 1
                if (message.offset() or 0) < ends[place_read]:
                    receive(place_read[0].removeprefix(self._prefix), message)
                if (message.offset() or 0) + 1 >= ends[place_read]:
                    del ends[place_read]
            if messages:
                received_s = time.monotonic()
            elif time.monotonic() > received_s + _SILENCE_S:
                raise CloudError(
                    f"Kafka at {self._servers} has sent nothing for {_SILENCE_S:g} s; "
                    f"{read} of {total} records read"
                )
        self._consumer.unassign()

    def close(self) -> None:
        """Leave."""
        self._consumer.close()


class Tail:
    """One thread uses it. Each call raises CloudError.

    ``refused`` counts records that are no readings, ``unknown`` those in Avro by no schema of ``schemas``.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        properties: Mapping[str, str],
        since_s: float,
        timeout_s: float,
        schemas: Mapping[int, str] = NO_SCHEMAS,
        prefix: str = "",
    ) -> None:
        self._schemas = schemas
        self._servers = bootstrap_servers
        self._errors: list[KafkaError] = []
        self.refused = self.unknown = 0
        self._consumer: Consumer = open_consumer(bootstrap_servers, properties, self._errors)
        try:
            found = first_metadata(
                self._consumer, self._errors, bootstrap_servers, dict(properties), timeout_s
            ).topics
            from_ms = round((time.time() - since_s) * 1000)
            places = [
                TopicPartition(topic, partition, from_ms)
                for topic in sorted(found)
                if topic.startswith(prefix) and reading_topics((topic[len(prefix) :],))
                for partition in found[topic].partitions
            ]
            if not places:
                raise CloudError(f"Kafka at {bootstrap_servers} has no topic of readings, {prefix}mqtt.…")
            begins = self._consumer.offsets_for_times(places, timeout=timeout_s)
            for place in begins:
                place.offset = place.offset if place.offset >= 0 else OFFSET_END
            self._consumer.assign(begins)
        except (KafkaException, NoAnswer) as error:
            self.close()
            raise CloudError(f"no answer from Kafka at {bootstrap_servers}: {error}") from error

    def read(self, timeout_s: float) -> list[tuple[Reading, int]]:
        """What has come, at the latest after so long; with Kafka's time, microseconds since the epoch."""
        found = []
        messages = self._consumer.consume(_MOST, timeout=timeout_s)
        if any(message.error() is None for message in messages):
            self._errors.clear()
        for message in messages:
            error = message.error()
            if error is not None:
                if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    raise CloudError(f"Kafka at {self._servers} forbids {message.topic()}: allow Read")
                continue
            try:
                value = plain(message.value() or b"", self._schemas)
                received_us = message.timestamp()[1] * 1000
                # The jobs have it so too: else one of the future would be the newest until then.
                found.append((parse_reading(value, received_us), received_us))
            except UnknownSchema:
                self.unknown += 1
            except InvalidFields:
                self.refused += 1
        return found

    @property
    def problem(self) -> str | None:
        """Kafka's last complaint since a record came, None where there was none."""
        return self._errors[-1].str() if self._errors else None

    @property
    def is_lost(self) -> bool:
        """Whether no broker could be reached since a record came."""
        return any(each.code() == KafkaError._ALL_BROKERS_DOWN for each in self._errors)

    def close(self) -> None:
        """Leave."""
        self._consumer.close()


class EndOffsets:
    """Requests from one cluster the ends of its topics, again and again. One thread at a time."""

    def __init__(self, bootstrap_servers: str) -> None:
        settings = {"bootstrap.servers": bootstrap_servers, "log_level": 0}
        self._admin = open_client(AdminClient, settings)

    def by_topic(self) -> dict[str, int]:
        """Sum of end offsets over each topic's partitions. Raises CloudError."""
        try:
            topics = self._admin.list_topics(timeout=_TIMEOUT_S).topics
            partitions = [
                TopicPartition(name, partition)
                for name, topic in topics.items()
                if not name.startswith("__")
                for partition in topic.partitions
            ]
            ends = dict.fromkeys((partition.topic for partition in partitions), 0)
            if partitions:
                latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
                wanted = dict.fromkeys(partitions, latest)
                for partition, answer in self._admin.list_offsets(wanted, request_timeout=_TIMEOUT_S).items():
                    ends[partition.topic] += answer.result(timeout=2 * _TIMEOUT_S).offset
        except (KafkaException, TimeoutError) as error:
            raise CloudError(str(error)) from error
        return ends


@dataclass(frozen=True)
class Unread:
    """What a reader hasn't read: records, and the oldest one's age in seconds; None where it didn't come.

    There are at most so many in compacted topics. ``is_oldest``: each partition's first came in time, or
    there may be an older one. ``unseen`` are topics that Kafka doesn't show.
    """

    records: int
    oldest_s: float | None
    is_oldest: bool = True
    unseen: tuple[str, ...] = ()


def unread(
    bootstrap_servers: str,
    properties: Mapping[str, str],
    readers: Mapping[str, Mapping[str, Mapping[int, int]]],
    timeout_s: float = _TIMEOUT_S,
) -> dict[str, Unread]:
    """What each reader hasn't read, by its next offset of each topic and partition. Raises CloudError.

    A partition that a reader doesn't name is new to it, so that it has read nothing of it.
    """
    errors: list[KafkaError] = []
    with closing(open_consumer(bootstrap_servers, {**properties, **_SMALL}, errors)) as consumer:
        try:
            found = first_metadata(consumer, errors, bootstrap_servers, properties, timeout_s).topics
            bounds = {
                (topic, partition): consumer.get_watermark_offsets(
                    TopicPartition(topic, partition), timeout=timeout_s
                )
                for topic in dict.fromkeys(topic for positions in readers.values() for topic in positions)
                if topic in found
                for partition in found[topic].partitions
            }
            return {reader: _unread(consumer, positions, bounds) for reader, positions in readers.items()}
        except (KafkaException, NoAnswer) as error:
            raise CloudError(f"no answer from Kafka at {bootstrap_servers}: {error}") from error


def _unread(
    consumer: Consumer,
    positions: Mapping[str, Mapping[int, int]],
    bounds: Mapping[tuple[str, int], tuple[int, int]],
) -> Unread:
    records, places = 0, []
    for (topic, partition), (begin, end) in bounds.items():
        if topic in positions:
            # What Kafka has deleted since can't be read any more.
            first = max(begin, positions[topic].get(partition, 0))
            records += max(0, end - first)
            if end > first:
                places.append(TopicPartition(topic, partition, first))
    seen = {topic for topic, _ in bounds}
    return Unread(records, *_oldest_s(consumer, places), tuple(sorted(positions.keys() - seen)))


def _oldest_s(consumer: Consumer, places: list[TopicPartition]) -> tuple[float | None, bool]:
    """Age of the oldest record that is first in its partition, 0 without any; whether all came in time."""
    if not places:
        return 0.0, True
    consumer.assign(places)
    waiting = {(place.topic, place.partition) for place in places}
    oldest_ms: list[int] = []
    deadline_s = time.monotonic() + _OLDEST_WITHIN_S
    while waiting and (left_s := deadline_s - time.monotonic()) > 0:
        message = consumer.poll(left_s)
        if message is None or message.error() is not None:
            continue
        place = str(message.topic()), int(message.partition() or 0)
        if place in waiting:
            waiting.remove(place)
            oldest_ms.append(message.timestamp()[1])
            consumer.pause([TopicPartition(*place)])
    # Else they stay so for the next reader.
    consumer.resume(places)
    consumer.unassign()
    age_s = max(0.0, time.time() - min(oldest_ms) / 1000) if oldest_ms else None
    return age_s, not waiting


_SHOWN: Final = 40
_MOST_CHANNELS: Final = 10_000
_BARS: Final = "▁▂▃▄▅▆▇█"


class Shown(NamedTuple):
    """A channel's newest reading, Kafka's time of it in µs since 1970, and its last values, oldest first."""

    reading: Reading
    arrived_us: int
    values: tuple[float, ...]


class Latest:
    """The newest readings by mast and channel; what is older than the newest changes nothing.

    Beyond 10,000 channels those go from which nothing new came for longest.
    """

    def __init__(self) -> None:
        # Those with the oldest news first.
        self._shown: dict[tuple[str, str], Shown] = {}

    def take(self, arrived: Iterable[tuple[Reading, int]]) -> None:
        """Readings, each with Kafka's time; those that come a second time count once."""
        for given, at_us in arrived:
            # Without what nobody shows, up to 64 KiB of each channel.
            reading = given if given.extra is None else replace(given, extra=None)
            place = reading.gateway, reading.channel
            held = self._shown.get(place)
            if held is None:
                held = Shown(reading, at_us, ())
            elif (reading.time_us, reading.seq) <= (held.reading.time_us, held.reading.seq):
                continue
            values = held.values if reading.value is None else (*held.values, reading.value)[-_SHOWN:]
            self._shown.pop(place, None)
            self._shown[place] = Shown(reading, max(at_us, held.arrived_us), values)
            if len(self._shown) > _MOST_CHANNELS:
                del self._shown[next(iter(self._shown))]

    def in_order(self) -> list[Shown]:
        """All of them, by mast and channel."""
        return [shown for _, shown in sorted(self._shown.items())]

    def of(self, gateway: str) -> dict[str, Shown]:
        """A mast's channels, by name."""
        return {name: shown for (mast, name), shown in self._shown.items() if mast == gateway}

    def last_seen_us(self) -> dict[str, int]:
        """The time at which Kafka had something of each mast last."""
        seen: dict[str, int] = {}
        for (gateway, _), shown in self._shown.items():
            seen[gateway] = max(shown.arrived_us, seen.get(gateway, 0))
        return seen


def sparkline(values: Sequence[float]) -> str:
    """Values as bars from their lowest to their highest; one height where all are the same."""
    low, high = min(values, default=0.0), max(values, default=0.0)
    # By halves, for the difference of two doubles may be none.
    span = high / 2 - low / 2 or 1.0
    return "".join(_BARS[round((value / 2 - low / 2) / span * (len(_BARS) - 1))] for value in values)
