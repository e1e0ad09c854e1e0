"""Sends the outbox's rows to Kafka beside the live messages, through a sink of its own.

Invariants: a row is removed only once Kafka has confirmed it, or a newer record takes its place; none is at
the sink twice, here or live; one that waits for the clock is not sent, and is read once; late ones of a
parked topic are stored again by topic (``parked_rows``), so that they keep nothing else in the outbox.

Owned by the forwarder's thread, which takes from ``wake_s`` when to call ``turn`` next; times are monotonic.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from cloud.backoff import Backoff
from gateway.forwarding.drain_cursor import Drain, LateRows, SkippedRows, next_batch_s
from gateway.forwarding.ledger import Entry
from gateway.forwarding.outbox_writer import OutboxWriter
from gateway.forwarding.parked_rows import ParkedRows
from gateway.forwarding.record_codec import from_bytes
from gateway.forwarding.state import State
from gateway.ports import Record, Sink, Undelivered

log = logging.getLogger(__name__)

_RETRY_S: Final = 0.25
_FRUITLESS_PAUSE_S: Final = 10.0
# A pass that steps across rows that wait costs next to nothing, and among the others may be the only probe.
_PAUSE_BESIDE_HELD_S: Final = 1.0
_REMOVE_AGAIN_S: Final = 1.0
_LONGEST_REMOVE_PAUSE_S: Final = 60.0
_NEVER: Final = float("inf")


class SentRow(msgspec.Struct, frozen=True, gc=False):
    """A row at the sink. A struct, for there may be a hundred thousand a second."""

    number: int
    record: Record
    sent_s: float


class Backlog:
    """Fetches rows and sends them, late ones as replayed."""

    def __init__(self, state: State, sink: Sink[SentRow], outbox: OutboxWriter) -> None:
        self._state = state
        self._sink = sink
        self._outbox = outbox
        self._late = LateRows(state.pace.late_after_s)
        self._skipped = SkippedRows()
        self._parked = ParkedRows(state.kafka)
        self._drain = Drain()
        self._not_before_s = self._pass_began_s = self._batch_at_s = float("-inf")
        # A metered uplink's rows leave in a pass every ``batch_s``, on a grid that begins here.
        self._grid_s: float | None = None
        self._freed = 0
        # Since when there has always been a row at the sink.
        self._under_way_s = float("-inf")
        self._remove_backoff = Backoff(_REMOVE_AGAIN_S, _LONGEST_REMOVE_PAUSE_S)
        self._remove_again_s = float("-inf")
        self.moves = 0
        """Grows with every step: rows requested or read, outcomes taken, rows removed."""

    @property
    def idle(self) -> bool:
        """True when no row is under way."""
        return self._drain.idle

    @property
    def sendable(self) -> bool:
        """Whether there is a row that doesn't wait for the clock, as far as is known."""
        return self._outbox.records > 0 and not self._skipped.only

    @property
    def held(self) -> int:
        """How many rows wait for the clock, as far as is known."""
        return min(self._skipped.count, self._outbox.records)

    def wake_s(self) -> float:
        """When ``turn`` has something to do, infinity when only an event can change that."""
        fetch_s = max(self._not_before_s, self._batch_at_s) if self._wanted() else _NEVER
        return min(fetch_s, self._drain.remove_at_s)

    def turn(self, now_s: float) -> None:
        """Remove delivered rows that are due, and fetch more where it is time; none during a stop."""
        state = self._state
        self._late.tick(now_s)
        if self._sink.open:
            state.kafka.evaluate_rows(self._under_way_s, now_s)
        if self._freed != state.kafka.freed:
            # What waited for that topic need not wait the pause out: the process may be about to end. And the
            # pass under way has left the topic's oldest rows.
            self._freed, self._not_before_s = state.kafka.freed, float("-inf")
            self._drain.restart()
            self._parked.freed()
        if now_s >= self._drain.remove_at_s or state.stopping:
            self.remove(self._drain.take_delivered())
        self._fetch_more(now_s)

    def _fetch_more(self, now_s: float, coming: int = 0) -> None:
        if self._state.stopping or now_s < max(self._not_before_s, self._batch_at_s):
            return
        if not self._wanted(coming):
            return
        self.moves += 1
        if self._drain.at_start:
            self._pass_began_s = now_s
        self._outbox.fetch(self._begin(now_s))

    def _begin(self, now_s: float) -> int:
        """Where the next fetch begins: behind rows that wait for the clock, or for a parked topic."""
        begin = self._drain.begin()
        while True:
            behind_held = self._skipped.begin(begin)
            behind = self._parked.begin(behind_held, now_s)
            if behind > behind_held:
                self._skipped.other()
            if behind == begin:
                return begin
            begin = behind

    def stored(self, entries: Sequence[Entry], numbers: Sequence[int]) -> None:
        """New rows are in the outbox."""
        self._late.stored((entry.entered_s for entry in entries), numbers)
        for entry, number in zip(entries, numbers, strict=True):
            waits = self._state.hold.holds(entry.record)
            if self._skipped.only and not waits:
                # The pause was for want of any such row.
                self._not_before_s = float("-inf")
            self._skipped.stored(number, waits=waits)

    def released(self) -> None:
        """Rows that have waited for the clock may leave, the oldest first."""
        self._skipped.release()
        self._drain.restart()
        self._not_before_s = float("-inf")

    def fetched(self, rows: Sequence[tuple[int, bytes]], now_s: float) -> None:
        """Send the rows that were read, but for those under way, held, or for a parked topic."""
        self.moves += 1
        numbers = [number for number, _ in rows]
        self._skipped.fetched(numbers)
        if not rows:
            self._end_batch(now_s)
            self._parked.forget_found()
        if not self._drain.fetched(rows[-1][0] if rows else None):
            self._not_before_s = now_s + self._pause_s(now_s)
        under_way = self._drain.under_way_of(numbers) | self._state.ledger.held.intersection(numbers)
        news = [row for row in rows if row[0] not in under_way] if under_way else rows
        if len(news) < len(rows):
            self._skipped.other()
        if rows:
            # The writer reads the next ones while these are sent.
            self._fetch_more(now_s, len(news))
        for number, stored in news:
            self._take_row(number, stored, now_s)
        if batch := self._parked.take_batch():
            self._outbox.refile(batch)

    def _end_batch(self, now_s: float) -> None:
        """A pass has come to the newest row."""
        batch_s = self._state.pace.batch_s
        if batch_s is not None:
            self._grid_s = self._pass_began_s if self._grid_s is None else self._grid_s
            self._batch_at_s = next_batch_s(self._grid_s, batch_s, now_s)

    def refiled(self, before: Sequence[int], numbers: Mapping[str, Sequence[int]]) -> None:
        """Late rows of parked topics are in the outbox under other numbers."""
        self.moves += 1
        self._skipped.gone(before)
        for topic, those in numbers.items():
            self._parked.refiled(topic, those)

    def _take_row(self, number: int, stored: bytes, now_s: float) -> None:
        state = self._state
        try:
            record = from_bytes(stored)
        except ValueError as error:
            record = state.intake.records.damaged_row(stored, str(error))
        if state.hold.holds(record):
            self._skipped.held(number)
            return
        self._skipped.other()
        if state.compacted.is_stale(record):
            self._drain.delivered((number,), now_s)
        elif not state.kafka.may_send(record.topic, now_s):
            self._parked.found(number, record, refile=self._may_refile(number, record))
        else:
            record = state.hold.release(record)
            self._parked.sent(number)
            self._send(number, record.replayed() if number in self._late else record, now_s)

    def _may_refile(self, number: int, record: Record) -> bool:
        """Whether a row is to be stored again: not while what stands beside it in its block stays as well."""
        kafka = self._state.kafka
        wanted = number in self._late and record.topic in kafka.parked_topics
        return wanted and kafka.answering and not self._state.stopping

    def not_fetched(self, problem: str, now_s: float) -> None:
        """The rows could not be read: try again soon."""
        log.error("event=outbox.fetch_failed error=%s", problem)
        self._drain.failed()
        self._not_before_s = now_s + _RETRY_S

    def poll(self, now_s: float) -> Sequence[SentRow]:
        """Take the sink's outcomes; the rows that Kafka has confirmed."""
        outcomes = self._sink.poll()
        if not outcomes:
            return ()
        self.moves += 1
        delivered = [row for row, undelivered in outcomes if undelivered is None]
        numbers = [row.number for row in delivered]
        self._state.counters.drained += len(delivered)
        self._drain.delivered(numbers, now_s)
        for row, undelivered in outcomes:
            if undelivered is not None:
                self._not_delivered(row.number, row.record, undelivered, now_s)
        return delivered

    def _not_delivered(self, number: int, record: Record, undelivered: Undelivered, now_s: float) -> None:
        letter = (
            self._state.intake.records.refused(record, undelivered.problem)
            if undelivered.record_at_fault
            else None
        )
        if letter is not None:
            self._send(number, letter, now_s)
            return
        if undelivered.topic_at_fault or undelivered.record_at_fault:
            self._state.kafka.park(record.topic, now_s, undelivered.problem)
        self._drain.undelivered(number)
        self._not_before_s = now_s + _RETRY_S

    def not_removed(self, rows: tuple[int, ...], problem: str, now_s: float) -> None:
        """The disk refused to remove rows: try again, after a pause that grows."""
        if now_s > self._remove_again_s + _LONGEST_REMOVE_PAUSE_S:
            self._remove_backoff.reset()
        pause_s = self._remove_backoff.next()
        self._remove_again_s = now_s + pause_s
        self._drain.not_removed(rows, self._remove_again_s)
        level = logging.WARNING if pause_s == _REMOVE_AGAIN_S else logging.DEBUG
        log.log(level, "event=outbox.remove_failed rows=%d error=%s", len(rows), problem)

    def remove(self, rows: Iterable[int]) -> None:
        """Remove rows that Kafka has."""
        doomed = tuple(rows)
        if doomed:
            self.moves += 1
            self._drain.removed(doomed)
            self._skipped.gone(doomed)
            self._outbox.remove(doomed)

    def _pause_s(self, now_s: float) -> float:
        """How long to wait after a pass that found nothing to send."""
        kafka = self._state.kafka
        if self._skipped.count:
            return _PAUSE_BESIDE_HELD_S
        if not kafka.parked_topics:
            # There are rows, and they are not to be seen yet: a damaged file is being copied from.
            return _RETRY_S
        # A topic that could be tried during the whole pass has no row here.
        probe_s = kafka.next_probe_s(self._pass_began_s)
        return min(max(probe_s - now_s, _RETRY_S), _FRUITLESS_PAUSE_S)

    def _wanted(self, coming: int = 0) -> bool:
        """Whether there are rows to fetch; ``coming``: so many are about to be under way."""
        waiting = len(self._state.ledger.held) + self._drain.under_way + coming
        if not self._sink.usable or self._drain.busy or self._skipped.only:
            return False
        return self._outbox.records > waiting

    def _send(self, number: int, record: Record, now_s: float) -> None:
        if not self._sink.open:
            self._under_way_s = now_s
        self._drain.sent(number)
        if not self._sink.send(record, SentRow(number, record, now_s)):
            self._drain.undelivered(number)
            self._not_before_s = now_s + _RETRY_S
