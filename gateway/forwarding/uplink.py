"""Each entry's way to Kafka while that answers, to the outbox while it doesn't, and back.

    healthy ── a report is overdue ──> spilling ── a prompt report, live or of the outbox ──> healthy

Invariants: what Kafka has not confirmed within half the commit interval is stored; what is stored in any case
(an outage, a metered uplink, a clock that isn't synchronised) within nine tenths, with one commit for all of
it; one commit at a time. What the disk refuses is tried again each second, and goes to Kafka instead while
that answers.

Owned by the forwarder's thread; times are monotonic. The outbox has a way of its own (``backlog.py``).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Final

from gateway.forwarding.backlog import SentRow
from gateway.forwarding.ledger import PACK_ENTRIES, Entry
from gateway.forwarding.outbox_writer import OutboxWriter
from gateway.forwarding.state import State
from gateway.ports import Record, Sink, Undelivered

log = logging.getLogger(__name__)

_NEVER: Final = float("-inf")
_RETRY_STORE_S: Final = 1.0
_TRY_EVERY_S: Final = 20.0
_RECHECK_S: Final = 1.0
# Of what waits, so much at the sink at once: it is in its memory, too.
_MOST_OPEN: Final = 2 * PACK_ENTRIES


class Uplink:
    """Entries to the sink and their outcomes; those that are overdue to the outbox's writer."""

    def __init__(self, state: State, sink: Sink[Entry], outbox: OutboxWriter) -> None:
        self._state = state
        self._sink = sink
        self._outbox = outbox
        self._try_at_s = self._batch_at_s = self._store_at_s = _NEVER
        # Whether something has come or gone since the last look at what rests.
        self._moved = False
        self._freed = 0

    def wake_s(self, now_s: float) -> float:
        """When ``turn`` has something to store, infinity when only an event can change that."""
        ledger = self._state.ledger
        oldest = ledger.oldest_unstored()
        if oldest is None or (ledger.storing and not self._state.stopping):
            return float("inf")
        return max(oldest.entered_s + now_s - self._entered_before_s(now_s), self._store_at_s)

    def turn(self, now_s: float, *, backlog: bool) -> None:
        """Store what is due, or send it after all; ``backlog``: rows of the outbox are on their way."""
        self._state.kafka.evaluate(now_s)
        if self._state.ledger.refused:
            self._repack(now_s)
        self._store(now_s)
        if not self._state.kafka.answering:
            self._try_again(now_s, backlog=backlog)

    def hurry(self) -> None:
        """The process ends soon: try at once."""
        self._try_at_s = self._batch_at_s = _NEVER

    # To Kafka.

    def send(self, entry: Entry, now_s: float) -> None:
        """Hand an entry to the sink, where it waits and may go: Kafka answers, its time is known."""
        state = self._state
        if not (state.kafka.answering and entry.live and entry.waiting):
            return
        if state.hold.holds(entry.record):
            return
        if not state.kafka.may_send(entry.record.topic, now_s):
            return
        if entry.refused and state.compacted.is_stale(entry.record):
            state.ledger.delivered(entry)
            return
        released = state.hold.release(entry.record)
        if now_s - entry.entered_s > state.pace.late_after_s:
            # A disk that hangs or refuses has kept it here.
            released = released.replayed()
        if released is not entry.record:
            state.ledger.replace(entry, released)
        entry.at_sink, entry.sent_s = True, now_s
        if not self._sink.send(entry.record, entry):
            state.ledger.undelivered(entry)
            if not self._sink.usable:
                state.kafka.silent()
        elif state.pace.metered:
            # Stored soon, as everything is: nothing overdue would ever have Kafka judged.
            state.kafka.watch(entry)

    def send_waiting(self, now_s: float) -> None:
        """What was not stored goes to Kafka after all, but for echoes that are still to come.

        Over a metered link with the next batch, unless memory holds more than that.
        """
        state = self._state
        if not state.kafka.answering:
            return
        if state.pace.batch_s is not None and not state.ledger.packs.records:
            if now_s < self._batch_at_s:
                return
            self._batch_at_s = now_s + state.pace.batch_s
        for entry in state.ledger.waiting():
            if self._sink.open >= _MOST_OPEN:
                return
            if not entry.own or entry.acks or entry.entered_s < self._entered_before_s(now_s):
                self.send(entry, now_s)

    def poll(self, now_s: float) -> bool:
        """Take the sink's outcomes; whether there were any."""
        outcomes = self._sink.poll()
        self._moved = self._moved or bool(outcomes)
        delivered = [entry for entry, undelivered in outcomes if undelivered is None]
        self._state.counters.confirmed += len(delivered)
        self.confirmed(delivered, now_s)
        for entry in delivered:
            self._state.ledger.delivered(entry)
        if delivered and self._state.ledger.refused:
            self.send_waiting(now_s)
        for entry, undelivered in outcomes if len(delivered) < len(outcomes) else ():
            if undelivered is not None:
                self._undelivered(entry, undelivered, now_s)
        return bool(outcomes)

    def _undelivered(self, entry: Entry, undelivered: Undelivered, now_s: float) -> None:
        state = self._state
        state.ledger.undelivered(entry)
        if undelivered.record_at_fault and entry.waiting:
            letter = state.intake.records.refused(entry.record, undelivered.problem)
            if letter is not None:
                state.counters.dead_letters += 1
                state.ledger.replace(entry, letter)
                self.send(entry, now_s)
                return
        if undelivered.record_at_fault or undelivered.topic_at_fault:
            state.kafka.park(entry.record.topic, now_s, undelivered.problem)
        else:
            log.debug("event=kafka.undelivered error=%s", undelivered.problem)

    def confirmed(self, sent: Iterable[Entry | SentRow], now_s: float) -> None:
        """Kafka has records, live or of the outbox: it answers, where that was prompt."""
        state = self._state
        newest_s: dict[str, float] = {}
        for each in sent:
            record = each.record
            newest_s[record.topic] = max(each.sent_s, newest_s.get(record.topic, 0.0))
            if state.intake.records.is_own(record):
                # Other keys have no bound: those of raw messages are MQTT topics.
                state.counters.delivered[record.key] += 1
            overtaken = state.compacted.delivered(record)
            if overtaken is not None:
                self.send(state.ledger.enter(overtaken, now_s, own=False), now_s)
        for topic, sent_s in newest_s.items():
            # A late report may be all there is where the outbox has no row to be the probe.
            if state.kafka.confirmed(topic, sent_s, now_s) or self._disk_refuses(now_s):
                self._go_live(now_s)

    def _try_again(self, now_s: float, *, backlog: bool) -> None:
        """Without a ``backlog`` there is no probe: what waits, or comes next, may go live and be it.

        That is so when nothing is left to send but what waits for the clock, and when the disk refuses. Not
        too often: over a slow link every report is late, and each try would be stored as well.
        """
        state = self._state
        refuses = self._disk_refuses(now_s) or self._outbox.problem is not None
        if now_s < self._try_at_s or (backlog and not refuses):
            return
        if len(state.ledger) and not (refuses or state.hold.active):
            return
        if refuses or all(map(state.hold.holds, state.ledger.records())):
            self._try_at_s = now_s + _TRY_EVERY_S
            self._go_live(now_s)
        else:
            self._try_at_s = now_s + _RECHECK_S

    def _go_live(self, now_s: float) -> None:
        if not self._state.kafka.answering:
            self._state.kafka.answering = True
            log.warning("event=kafka.answers outbox_records=%d", self._outbox.records)
            self.send_waiting(now_s)

    # To the outbox.

    def stored(self, entries: Sequence[Entry], numbers: Sequence[int]) -> None:
        """The disk has entries."""
        self._moved = True
        self._state.ledger.stored(entries, numbers)

    def not_stored(self, entries: Sequence[Entry], now_s: float) -> None:
        """The disk has refused entries."""
        self._moved, self._store_at_s = True, now_s + _RETRY_STORE_S
        self._state.ledger.not_stored(entries)
        self.send_waiting(now_s)

    def released(self, now_s: float) -> None:
        """What has waited for the clock may leave."""
        self._moved = True
        self._state.ledger.packs.release()
        self.send_waiting(now_s)

    def _store(self, now_s: float) -> None:
        """Store what is overdue, and with it whatever would be soon; everything during a stop."""
        state, ledger = self._state, self._state.ledger
        oldest, before_s, stopping = ledger.oldest_unstored(), self._entered_before_s(now_s), state.stopping
        if oldest is None or self._disk_refuses(now_s) or not (stopping or oldest.entered_s <= before_s):
            return
        if oldest.at_sink and not stopping:
            state.kafka.watch(oldest)
            state.kafka.evaluate(now_s)
        if ledger.storing and not stopping:
            # One commit at a time, and what is overdue by then goes with the next: behind a slow card commits
            # would queue up, and each reading wait for all those before it.
            return
        # Once one is overdue because of Kafka, the others would be too: one commit for all of them.
        everything = stopping or not state.kafka.answering or state.pace.metered or state.hold.active
        # What is for a parked topic is overdue sooner or later: with this commit, not with one of its own.
        full = ledger.nearly_full
        again = full or stopping or self._outbox.may_try
        taken = ledger.take_for_storing(
            now_s if everything else before_s, state.kafka.parked_topics, again=again
        )
        self._store_at_s = now_s + _RETRY_STORE_S if not taken else self._store_at_s
        for entry in taken:
            if entry.refused and now_s - entry.entered_s > state.pace.late_after_s:
                # It comes behind newer rows, so its number won't tell.
                ledger.replace(entry, entry.record.replayed())
        if taken:
            self._outbox.store(taken, drop_oldest=full)

    def _repack(self, now_s: float) -> None:
        """Let packs take part again, a few at a time, and pack what rests, where something has moved."""
        ledger, kafka, hold = self._state.ledger, self._state.kafka, self._state.hold
        in_place = ledger.nearly_full and self._outbox.is_full
        to_disk = (self._outbox.problem is None or in_place) and not self._disk_refuses(now_s)
        if self._freed != kafka.freed:
            self._freed, self._moved = kafka.freed, True
            ledger.packs.release()
        if not (self._moved or (to_disk and ledger.packs.records)):
            return

        def waits(record: Record) -> bool:
            return record.topic in kafka.parked_topics or hold.holds(record)

        self._moved = ledger.repack(waits, to_kafka=kafka.answering, to_disk=to_disk)
        if self._moved:
            self.send_waiting(now_s)

    def _disk_refuses(self, now_s: float) -> bool:
        """Whether the disk is not to be tried yet."""
        return now_s < self._store_at_s

    def _entered_before_s(self, now_s: float) -> float:
        """Entries that entered before this moment must be on their way to the disk now."""
        return now_s - self._state.pace.store_after_s(answering=self._state.kafka.answering)
