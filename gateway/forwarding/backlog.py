"""Sends the outbox's rows to Kafka beside the live messages, through a sink of its own.

Owned by the forwarder's thread, which asks ``wake_s`` when to call ``turn`` next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from gateway.clock.hold import ClockHold
from gateway.forwarding.compacted_topics import CompactedTopics
from gateway.forwarding.drain_cursor import Drain
from gateway.forwarding.kafka_health import TopicBackoff
from gateway.forwarding.ledger import Entry, Ledger
from gateway.forwarding.outbox_writer import OutboxWriter
from gateway.forwarding.record_codec import from_bytes
from gateway.forwarding.skipped_rows import SkippedRows
from gateway.forwarding.spill import Batches
from gateway.mqtt.intake import Intake
from gateway.ports import Record, Sink, Undelivered
from gateway.system.backoff import Backoff

REPLAYED: Final = ("replayed", b"1")
_RETRY_S: Final = 0.25
_FRUITLESS_PAUSE_S: Final = 10.0
# A pass that steps across rows that wait costs next to nothing, and among the others may be the only probe.
_PAUSE_BESIDE_HELD_S: Final = 1.0
REMOVE_AGAIN_S: Final = 1.0
_LONGEST_REMOVE_PAUSE_S: Final = 60.0
_NEVER: Final = float("inf")


class RowOutcome(NamedTuple):
    """The sink told the outcome of a row. A tuple, for there may be tens of thousands a second."""

    number: int
    record: Record
    sent_s: float
    undelivered: Undelivered | None


@dataclass(frozen=True, slots=True)
class OutcomesWait:
    """The sink has told outcomes of rows: one event for all that come before they are taken."""


class Backlog:
    """Fetches rows when ``batches`` lets it and sends them, late ones marked as replayed.

    What Kafka has confirmed is removed.
    """

    def __init__(
        self,
        intake: Intake,
        sink: Sink,
        writer: OutboxWriter,
        ledger: Ledger,
        parking: TopicBackoff,
        report: Callable[[OutcomesWait], None],
        batches: Batches,
        holdback: ClockHold,
        revisions: CompactedTopics,
    ) -> None:
        self._intake = intake
        self._sink = sink
        self._writer = writer
        self._ledger = ledger
        self._parking = parking
        self._report = report
        self._batches = batches
        self._holdback = holdback
        self._revisions = revisions
        self._held = SkippedRows()
        self._drain = Drain()
        # Filled by the sink's thread; an event tells of the first one only.
        self._outcomes: deque[RowOutcome] = deque()
        self._outcomes_told = False
        self._not_before_s = float("-inf")
        self._freed = 0
        self._remove_backoff = Backoff(REMOVE_AGAIN_S, _LONGEST_REMOVE_PAUSE_S)
        self._remove_again_s = float("-inf")
        self.drained = 0
        self.dead_letters = 0
        self.moves = 0
        """Grows with every step: rows asked for or read, outcomes taken, rows removed."""

    @property
    def idle(self) -> bool:
        """True when no row is under way."""
        return self._drain.idle

    @property
    def sendable(self) -> bool:
        """Whether there is a row that doesn't wait for the clock, as far as is known."""
        return self._writer.records > 0 and not self._held.only

    @property
    def held(self) -> int:
        """How many rows wait for the clock, as far as is known."""
        return min(self._held.count, self._writer.records)

    def wake_s(self) -> float:
        """When ``turn`` has something to do (monotonic), infinity when only an event can change that."""
        fetch_s = max(self._not_before_s, self._batches.wake_s()) if self._wanted() else _NEVER
        return min(fetch_s, self._drain.remove_at_s())

    def turn(self, now_s: float, *, fetch: bool, last_ones_after: int | None = None) -> None:
        """Remove delivered rows that are due, and fetch more where ``fetch`` allows.

        ``last_ones_after``: those after this number are to go now, and no others.
        """
        self._batches.tick(now_s)
        if self._freed != self._parking.freed:
            # What waited for that topic need not wait the pause out: the process may be about to end.
            self._freed, self._not_before_s = self._parking.freed, float("-inf")
        if now_s >= self._drain.remove_at_s() or not fetch:
            self.remove(self._drain.take_delivered(now_s if fetch else _NEVER))
        if last_ones_after is not None:
            if self._wanted() and now_s >= self._not_before_s:
                self.moves += 1
                self._writer.fetch(self._held.begin(self._drain.begin(last_ones_after)))
        elif fetch and self._wanted() and now_s >= max(self._not_before_s, self._batches.wake_s()):
            self.moves += 1
            self._writer.fetch(self._held.begin(self._drain.begin()))

    def stored(self, entries: Sequence[Entry], numbers: Sequence[int]) -> None:
        """New rows are in the outbox."""
        self._batches.stored(numbers)
        for entry, number in zip(entries, numbers, strict=True):
            waits = self._holdback.holds(entry.record)
            if self._held.only and not waits:
                # The pause was for want of any such row.
                self._not_before_s = float("-inf")
            self._held.stored(number, waits=waits)

    def released(self) -> None:
        """Rows that have waited for the clock may leave, the oldest first."""
        self._held.release()
        self._drain.restart()
        self._not_before_s = float("-inf")

    def fetched(self, rows: Sequence[tuple[int, bytes]], now_s: float, *, anew: bool = False) -> None:
        """Send the rows that were read, but for those under way, held, or for a parked topic.

        With ``anew`` there may be rows where there were none: nothing is passed over the next time.
        """
        self.moves += 1
        self._held.fetched([number for number, _ in rows])
        if anew:
            self._held.release()
        if not rows:
            self._batches.end()
        if not self._drain.fetched(rows[-1][0] if rows else None):
            self._not_before_s = now_s + self._pause_s(now_s)
        for number, stored in rows:
            if self._drain.is_under_way(number) or self._ledger.is_held(number):
                self._held.other()
                continue
            try:
                record = from_bytes(stored)
            except ValueError as error:
                self.dead_letters += 1
                record = self._intake.refuse_row(stored, str(error)).record
            if self._holdback.holds(record):
                self._held.held(number)
                continue
            self._held.other()
            if self._revisions.is_stale(record):
                self._drain.delivered((number,), now_s)
                continue
            if self._parking.may_send(record.topic, now_s):
                record = self._holdback.release(record)
                if self._batches.is_late(number):
                    record = Record(record.topic, record.key, record.value, (*record.headers, REPLAYED))
                self._send(number, record, now_s)

    def not_fetched(self, now_s: float) -> None:
        """The rows could not be read: try again soon."""
        self._drain.failed()
        self._not_before_s = now_s + _RETRY_S

    def take_outcomes(self, now_s: float) -> list[RowOutcome]:
        """Take what the sink has told of rows; those that Kafka has confirmed are given back."""
        # First: an outcome that comes from now on is told again, at worst in vain.
        self._outcomes_told = False
        self.moves += 1
        outcomes = [self._outcomes.popleft() for _ in range(len(self._outcomes))]
        delivered = [outcome for outcome in outcomes if outcome.undelivered is None]
        self.drained += len(delivered)
        self._drain.delivered([outcome.number for outcome in delivered], now_s)
        for outcome in outcomes:
            if outcome.undelivered is not None:
                self._not_delivered(outcome, outcome.undelivered, now_s)
        return delivered

    def _not_delivered(self, outcome: RowOutcome, undelivered: Undelivered, now_s: float) -> None:
        record = outcome.record
        if undelivered.record_at_fault and (refusal := self._intake.refuse(record, undelivered.problem)):
            self.dead_letters += 1
            self._send(outcome.number, refusal.record, now_s)
            return
        if undelivered.topic_at_fault or undelivered.record_at_fault:
            self._parking.park(record.topic, now_s, undelivered.problem)
        self._drain.undelivered(outcome.number)
        self._not_before_s = now_s + _RETRY_S

    def not_removed(self, rows: tuple[int, ...], now_s: float) -> float:
        """The disk refused to forget rows; how long until it is asked again, longer each time."""
        if now_s > self._remove_again_s + _LONGEST_REMOVE_PAUSE_S:
            self._remove_backoff.reset()
        pause_s = self._remove_backoff.next()
        self._remove_again_s = now_s + pause_s
        self._drain.not_removed(rows, self._remove_again_s)
        return pause_s

    def remove(self, rows: Iterable[int]) -> None:
        """Forget rows that Kafka has."""
        doomed = tuple(rows)
        if doomed:
            self.moves += 1
            self._drain.removed(doomed)
            self._held.gone(doomed)
            self._writer.remove(doomed)

    def _pause_s(self, now_s: float) -> float:
        """How long to wait after a pass that found nothing to send."""
        if self._held.count:
            return _PAUSE_BESIDE_HELD_S
        if not self._parking.topics:
            # There are rows, and they are not to be seen yet: a damaged file is being copied from.
            return _RETRY_S
        return min(max(self._parking.again_s() - now_s, _RETRY_S), _FRUITLESS_PAUSE_S)

    def _wanted(self) -> bool:
        stored = self._writer.records
        waiting = self._ledger.held + self._drain.under_way
        return not self._drain.busy and stored > waiting and not self._held.only

    def _send(self, number: int, record: Record, now_s: float) -> None:
        self._drain.sent(number)

        def told(undelivered: Undelivered | None) -> None:
            self._outcomes.append(RowOutcome(number, record, now_s, undelivered))
            if not self._outcomes_told:
                self._outcomes_told = True
                self._report(OutcomesWait())

        taken = self._sink.send(record, told)
        if not taken:
            self._drain.undelivered(number)
            self._not_before_s = now_s + _RETRY_S
