"""A set of sequence numbers, kept as intervals: a year of one channel without a gap takes two numbers."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator


class Seqs:
    """Whole numbers from 1. Memory grows with the gaps, not with the numbers."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []

    def __len__(self) -> int:
        return sum(self._lasts) - sum(self._firsts) + len(self._firsts)

    def __iter__(self) -> Iterator[int]:
        for first, last in self.spans():
            yield from range(first, last + 1)

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._firsts, number) - 1
        return at >= 0 and number <= self._lasts[at]

    @property
    def highest(self) -> int:
        """The largest number, 0 when empty."""
        return self._lasts[-1] if self._lasts else 0

    @property
    def lowest(self) -> int | None:
        """The smallest number."""
        return self._firsts[0] if self._firsts else None

    def spans(self) -> Iterator[tuple[int, int]]:
        """The intervals in order, both ends included."""
        yield from zip(self._firsts, self._lasts, strict=True)

    def add(self, first: int, last: int | None = None) -> None:
        """Add ``first`` to ``last`` (both included), or one number; an empty range adds nothing."""
        last = first if last is None else last
        if last < first:
            return
        # All intervals that overlap or touch it become one.
        begin = bisect_left(self._lasts, first - 1)
        end = bisect_right(self._firsts, last + 1)
        if begin < end:
            first = min(first, self._firsts[begin])
            last = max(last, self._lasts[end - 1])
        self._firsts[begin:end] = [first]
        self._lasts[begin:end] = [last]

    def update(self, others: Seqs) -> None:
        """Add all of ``others``."""
        for first, last in others.spans():
            self.add(first, last)

    def missing(self, first: int, last: int) -> Seqs:
        """The numbers from ``first`` to ``last`` (both included) that are not here."""
        gaps = Seqs()
        at = first
        for begin, end in self.spans():
            if end < at:
                continue
            if begin > last:
                break
            gaps.add(at, begin - 1)
            at = end + 1
        gaps.add(at, last)
        return gaps

    def without(self, others: Seqs) -> Seqs:
        """The numbers here that are not in ``others``."""
        rest = Seqs()
        for first, last in self.spans():
            rest.update(others.missing(first, last))
        return rest
