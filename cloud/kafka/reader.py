"""A consumer of partitions that it names itself: no group decides which. One thread uses it."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from cloud.errors import CloudError

log = logging.getLogger(__name__)
_librdkafka_log = log.getChild("librdkafka")
_librdkafka_log.setLevel(logging.CRITICAL)

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
        self._consumer = _open(settings)
        try:
            self._assigned = self._places()
            self._begin()
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

    def _begin(self) -> None:
        """Begin to read. Raises KafkaException."""
        self._consumer.assign(list(self._assigned))

    def _places(self) -> Sequence[TopicPartition]:
        """Where to begin. Raises KafkaException."""
        raise NotImplementedError

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


def _open(settings: dict[str, object]) -> Consumer:
    try:
        return Consumer(settings, logger=_librdkafka_log)
    except KafkaException as error:
        raise CloudError(f"kafka.properties: {error.args[0].str()}") from error
    except (TypeError, AttributeError, ValueError) as error:
        raise CloudError(f"kafka.properties: {error}") from error
