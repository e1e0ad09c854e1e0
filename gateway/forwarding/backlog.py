"""Sends the outbox's rows to Kafka beside the live messages, through a sink of its own.

Invariants: a row is removed only once Kafka has confirmed it; what could not be delivered stays and is
fetched again; none is at the sink twice, here or live; one that waits for the clock is not sent, and is read
once; one of a parked topic stays where it is, and is read again when a probe is due or the topic takes
records.

Owned by the forwarder's thread, which takes from ``wake_s`` when to call ``turn`` next; times are monotonic.
"""

from __future__ import annotations

import logging
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from cloud.backoff import Backoff
from cloud.wire.number_set import NumberSet
from gateway.forwarding.ledger import Entry
from gateway.forwarding.outbox_writer import BATCH_RECORDS, OutboxWriter
from gateway.forwarding.records import from_bytes
from gateway.forwarding.state import State
from gateway.ports import Record, Sink, Undelivered

# Several batches at the sink, so that none waits for the one before it; after a kill they are sent again.
MOST_OPEN: Final = 4 * BATCH_RECORDS
# Deleting costs a commit: often enough to give space back, seldom enough to spare the card.
_REMOVE_EVERY_S: Final = 0.2
# Where rows that wait and others take turns a hundred thousand times, the rest is read again at each pass.
MOST_GAPS: Final = 100_000
# Rows whose messages came within a second are late together.
_LATE_APART_S: Final = 1.0
_NEVER: Final = float("inf")
_NO_ROW: Final = 1 << 63


class Drain:
    """The rows under way, and where the next fetch begins."""

    def __init__(self) -> None:
        self._after = 0
        # The oldest row given up since the fetch began, less one.
        self._back = _NO_ROW
        self._fetching = False
        self._again = False
        self._fruitless = True
        self._open: set[int] = set()
        # Delivered rows, and when they are removed.
        self._delivered: set[int] = set()
        self.remove_at_s = _NEVER
        self._removed_since_fetch: set[int] = set()

    @property
    def busy(self) -> bool:
        """True while rows are being fetched, or enough of them are at the sink."""
        return self._fetching or len(self._open) >= MOST_OPEN

    @property
    def at_start(self) -> bool:
        """Whether the next fetch begins a pass."""
        return not self._after

    @property
    def idle(self) -> bool:
        """True when no row is under way."""
        return not self._fetching and not self.under_way

    @property
    def under_way(self) -> int:
        """How many rows are at the sink or wait for their removal."""
        return len(self._open) + len(self._delivered)

    def begin(self) -> int:
        """Start a fetch; the rows after the number it gives are wanted."""
        self._fetching, self._back = True, _NO_ROW
        self._removed_since_fetch.clear()
        return self._after

    def fetched(self, last: int | None) -> bool:
        """Rows were read up to ``last``; None means the end, and the next fetch starts over.

        False when a whole pass over the outbox found nothing to send: there is no hurry then.
        """
        self._fetching = False
        if self._again:
            self._again, self._after = False, 0
            return True
        if last is not None:
            self._after = min(last, self._back)
            return True
        fruitful, self._fruitless, self._after = not self._fruitless, True, 0
        return fruitful

    def restart(self) -> None:
        """The oldest rows are wanted again, whatever the fetch under way brings."""
        self._again, self._after = self._fetching, 0

    def failed(self) -> None:
        """The rows could not be read this time."""
        self._fetching = False

    def under_way_of(self, numbers: Iterable[int]) -> set[int]:
        """Those of fetched rows that are at the sink, or delivered, or removed since the fetch began."""
        known = (self._open, self._delivered, self._removed_since_fetch)
        return set[int]().union(*(each.intersection(numbers) for each in known))

    def sent(self, number: int) -> None:
        """The sink has taken a row."""
        self._open.add(number)
        self._fruitless = False

    def undelivered(self, number: int) -> None:
        """The sink has given a row up: it is fetched again, before anything newer."""
        self._open.discard(number)
        self._back = min(self._back, number - 1)
        self._after = min(self._after, self._back)

    def delivered(self, numbers: Sequence[int], now_s: float) -> None:
        """Kafka has confirmed rows: they are removed with those before them."""
        self._open.difference_update(numbers)
        self._delivered.update(numbers)
        if numbers and self.remove_at_s == _NEVER:
            self.remove_at_s = now_s + _REMOVE_EVERY_S

    def take_delivered(self) -> tuple[int, ...]:
        """The rows to remove now."""
        rows, self._delivered, self.remove_at_s = self._delivered, set(), _NEVER
        return tuple(sorted(rows))

    def not_removed(self, rows: Sequence[int], again_s: float) -> None:
        """Delivered rows are still there: they are never sent again, only their removal is due."""
        self._delivered.update(rows)
        self.remove_at_s = again_s

    def removed(self, rows: Sequence[int]) -> None:
        """These rows are being removed: a fetch under way may still bring them."""
        self._removed_since_fetch.update(rows)


