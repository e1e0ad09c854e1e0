"""Which rows of the outbox go to Kafka next, oldest first, when, and which of them are late.

Invariants: a row is removed only after Kafka has confirmed it; what could not be delivered stays and is
fetched again; rows at the sink and rows delivered but not yet removed are never sent a second time.

Pure bookkeeping, owned by the forwarder's thread; times are monotonic.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from cloud.wire.number_set import NumberSet

BATCH_RECORDS: Final = 500
BATCH_BYTES: Final = 256 << 10
# Several batches at the sink, so that none waits for the one before it; after a kill they are sent again.
MOST_OPEN: Final = 4 * BATCH_RECORDS
# Deleting costs a commit: often enough to give space back, seldom enough to spare the card.
_REMOVE_EVERY_S: Final = 0.2
# Where rows that wait and others take turns a hundred thousand times, the rest is read again at each pass.
_MAX_GAPS: Final = 100_000
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
            # A pass that found nothing at all proves nothing: rows of a damaged file may be to come.
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
        if self._numbers.gaps >= _MAX_GAPS and not self._numbers.overlaps(first - 1, last + 1):
            return False
        self._numbers.add(first, last)
        return True


class LateRows:
    """Which rows are late: sampled or received over ``after_s`` ago, stored by an earlier run, or salvaged.

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
