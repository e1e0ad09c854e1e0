"""Reads topics once, from their beginning up to where they ended at the start."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from cloud.errors import CloudError
from cloud.kafka.cluster_check import NoAnswer, first_metadata
from cloud.wire.channel_records import CHANNELS_TOPIC, ChannelRecord, parse_channel
from cloud.wire.fields import InvalidFields
from cloud.wire.reading_records import RAW_TOPIC, READING_TOPIC_PREFIX, RUNS_TOPIC
from cloud.wire.run_records import RunRecord
from cloud.wire.site_records import SITES_TOPIC, SiteRecord, parse_site

log = logging.getLogger(__name__)

_BATCH: Final = 1000
_POLL_S: Final = 0.2
_SILENCE_S: Final = 30.0

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
    try:
        # An outage is reported by the exception; librdkafka would repeat it on stderr.
        return Consumer({**settings, "log_level": 0}, logger=log)
    except KafkaException as error:
        raise CloudError(error.args[0].str()) from error


class Scan:
    """A consumer that belongs to no group and commits nothing; of the topics with a prefix, without it."""

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