class SkippedRows:
    """The numbers that a fetch may pass over, for their rows wait for the clock, or are not there.

    Days without network mean days without time: millions of rows that wait. Each is read once, when it is
    stored or at the first pass after a start; from then on a pass over the outbox steps across it. Numbers
    are never used again, so a number that is not there is passed over as well.
    """

    def __init__(self) -> None:
        self._numbers = NumberSet()
        self._others_seen = False
        self._after = 0
        self.only = False
        """True while the outbox holds nothing but rows that wait, as a whole pass has shown."""
        self.count = 0
        """How many rows wait, of those read; some may have been dropped since."""

    def begin(self, after: int) -> int:
        """Where a fetch that is to bring the rows after a number may begin: so many later."""
        self._after = self._numbers.end_of(after + 1)
        return self._after

    def fetched(self, numbers: Sequence[int]) -> None:
        """The fetch brought rows of these numbers: between them there are none. None at all ends the pass."""
        before = self._after
        for number in numbers:
            if number != before + 1:
                self._pass_over(before + 1, number - 1)
            before = number
        if not numbers:
            # A pass that found nothing at all proves nothing.
            self.only, self._others_seen = self.count > 0 and not self._others_seen, False

    def held(self, number: int) -> None:
        """The row waits."""
        self.count += self._pass_over(number, number)

    def other(self) -> None:
        """A row was fetched that doesn't wait."""
        self._others_seen = True
        self.only = False

    def stored(self, number: int, *, waits: bool) -> None:
        """A row is new in the outbox."""
        if waits:
            self.held(number)
        else:
            self.other()

    def gone(self, numbers: Sequence[int]) -> None:
        """Rows have left the outbox; in any order, but quickest in order."""
        first = last = 0
        for number in numbers:
            if number != last + 1:
                self._pass_over(first, last)
                first = number
            last = number
        self._pass_over(first, last)

    def release(self) -> None:
        """No row waits any longer, as far as is known."""
        self._numbers = NumberSet()
        self._others_seen, self.only, self.count = True, False, 0

    def _pass_over(self, first: int, last: int) -> bool:
        """Add a stretch of numbers; False where it is empty or known already."""
        if first > last or self._numbers.end_of(first) >= last:
            return False
        if self._numbers.gaps >= MOST_GAPS and not self._numbers.overlaps(first - 1, last + 1):
            return False
        self._numbers.add(first, last)
        return True


class LateRows:
    """Which rows are late: sampled or received over ``after_s`` ago, or stored by an earlier run.

    Remembered are the rows that aren't yet, and one number for each second in which messages came: their
    memory is bounded by ``after_s``.
    """

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s
        self._fresh = NumberSet()
        self._seconds: deque[tuple[float, int]] = deque()

    def stored(self, entered_s: Iterable[float], numbers: Sequence[int]) -> None:
        """Rows were stored under these numbers, one after the other, whose messages came at these moments."""
        for came_s, number in zip(entered_s, numbers, strict=True):
            if self._seconds and came_s < self._seconds[-1][0] + _LATE_APART_S:
                came_s = self._seconds.pop()[0]
            self._seconds.append((came_s, number))
        if numbers:
            self._fresh.add(numbers[0], numbers[-1])

    def tick(self, now_s: float) -> None:
        """Time goes on."""
        up_to = 0
        while self._seconds and now_s - self._seconds[0][0] > self._after_s:
            up_to = self._seconds.popleft()[1]
        if up_to:
            self._fresh = self._fresh.without(NumberSet([(1, up_to)]))

    def __contains__(self, number: int) -> bool:
        return number not in self._fresh


