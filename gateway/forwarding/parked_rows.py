"""Rows of the outbox whose topic takes nothing: stored again by topic, then passed over.

A block of the outbox stays while one of its rows does, and memory has which of the others are gone: one topic
would keep each block that it has a row in. So its late rows are stored again as the newest, with the header
of late ones, each topic's in blocks of their own, in place of those that were read.

Invariants: a row is stored again once, for its header shows it; one that was is read while its topic takes
nothing only where a probe is due; memory has a batch at most, and a range for each block stored again. Any
row of a topic may be its probe, and once it takes records they leave as they stand in the outbox: those
stored again come behind newer ones.

Pure bookkeeping, owned by the forwarder's thread; times are monotonic.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from cloud.wire.number_set import NumberSet
from gateway.forwarding.drain_cursor import BATCH_BYTES, BATCH_RECORDS
from gateway.forwarding.kafka_health import KafkaHealth
from gateway.ports import REPLAYED, Record


class ParkedRows:
    """What a pass over the outbox has found of parked topics, and which rows the next ones needn't read."""

    def __init__(self, kafka: KafkaHealth) -> None:
        self._kafka = kafka
        self._found: dict[int, Record] = {}
        self._found_bytes = 0
        self._refiled: defaultdict[str, NumberSet] = defaultdict(NumberSet)

    def begin(self, after: int, now_s: float) -> int:
        """Where a fetch that is to bring the rows after a number may begin: so many later."""
        for topic, numbers in self._refiled.items():
            if not self._kafka.due(topic, now_s):
                after = numbers.end_of(after + 1)
        return after

    def found(self, number: int, record: Record, *, refile: bool) -> None:
        """A row was read that can't be sent. One that isn't late stays where it is: it may leave as news."""
        if REPLAYED in record.headers:
            self._refiled[record.topic].add(number)
        elif refile:
            self._found[number] = record.replayed()
            self._found_bytes += len(record.value)

    def sent(self, number: int) -> None:
        """A row is at the sink after all."""
        self._found.pop(number, None)

    def take_batch(self) -> Mapping[str, Mapping[int, Record]]:
        """The rows to store again now, by topic and growing number; none before a batch is full.

        A batch of a few rows would cost a commit and a range in memory as well.
        """
        if len(self._found) < BATCH_RECORDS and self._found_bytes < BATCH_BYTES:
            return {}
        by_topic: defaultdict[str, dict[int, Record]] = defaultdict(dict)
        for number in sorted(self._found):
            record = self._found[number]
            by_topic[record.topic][number] = record
        self.forget_found()
        return by_topic

    def refiled(self, topic: str, numbers: Sequence[int]) -> None:
        """Rows of a topic were stored again, under these numbers that follow one another."""
        self._refiled[topic].add(numbers[0], numbers[-1])

    def freed(self) -> None:
        """Topics take records again: all of their rows are read."""
        self.forget_found()
        for topic in self._refiled.keys() - set(self._kafka.parked_topics):
            del self._refiled[topic]

    def forget_found(self) -> None:
        """A pass begins: it finds again what was too little for a batch."""
        self._found, self._found_bytes = {}, 0
