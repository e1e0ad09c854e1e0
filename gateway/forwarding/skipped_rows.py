"""Which rows of the outbox a fetch may pass over, because they wait for the clock or are not there.

Days without network mean days without time: millions of rows that wait. Each is looked at once, when it is
stored or at the first pass after a start; from then on a pass over the outbox steps across it. Numbers are
never used again, so a number that is not there is passed over as well.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

# Where rows that wait and others take turns a hundred thousand times, the rest is read again at each pass.
_MAX_SPANS: Final = 100_000


class SkippedRows:
    """Spans of numbers to pass over, and whether a pass has found anything else. Pure bookkeeping."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self._others_seen = False
        self._after = 0
        self.only = False
        """True while the outbox is known to hold nothing but rows that wait."""
        self.count = 0
        """How many rows wait, of those looked at; some may have been dropped since."""

    def begin(self, after: int) -> int:
        """Where a fetch that is to bring the rows after a number may begin: so many later."""
        at = bisect_right(self._firsts, after + 1) - 1
        self._after = max(after, self._lasts[at]) if at >= 0 else after
        return self._after

    def fetched(self, numbers: Sequence[int]) -> None:
        """The fetch brought rows of these numbers: between them there are none. None at all ends the pass."""
        before = self._after
        for number in numbers:
            if number > before + 1:
                self._pass_over(before + 1, number - 1)
            before = number
        if not numbers:
            # Of a pass that found nothing at all nothing is known: rows of a damaged file may be to come.
            self.only, self._others_seen = self.count > 0 and not self._others_seen, False

    def held(self, number: int) -> None:
        """The row waits."""
        if self._pass_over(number, number):
            self.count += 1

    def other(self) -> None:
        """A row was fetched that doesn't wait."""
        self._others_seen = True
        self.only = False

    def stored(self, number: int, *, waits: bool) -> None:
        """A row is new in the outbox."""
        if waits:
            self.held(number)
            return
        if self._is_passed_over(number):
            # It was taken for one that is not there: look at everything again.
            self.release()
        self.other()

    def gone(self, numbers: Sequence[int]) -> None:
        """Rows have left the outbox; in any order, but quickest in order."""
        first = last = 0
        for number in numbers:
            if number == last + 1:
                last = number
            else:
                self._pass_over(first, last)
                first = last = number
        self._pass_over(first, last)

    def release(self) -> None:
        """Nothing waits any longer, as far as is known."""
        self._firsts.clear()
        self._lasts.clear()
        self._others_seen, self.only, self.count = True, False, 0

    def _is_passed_over(self, number: int) -> bool:
        at = bisect_right(self._firsts, number) - 1
        return at >= 0 and number <= self._lasts[at]

    def _pass_over(self, first: int, last: int) -> bool:
        """Add a span; False where it is empty or known already."""
        if first > last:
            return False
        # The spans from ``low`` up to ``high`` touch the new one.
        low = bisect_right(self._lasts, first - 2)
        high = bisect_right(self._firsts, last + 1)
        if low < high:
            if self._firsts[low] <= first and last <= self._lasts[low]:
                return False
            first, last = min(first, self._firsts[low]), max(last, self._lasts[high - 1])
        elif len(self._firsts) >= _MAX_SPANS:
            return False
        self._firsts[low:high] = [first]
        self._lasts[low:high] = [last]
        return True
