"""Sends entries of the ledger to Kafka as they come, while Kafka answers; detects when it does again.

Owned by the forwarder's thread. The outbox has a way of its own (``backlog.py``); the outcomes of both show
whether Kafka answers.
"""

from __future__ import annotations

import logging
from typing import Final

from gateway.forwarding.inbox import Outcome
from gateway.forwarding.ledger import Entry, Stage
from gateway.forwarding.outbox_writer import OutboxWriter
from gateway.forwarding.state import State
from gateway.ports import Record, Sink

log = logging.getLogger(__name__)

_TRY_EVERY_S: Final = 20.0
_RECHECK_S: Final = 1.0


class LiveSender:
    """The sink's outcome of an entry comes back through the inbox."""

    def __init__(self, state: State, sink: Sink, outbox: OutboxWriter) -> None:
        self._state = state
        self._sink = sink
        self._outbox = outbox
        self._try_at_s = float("-inf")

    def send(self, entry: Entry) -> None:
        """Hand an entry to the sink, where it waits and may go: Kafka answers, its time is known."""
        state = self._state
        if not state.kafka.answering or not entry.live or entry.stage is not Stage.WAITING:
            return
        if state.hold.holds(entry.record):
            return
        now_s = state.monotonic()
        if not state.kafka.may_send(entry.record.topic, now_s):
            return
        released = state.hold.release(entry.record)
        if released is not entry.record:
            state.ledger.replace(entry, released)
        state.ledger.produced(entry, now_s)
        if not self._sink.send(entry.record, lambda problem: state.inbox.put(Outcome(entry, problem))):
            state.ledger.undelivered(entry)
        elif state.pace.metered:
            # Stored soon, as everything is: nothing overdue would ever have Kafka judged.
            state.kafka.watch(entry)

    def send_waiting(self) -> None:
        """What was not stored goes to Kafka after all, but for echoes that are still to come."""
        state = self._state
        if state.kafka.answering:
            for entry in state.ledger.waiting():
                overdue = entry.entered_s < state.entered_before_s(state.monotonic())
                if not entry.own or entry.acks or overdue:
                    self.send(entry)

    def outcome(self, outcome: Outcome) -> None:
        """What became of an entry at the sink."""
        state, entry, undelivered = self._state, outcome.entry, outcome.undelivered
        if undelivered is None:
            state.counters.confirmed += 1
            self.confirmed(entry.record, entry.sent_s)
            state.ledger.delivered(entry)
            return
        state.ledger.undelivered(entry)
        if undelivered.record_at_fault and entry.stage is Stage.WAITING:
            letter = state.intake.refuse(entry.record, undelivered.problem)
            if letter is not None:
                state.counters.dead_letters += 1
                state.ledger.replace(entry, letter)
                self.send(entry)
                return
        if undelivered.record_at_fault or undelivered.topic_at_fault:
            state.kafka.park(entry.record.topic, state.monotonic(), undelivered.problem)
        else:
            log.debug("event=kafka.undelivered error=%s", undelivered.problem)

    def confirmed(self, record: Record, sent_s: float) -> None:
        """Kafka has a record, live or of the outbox: it answers, where that was prompt."""
        state, now_s = self._state, self._state.monotonic()
        state.counters.delivered[record.key] += 1
        overtaken = state.compacted.delivered(record)
        if overtaken is not None:
            self.send(state.ledger.enter(overtaken, now_s, own=False))
        if state.kafka.confirmed(record.topic, sent_s, now_s):
            self._go_live()

    def try_again(self, *, backlog: bool) -> None:
        """Without a ``backlog`` there is no probe: what waits, or comes next, may go live and be it.

        That is so when nothing is left to send but what waits for the clock, and when the disk refuses. Not
        too often: over a slow link every report is late, and each try would be stored as well.
        """
        state = self._state
        if state.kafka.answering:
            return
        now_s = state.monotonic()
        refuses = state.disk_refuses(now_s)
        if now_s < self._try_at_s or (backlog and not refuses):
            return
        if len(state.ledger) and not (refuses or state.hold.active):
            return
        if refuses or all(map(state.hold.holds, state.ledger.records())):
            self._try_at_s = now_s + _TRY_EVERY_S
            self._go_live()
        else:
            self._try_at_s = now_s + _RECHECK_S

    def _go_live(self) -> None:
        if not self._state.kafka.answering:
            self._state.kafka.answering = True
            log.warning("event=kafka.answers outbox_records=%d", self._outbox.records)
            self.send_waiting()
