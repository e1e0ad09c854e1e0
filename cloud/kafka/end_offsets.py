"""How many records Kafka has taken, topic by topic, and what somebody hasn't read of them."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined] # no __all__

from cloud.errors import CloudError
from cloud.kafka.cluster_check import NoAnswer, first_metadata
from cloud.kafka.topic_scan import open_consumer

log = logging.getLogger(__name__)

_TIMEOUT_S: Final = 3.0
_OLDEST_WITHIN_S: Final = 2.0
_SMALL: Final = {"queued.max.messages.kbytes": "1024", "fetch.message.max.bytes": "16384"}
"""One record of a partition is wanted; of a larger one Kafka gives it all the same."""


class EndOffsets:
    """Requests from one cluster the ends of its topics, again and again. One thread at a time."""

    def __init__(self, bootstrap_servers: str) -> None:
        # An outage is reported by the exception; librdkafka would repeat it on stderr several times a second.
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0}, logger=log)

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
            # What Kafka has deleted since nobody can read any more.
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
