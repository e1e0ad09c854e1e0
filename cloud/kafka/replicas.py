"""Whether replicas are away: librdkafka repeats what Kafka refuses for that by itself, and reports nothing.

Asked by the thread that owns the sink; a thread of its own waits for the answer.
"""

from __future__ import annotations

import threading
import time
from typing import Final

from confluent_kafka import KafkaException, Producer

_AGAIN_S: Final = 10.0
_TIMEOUT_S: Final = 5.0


class ReplicaWatch:
    """Looks at the partitions of one topic, as often as it is asked and not more than each ten seconds."""

    def __init__(self) -> None:
        self._found: str | None = None
        self._asked_s = float("-inf")

    def problem(self, producer: Producer, topic: str) -> str | None:
        """What was found in this outage; None where Kafka doesn't answer, or all replicas are in sync."""
        now_s = time.monotonic()
        if now_s >= self._asked_s + _AGAIN_S:
            if now_s >= self._asked_s + 3 * _AGAIN_S:
                self._found = None
            self._asked_s = now_s
            threading.Thread(
                target=self._look, args=(producer, topic), name="kafka-replicas", daemon=True
            ).start()
        return self._found

    def _look(self, producer: Producer, topic: str) -> None:
        try:
            partitions = producer.list_topics(topic, timeout=_TIMEOUT_S).topics[topic].partitions.values()
        except KafkaException:
            self._found = None
            return
        counts = [(len(each.isrs), len(each.replicas)) for each in partitions]
        short = [(in_sync, wanted) for in_sync, wanted in counts if in_sync < wanted]
        self._found = None
        if short:
            in_sync, wanted = min(short)
            self._found = (
                f"{in_sync} of {wanted} replicas of {topic} are in sync, and Kafka confirms nothing: "
                "fewer than min.insync.replicas"
            )
