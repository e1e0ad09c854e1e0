"""When messages that Kafka has not confirmed go to the disk. Owned by the forwarder's thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from gateway.clock.hold import ClockHold
from gateway.config import Config
from gateway.forwarding.kafka_health import KafkaHealth, TopicBackoff
from gateway.forwarding.ledger import Ledger
from gateway.forwarding.outbox_writer import OutboxWriter

_RETRY_STORE_S: Final = 1.0
# The share of the commit interval that Kafka is given to confirm a message before it is stored.
_PATIENCE: Final = 0.5
# What is stored in any case waits this share of the interval, so that fsync comes within the interval.
_STORE_ANYWAY: Final = 0.9
# A metered link may take its time: nothing waits for it, since all is on disk by then.
_METERED_VERDICT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Pace:
    """``batch_s`` is how often a metered uplink sends what is stored; None where readings go out live."""

    commit_interval_s: float
    batch_s: float | None = None

    @classmethod
    def of(cls, config: Config) -> Pace:
        """The pace of a config."""
        metered = config.uplink.mode == "metered"
        return cls(config.outbox.commit_interval_s, config.uplink.batch_s if metered else None)

    @property
    def metered(self) -> bool:
        """Whether readings go through the outbox and leave in batches."""
        return self.batch_s is not None

    def store_after_s(self, *, answering: bool) -> float:
        """How long a message may be unconfirmed before it is stored."""
        wait_for_kafka = answering and not self.metered
        return (_PATIENCE if wait_for_kafka else _STORE_ANYWAY) * self.commit_interval_s

    @property
    def verdict_s(self) -> float:
        """After how long without a delivery report Kafka is silent."""
        return _METERED_VERDICT_S if self.metered else _PATIENCE * self.commit_interval_s


class Batches:
    """When rows of the outbox may be fetched, and which of them are late.

    Live: at any time, and each row is late, or it would not be there. Metered: a pass over the outbox every
    ``batch_s``; late is what an earlier pass has left.
    """

    def __init__(self, batch_s: float | None) -> None:
        self._batch_s = batch_s
        self._due_s = float("-inf")
        self._open = False
        self._newest = 0
        self._newest_at_pass = 0
        self._late_up_to: float = float("inf")

    def stored(self, numbers: Sequence[int]) -> None:
        """Rows were stored under these numbers, which grow."""
        if self._batch_s is None or not numbers:
            return
        if self._late_up_to == float("inf"):
            # What was there before this process began.
            self._late_up_to = self._newest_at_pass = numbers[0] - 1
        self._newest = numbers[-1]

    def is_late(self, number: int) -> bool:
        """Whether a row has missed the batch it belonged to."""
        return number <= self._late_up_to

    def wake_s(self) -> float:
        """When rows may be fetched (monotonic)."""
        return float("-inf") if self._batch_s is None or self._open else self._due_s

    def tick(self, now_s: float) -> None:
        """A pass begins where one is due, whether or not the last one has come to its end."""
        if self._batch_s is None or now_s < self._due_s:
            return
        if self._due_s == float("-inf"):
            self._due_s = now_s
        # On a grid, so that a slow batch doesn't make all the following ones later.
        self._due_s += (1 + (now_s - self._due_s) // self._batch_s) * self._batch_s
        self._open = True
        if self._newest:
            self._late_up_to, self._newest_at_pass = self._newest_at_pass, self._newest

    def end(self) -> None:
        """The pass has come to the newest row."""
        self._open = False


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
