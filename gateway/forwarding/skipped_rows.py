"""Which rows of the outbox a fetch may pass over, because they wait for the clock or are not there.

Days without network mean days without time: millions of rows that wait. Each is read once, when it is stored
or at the first pass after a start; from then on a pass over the outbox steps across it. Numbers are never
used again, so a number that is not there is passed over as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cloud.wire.number_set import NumberSet

# Where rows that wait and others take turns a hundred thousand times, the rest is read again at each pass.
_MAX_GAPS: Final = 100_000


class SkippedRows:
    """The numbers to pass over, and whether a pass has found anything else. Pure bookkeeping."""

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
            return
        if number in self._numbers:
            # It was taken for one that is not there: read everything again.
            self.release()
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
