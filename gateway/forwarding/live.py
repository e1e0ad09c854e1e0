"""Sends entries of the ledger to Kafka as they come, while Kafka answers; finds out when it does again.

Owned by the forwarder's thread. The outbox has a way of its own (``backlog.py``); what comes of both tells
whether Kafka answers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from gateway.clock.hold import ClockHold
from gateway.forwarding.backlog import Backlog, RowOutcome
from gateway.forwarding.compacted_topics import CompactedTopics
from gateway.forwarding.inbox import Event, Outcome
from gateway.forwarding.kafka_health import KafkaHealth, TopicBackoff
from gateway.forwarding.ledger import Counters, Entry, Ledger, Settled, Stage
from gateway.forwarding.outbox_writer import OutboxWriter
from gateway.forwarding.spill import SpillTimer
from gateway.mqtt.intake import Intake
from gateway.ports import Record, Sink

log = logging.getLogger(__name__)

_TRY_EVERY_S: Final = 20.0
_LOOK_AGAIN_S: Final = 1.0


class LiveSender:
    """What the sink tells of an entry comes back by ``report``, as an event; times are ``monotonic``'s."""

    def __init__(
        self,
        intake: Intake,
        sink: Sink,
        report: Callable[[Event], None],
        ledger: Ledger,
        watch: KafkaHealth,
        parking: TopicBackoff,
        overdue: SpillTimer,
        backlog: Backlog,
        writer: OutboxWriter,
        holdback: ClockHold,
        revisions: CompactedTopics,
        counters: Counters,
        monotonic: Callable[[], float],
    ) -> None:
        self._intake = intake
        self._sink = sink
        self._report = report
        self._ledger = ledger
        self._watch = watch
        self._parking = parking
        self._overdue = overdue
        self._backlog = backlog
        self._writer = writer
        self._holdback = holdback
        self._revisions = revisions
        self._counters = counters
        self._monotonic = monotonic
        self._try_at_s = float("-inf")

    def send(self, entry: Entry) -> None:
        """Hand an entry to the sink, where it waits and may go: Kafka answers, its time is known."""
        if not self._watch.answering or not entry.live or entry.stage is not Stage.WAITING:
            return
        if self._holdback.holds(entry.record):
            return
        now_s = self._monotonic()
        if not self._parking.may_send(entry.record.topic, now_s):
            return
        released = self._holdback.release(entry.record)
        if released is not entry.record:
            self._ledger.replace(entry, released)
        self._ledger.produced(entry, now_s)
        if not self._sink.send(entry.record, lambda problem: self._report(Outcome(entry, problem))):
            self._ledger.undelivered(entry)
        elif self._overdue.pace.metered:
            # Stored soon, as everything is: nothing overdue would ever raise the question.
            self._watch.suspect(entry)

    def send_waiting(self) -> None:
        """What was not stored goes to Kafka after all, but for echoes that are still to come."""
        if self._watch.answering:
            for entry in self._ledger.waiting():
                if (
                    not entry.own
                    or entry.acks
                    or entry.entered_s < self._overdue.entered_before_s(self._monotonic())
                ):
                    self.send(entry)

    def outcome(self, outcome: Outcome) -> Settled:
        """What became of an entry at the sink; what falls due where Kafka has it."""
        entry, undelivered = outcome.entry, outcome.undelivered
        if undelivered is None:
            self._counters.delivered[entry.record.key] += 1
            self._note_revision(entry.record)
            self._told(entry.record.topic, entry.sent_s)
            self._counters.confirmed += 1
            return self._ledger.delivered(entry)
        self._ledger.undelivered(entry)
        refusal = (
            self._intake.refuse(entry.record, undelivered.problem) if undelivered.record_at_fault else None
        )
        if refusal is not None and entry.stage is Stage.WAITING:
            self._counters.dead_letters += 1
            self._ledger.replace(entry, refusal.record)
            self.send(entry)
        elif undelivered.record_at_fault or undelivered.topic_at_fault:
            self._parking.park(entry.record.topic, self._monotonic(), undelivered.problem)
        else:
            log.debug("event=kafka.undelivered error=%s", undelivered.problem)
        return Settled()

    def drained(self, delivered: Sequence[RowOutcome]) -> None:
        """Rows of the outbox that Kafka has confirmed: it answers, where that was prompt."""
        latest_sent_s: dict[str, float] = {}
        for outcome in delivered:
            topic = outcome.record.topic
            self._counters.delivered[outcome.record.key] += 1
            self._note_revision(outcome.record)
            if outcome.sent_s > latest_sent_s.get(topic, float("-inf")):
                latest_sent_s[topic] = outcome.sent_s
        for topic, sent_s in latest_sent_s.items():
            self._told(topic, sent_s)

    def try_again(self) -> None:
        """Without a backlog there is no probe: what waits, or comes next, may go live and be it.

        That is so when nothing is left to send but what waits for the clock, and when the disk refuses. Not
        too often: over a slow link every report is late, and each try would be stored as well.
        """
        if self._watch.answering:
            return
        now_s = self._monotonic()
        store_refused = self._overdue.is_refused(now_s)
        if self._backlog.sendable and not store_refused:
            return
        if len(self._ledger) and not (store_refused or self._holdback.active):
            return
        if now_s < self._try_at_s:
            return
        if not (store_refused or all(map(self._holdback.holds, self._ledger.records()))):
            self._try_at_s = now_s + _LOOK_AGAIN_S
            return
        self._try_at_s = now_s + _TRY_EVERY_S
        self._go_live()

    def _told(self, topic: str, sent_s: float) -> None:
        if self._watch.told(topic, sent_s, self._monotonic(), self._overdue.pace.verdict_s):
            self._go_live()

    def _go_live(self) -> None:
        if not self._watch.answering:
            self._watch.answering = True
            log.warning("event=kafka.answers outbox_records=%d", self._writer.records)
            self.send_waiting()

    def _note_revision(self, record: Record) -> None:
        overtaken = self._revisions.delivered(record)
        if overtaken is not None:
            self.send(self._ledger.enter(overtaken, self._monotonic(), own=False))
