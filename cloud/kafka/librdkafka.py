"""Librdkafka's properties where they differ from its defaults, and what Kafka refuses a record for.

Each refusal has whose fault it is, and which key mends it.

The codes are those of https://kafka.apache.org/protocol. What may pass by itself librdkafka tries again, and
reports only once it has run out of time: an error that a broker has answered with lasts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException

from cloud.errors import CloudError, Undelivered

_C = TypeVar("_C")
# librdkafka repeats each failed connect every second; those who use a client log each reason once.
_silent = logging.getLogger(__name__)
_silent.setLevel(logging.CRITICAL)

MAX_RECORD_BYTES: Final = (1 << 20) + (256 << 10)
"""A raw message's 1 MiB, with its MQTT topic as key and header."""

DEFAULTS: Final[Mapping[str, str]] = {
    "acks": "all",
    "enable.idempotence": "true",
    # Java's default partitioner: the same key goes to the same partition whoever produces it.
    "partitioner": "murmur2_random",
    "linger.ms": "3",
    "compression.type": "zstd",
    # Batches of readings come out no larger than by the default level, 3, which takes longer.
    "compression.level": "1",
    # A record that is in the outbox anyway needn't be held for librdkafka's five minutes.
    "delivery.timeout.ms": "120000",
    # The default of 10 s would keep a returned broker waiting.
    "reconnect.backoff.max.ms": "1000",
    "queue.buffering.max.kbytes": "32768",
    # How long a topic may be unknown before its records come back to us; the default is 30 s.
    "topic.metadata.propagation.max.ms": "5000",
    "message.max.bytes": str(MAX_RECORD_BYTES),
    # Below the 1 MiB that a topic takes by default.
    "batch.size": "1000000",
    # The count of bytes comes with librdkafka's statistics.
    "statistics.interval.ms": "60000",
}

METERED_PROPERTIES: Final[Mapping[str, str]] = {
    # A batch reaches the producer within milliseconds: waiting costs nothing, each further request does.
    "linger.ms": "1000",
    # Within 1 % of what level 12 makes, which takes 40 MiB of memory and ten times as long.
    "compression.level": "8",
    # Half the default's requests for metadata, which no one needs while topics stay.
    "topic.metadata.refresh.interval.ms": "600000",
}
"""librdkafka properties for the producer of a metered uplink's batches."""


def open_client(kind: Callable[..., _C], settings: Mapping[str, Any]) -> _C:
    """A producer, consumer or admin client, which logs nothing. Raises CloudError for wrong properties."""
    try:
        return kind(dict(settings), logger=_silent)
    except KafkaException as error:
        raise CloudError(f"kafka.properties: {error.args[0].str().strip()}") from error
    except (TypeError, AttributeError, ValueError) as error:
        # Some names are the client's own, for callbacks.
        raise CloudError(f"kafka.properties: {error}") from error


BY_SIZE: Final = frozenset(
    {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE, KafkaError.INVALID_MSG_SIZE}
)
"""What may be the batch's fault, though none of its records is too large."""
OF_A_RECORD: Final = BY_SIZE | {KafkaError.INVALID_MSG, KafkaError.INVALID_RECORD, KafkaError._BAD_MSG}
"""One record of a batch may be at fault: trying that one again gives the same answer."""
_OF_A_TOPIC: Final = frozenset({KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})
"""The client's own words for a topic that isn't there."""
_OF_THE_PRODUCER: Final = frozenset({KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, KafkaError.UNKNOWN_PRODUCER_ID})
"""Another producer takes over."""

_REMEDIES: Final[Mapping[int, str]] = {
    KafkaError.UNSUPPORTED_COMPRESSION_TYPE: "compression.type in [kafka.properties] must be lz4 or none",
    KafkaError.INVALID_REQUIRED_ACKS: "it doesn't take acks=all, without which readings can be lost",
    KafkaError.UNSUPPORTED_VERSION: "it is older than Kafka 2.1, or no Kafka: bootstrap_servers",
    KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT: "the topic's message.format.version is older than 2.1",
    KafkaError.POLICY_VIOLATION: "a policy of the cluster's forbids it: its broker's log has which",
    KafkaError.INVALID_TIMESTAMP: (
        "the topic's message.timestamp.type must be LogAppendTime: fieldgate provision topics --apply"
    ),
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "the user may not IDEMPOTENT_WRITE: fieldgate provision users",
    KafkaError.MSG_SIZE_TOO_LARGE: "more than the topic's max.message.bytes",
}
_CONFIG_FAULTS: Final = ("UNSUPPORTED_COMPRESSION_TYPE", "INVALID_REQUIRED_ACKS", "UNSUPPORTED_VERSION")


def undelivered(error: KafkaError) -> Undelivered:
    """Why a record was given up that had a batch of its own."""
    code = error.code()
    remedy = f": {_REMEDIES[code]}" if code in _REMEDIES else ""
    answered = code >= KafkaError.UNKNOWN and code not in OF_A_RECORD | _OF_THE_PRODUCER
    topic_at_fault = code in _OF_A_TOPIC or (answered and not error.fatal())
    return Undelivered(f"{error.name()}: {error.str()}{remedy}", code in OF_A_RECORD, topic_at_fault)


def is_of_config(problem: str) -> bool:
    """Whether a problem of ``undelivered`` is one that a key of ``[kafka.properties]`` mends."""
    return problem.startswith(_CONFIG_FAULTS)
