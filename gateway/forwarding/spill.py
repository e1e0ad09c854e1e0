"""When messages that Kafka has not confirmed go to the disk. Owned by the forwarder's thread."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from gateway.clock.hold import ClockHold
from gateway.forwarding.kafka_health import KafkaHealth
from gateway.forwarding.ledger import Ledger
from gateway.forwarding.outbox_writer import OutboxWriter
from gateway.forwarding.pace import Pace
from gateway.forwarding.parking import TopicBackoff

_RETRY_STORE_S: Final = 1.0


class SpillTimer:
    """Hands the writer what has waited too long, and Kafka's silence to the watch.

    Times are monotonic seconds.
    """

    def __init__(
        self,
        pace: Pace,
        ledger: Ledger,
        writer: OutboxWriter,
        watch: KafkaHealth,
        parking: TopicBackoff,
        holdback: ClockHold,
    ) -> None:
        self.pace = pace
        self._ledger = ledger
        self._writer = writer
        self._watch = watch
        self._parking = parking
        self._holdback = holdback
        self._not_before_s = float("-inf")

    def change(self, commit_interval_s: float) -> None:
        """Another commit interval."""
        self.pace = replace(self.pace, commit_interval_s=commit_interval_s)

    def refused(self, now_s: float) -> None:
        """The disk has refused what it was given: try again soon."""
        self._not_before_s = now_s + _RETRY_STORE_S

    def is_refused(self, now_s: float) -> bool:
        """Whether the disk is not to be tried yet."""
        return now_s < self._not_before_s

    def entered_before_s(self, now_s: float) -> float:
        """Entries that entered before this moment must be on their way to the disk now."""
        return now_s - self.pace.store_after_s(answering=self._watch.answering)

    def wake_s(self, now_s: float, *, stopping: bool) -> float:
        """When ``store`` has something to do, infinity when only an event can change that."""
        oldest = self._ledger.oldest_unstored()
        if oldest is None or (self._ledger.storing and not stopping):
            return float("inf")
        overdue_s = oldest.entered_s + (now_s - self.entered_before_s(now_s))
        return max(overdue_s, self._not_before_s)

    def store(self, now_s: float, *, stopping: bool) -> None:
        """Store what is overdue, and with it whatever would be soon; everything while ``stopping``."""
        oldest = self._ledger.oldest_unstored()
        if oldest is None or self.is_refused(now_s):
            return
        if not stopping and oldest.entered_s > self.entered_before_s(now_s):
            return
        if oldest.at_sink and not stopping:
            self._watch.suspect(oldest)
            self._watch.judge(now_s, self.pace.verdict_s)
        if self._ledger.storing and not stopping:
            # One commit at a time, and what is overdue by then goes with the next: behind a slow card commits
            # would queue up, and each reading wait for all those before it.
            return
        # Once one is overdue because of Kafka, the others would be too: one commit for all of them.
        everything = stopping or not self._watch.answering or self.pace.metered or self._holdback.active
        # What is for a parked topic is overdue sooner or later: with this commit, not with one of its own.
        taken = self._ledger.take_for_storing(
            now_s if everything else self.entered_before_s(now_s), self._parking.topics
        )
        if taken:
            self._writer.store(taken)
