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
import math
from collections.abc import Iterable, Sequence
from typing import Final

from cloud.wire.channel_records import CHANNELS_TOPIC
from cloud.wire.reading_records import RUNS_TOPIC, STATUS_TOPIC
from cloud.wire.site_records import SITES_TOPIC
from gateway.forwarding.backlog import SentRow
from gateway.forwarding.ledger import Entry
from gateway.forwarding.outbox_writer import OutboxWriter
from gateway.forwarding.state import State
from gateway.ports import Record, Sink, Undelivered

log = logging.getLogger(__name__)

_NEVER: Final = float("-inf")
_RETRY_STORE_S: Final = 1.0
_TRY_EVERY_S: Final = 20.0
_RECHECK_S: Final = 1.0
# What each start sends is sent again: a Kafka that was away for so long may be another one, and empty.
_SENT_AT_START: Final = frozenset({CHANNELS_TOPIC, SITES_TOPIC, STATUS_TOPIC})
_COMPACTED: Final = _SENT_AT_START | {RUNS_TOPIC}
_REBUILT_S: Final = 10.0
_SEND_AGAIN_S: Final = 600.0
_SEND_AGAIN_AT_LEAST_S: Final = 86_400.0
# Of what waits, so much at the sink at once: it is in its memory, too.
_MOST_OPEN: Final = 1_000