def next_batch_s(first_s: float, batch_s: float, now_s: float) -> float:
    """When the batch after this moment begins: on a grid, so that a slow one delays none that follows."""
    return first_s + (1 + (now_s - first_s) // batch_s) * batch_s


log = logging.getLogger(__name__)

_RETRY_S: Final = 0.25
_IDLE_POLL_S: Final = 1.0
_FRUITLESS_PAUSE_S: Final = 10.0
# A pass that steps across rows that wait costs next to nothing, and among the others may be the only probe.
_PAUSE_BESIDE_HELD_S: Final = 1.0
_REMOVE_AGAIN_S: Final = 1.0
_LONGEST_REMOVE_PAUSE_S: Final = 60.0


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
        # Rows of parked topics that have been read: a pass steps across them.
        self._parked: defaultdict[str, NumberSet] = defaultdict(NumberSet)
        self._drain = Drain()
        self._not_before_s = self._pass_began_s = self._batch_at_s = float("-inf")
        # A metered uplink's rows leave in a pass every ``batch_s``, on a grid that begins here.
        self._grid_s: float | None = None
        self._freed = 0
        # Rows under way as dead letters: counted once Kafka has them, for they may be read again.
        self._dead_letters: set[int] = set()
        # Since when there has always been a row at the sink.
        self._under_way_s = float("-inf")
        self._remove_backoff = Backoff(_REMOVE_AGAIN_S, _LONGEST_REMOVE_PAUSE_S)
        self._remove_again_s = self._idle_poll_at_s = float("-inf")
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
        if not self._outbox.records or not self._wanted():
            return self._drain.remove_at_s
        return min(max(self._not_before_s, self._batch_at_s), self._drain.remove_at_s)

    def turn(self, now_s: float) -> None:
        """Remove delivered rows that are due, and fetch more where it is time; none during a stop."""
        state = self._state
        if self._sink.open:
            state.kafka.evaluate_rows(self._under_way_s, now_s)
        if self._freed != state.kafka.freed:
            # What waited for that topic need not wait the pause out: the process may be about to end. And the
            # pass under way has left the topic's oldest rows.
            self._freed, self._not_before_s = state.kafka.freed, float("-inf")
            self._drain.restart()
            for topic in self._parked.keys() - set(state.kafka.parked_topics):
                del self._parked[topic]
        if now_s >= self._drain.remove_at_s or state.stopping:
            self.remove(self._drain.take_delivered())
        if self._outbox.records:
            self._late.tick(now_s)
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
            behind = behind_held
            for topic, numbers in self._parked.items():
                if not self._state.kafka.due(topic, now_s):
                    behind = numbers.end_of(behind + 1)
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

    def _end_batch(self, now_s: float) -> None:
        """A pass has come to the newest row."""
        batch_s = self._state.pace.batch_s
        if batch_s is not None:
            self._grid_s = self._pass_began_s if self._grid_s is None else self._grid_s
            self._batch_at_s = next_batch_s(self._grid_s, batch_s, now_s)

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
        if not state.kafka.may_send(record.topic, now_s):
            parked = self._parked[record.topic]
            if parked.gaps < MOST_GAPS:
                parked.add(number)
        else:
            record = state.hold.release(record)
            self._send(number, record.replayed() if number in self._late else record, now_s)

    def not_fetched(self, problem: str, now_s: float) -> None:
        """The rows could not be read: try again soon."""
        log.error("event=outbox.fetch_failed error=%s", problem)
        self._drain.failed()
        self._not_before_s = now_s + _RETRY_S

    def poll(self, now_s: float) -> Sequence[SentRow]:
        """Take the sink's outcomes; the rows that Kafka has confirmed."""
        if not self._sink.open and not self._outbox.records and now_s < self._idle_poll_at_s:
            # There is nothing to come: a producer at rest is only looked after.
            return ()
        self._idle_poll_at_s = now_s + _IDLE_POLL_S
        outcomes = self._sink.poll()
        if not outcomes:
            return ()
        self.moves += 1
        delivered = [row for row, undelivered in outcomes if undelivered is None]
        numbers = [row.number for row in delivered]
        self._state.counters.drained += len(delivered)
        self._drain.delivered(numbers, now_s)
        if self._dead_letters:
            self._state.counters.dead_letters += len(self._dead_letters.intersection(numbers))
            self._dead_letters.difference_update(row.number for row, _ in outcomes)
        for row, undelivered in outcomes:
            if undelivered is not None:
                self._not_delivered(row.number, row.record, undelivered, now_s)
        return delivered

    def _not_delivered(self, number: int, record: Record, undelivered: Undelivered, now_s: float) -> None:
        dead_letter = (
            self._state.intake.records.refused(record, undelivered.problem)
            if undelivered.record_at_fault
            else None
        )
        if dead_letter is not None:
            self._dead_letters.add(number)
            self._send(number, dead_letter, now_s)
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
        numbers = tuple(rows)
        if numbers:
            self.moves += 1
            self._drain.removed(numbers)
            self._skipped.gone(numbers)
            self._outbox.remove(numbers)

    def _pause_s(self, now_s: float) -> float:
        """How long to wait after a pass that found nothing to send."""
        kafka = self._state.kafka
        if self._skipped.count:
            return _PAUSE_BESIDE_HELD_S
        if not kafka.parked_topics:
            # Rows that are counted may have been dropped, or have come since.
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