class Uplink:
    """Entries to the sink and their outcomes; those that are overdue to the outbox's writer."""

    def __init__(self, state: State, sink: Sink[Entry], outbox: OutboxWriter) -> None:
        self._state = state
        self._sink = sink
        self._outbox = outbox
        self._try_at_s = self._batch_at_s = self._store_at_s = _NEVER
        self._freed = 0
        self._silent_s = math.inf
        # This process's newest record of each key of compacted topics.
        self._newest: dict[tuple[str, bytes], Record] = {}
        self._sent_again_s = _NEVER
        self._send_again_at_s = state.monotonic() + _SEND_AGAIN_AT_LEAST_S

    def wake_s(self, now_s: float) -> float:
        """When ``turn`` has something to store, infinity when only an event can change that."""
        ledger = self._state.ledger
        oldest = ledger.oldest_unstored()
        if oldest is None or self._waits_for_commit(oldest):
            return float("inf")
        return max(oldest.entered_s + now_s - self._entered_before_s(now_s), self._store_at_s)

    def turn(self, now_s: float, *, backlog: bool) -> None:
        """Store what is due, or send it after all; ``backlog``: rows of the outbox are on their way."""
        self._state.kafka.evaluate(now_s)
        if self._freed != self._state.kafka.freed:
            self._freed = self._state.kafka.freed
            self.send_waiting(now_s)
        self._store(now_s)
        if not self._state.kafka.answering:
            self._silent_s = min(self._silent_s, now_s)
            self._try_again(now_s, backlog=backlog)
        elif now_s >= self._send_again_at_s:
            self._sent_again_s, self._send_again_at_s = now_s, now_s + _SEND_AGAIN_AT_LEAST_S
            for record in self._newest.values():
                if record.topic in _SENT_AT_START:
                    self._enter(record, now_s)

    def hurry(self) -> None:
        """The process ends soon: try at once."""
        self._try_at_s = self._batch_at_s = _NEVER

    def announce(self, record: Record, now_s: float) -> None:
        """Enter a record of the gateway itself and hand it to the sink."""
        if record.topic in _COMPACTED:
            self._newest[record.topic, record.key] = record
        self._enter(record, now_s)

    def drained(self, rows: Sequence[SentRow], now_s: float) -> None:
        """Kafka has rows of the outbox. It keeps the last record of a key, so a newer one is sent again."""
        self.confirmed(rows, now_s)
        last = {
            (row.record.topic, row.record.key): row.record for row in rows if row.record.topic in _COMPACTED
        }
        for place, record in last.items():
            newest = self._newest.get(place)
            if newest is not None and newest.value != record.value:
                self._enter(newest, now_s)

    def _enter(self, record: Record, now_s: float) -> None:
        self.send(self._state.ledger.enter(record, now_s, own=False), now_s)

    def send(self, entry: Entry, now_s: float) -> None:
        """Hand an entry to the sink, where it waits and may go: Kafka answers, its time is known."""
        state = self._state
        if not (state.kafka.answering and entry.live and entry.waiting):
            return
        if state.hold.active and state.hold.holds(entry.record):
            return
        if not state.kafka.may_send(entry.record.topic, now_s):
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

        Over a metered link with the next batch.
        """
        state = self._state
        if not state.kafka.answering:
            return
        if state.pace.metered and now_s < self._batch_at_s:
            return
        for entry in state.ledger.waiting():
            if self._sink.open >= _MOST_OPEN:
                return
            if not entry.own or entry.acks or entry.entered_s < self._entered_before_s(now_s):
                self.send(entry, now_s)
        self._batch_at_s = now_s + (state.pace.batch_s or 0.0)

    def poll(self, now_s: float) -> bool:
        """Take the sink's outcomes; whether there were any."""
        outcomes = self._sink.poll()
        if not outcomes:
            return False
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
        return True

    def _undelivered(self, entry: Entry, undelivered: Undelivered, now_s: float) -> None:
        state = self._state
        state.ledger.undelivered(entry)
        if undelivered.record_at_fault and entry.waiting:
            dead_letter = state.intake.records.refused(entry.record, undelivered.problem)
            if dead_letter is not None:
                state.counters.dead_letters += 1
                state.ledger.replace(entry, dead_letter)
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
        for topic, sent_s in newest_s.items():
            # A late report may be all there is where the outbox has no row to be the probe.
            prompt = state.kafka.confirmed(topic, sent_s, now_s)
            if not state.kafka.answering and (prompt or self._disk_refuses(now_s)):
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
        """Kafka answers again, or is to be tried by what waits."""
        self._state.kafka.answering = True
        log.warning("event=kafka.answers outbox_records=%d", self._outbox.records)
        if now_s >= self._silent_s + _REBUILT_S:
            due_s = max(now_s, self._sent_again_s + _SEND_AGAIN_S)
            self._send_again_at_s = min(self._send_again_at_s, due_s)
        self._silent_s = math.inf
        self.send_waiting(now_s)

    def not_stored(self, entries: Sequence[Entry], now_s: float) -> None:
        """The disk has refused entries."""
        self._store_at_s = now_s + _RETRY_STORE_S
        self._state.ledger.not_stored(entries)
        self.send_waiting(now_s)

    def _store(self, now_s: float) -> None:
        """Store what is overdue, and with it whatever would be soon; everything during a stop."""
        state, ledger = self._state, self._state.ledger
        oldest, stopping = ledger.oldest_unstored(), state.stopping
        if oldest is None or self._disk_refuses(now_s):
            return
        before_s = self._entered_before_s(now_s)
        if not (stopping or oldest.entered_s <= before_s):
            return
        if oldest.at_sink and not stopping:
            state.kafka.watch(oldest)
            state.kafka.evaluate(now_s)
        if self._waits_for_commit(oldest):
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

    def _waits_for_commit(self, oldest: Entry) -> bool:
        """True while a commit is under way: what is overdue by then goes with the next.

        Behind a slow card commits would queue up, and each reading wait for all those before it. What is new
        is stored at once by a stop.
        """
        return self._state.ledger.storing and (oldest.refused or not self._state.stopping)

    def _disk_refuses(self, now_s: float) -> bool:
        """Whether the disk is not to be tried yet."""
        return now_s < self._store_at_s

    def _entered_before_s(self, now_s: float) -> float:
        """Entries that entered before this moment must be on their way to the disk now."""
        return now_s - self._state.pace.store_after_s(answering=self._state.kafka.answering)
