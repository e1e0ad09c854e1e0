"""A set of whole numbers, kept as intervals: a year of one channel's seqs without a gap takes two numbers."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

Interval = tuple[int, int]
"""First and last number, both included."""


class NumberSet:
    """Whole numbers. Memory grows with the gaps, not with the numbers."""

    __slots__ = ("_firsts", "_lasts")

    def __init__(self, intervals: Iterable[Interval] = ()) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for first, last in intervals:
            self.add(first, last)

    def __len__(self) -> int:
        return sum(self._lasts) - sum(self._firsts) + len(self._firsts)

    def __iter__(self) -> Iterator[int]:
        for first, last in self.spans():
            yield from range(first, last + 1)

    def __contains__(self, number: int) -> bool:
        return self.overlaps(number, number)

    @property
    def highest(self) -> int:
        """The largest number, 0 when empty."""
        return self._lasts[-1] if self._lasts else 0

    @property
    def gaps(self) -> int:
        """How many stretches of numbers between the lowest and the highest are not here."""
        return max(len(self._firsts) - 1, 0)

    def spans(self) -> Iterator[Interval]:
        """The intervals in order; they neither overlap nor touch."""
        yield from zip(self._firsts, self._lasts, strict=True)

    def overlaps(self, first: int, last: int) -> bool:
        """Whether any of ``first`` to ``last`` (both included) is here."""
        at = bisect_right(self._firsts, last) - 1
        return at >= 0 and first <= self._lasts[at]

    def end_of(self, number: int) -> int:
        """The last number of the interval that ``number`` is in; the number before it where it isn't here."""
        at = bisect_right(self._firsts, number) - 1
        return max(number - 1, self._lasts[at]) if at >= 0 else number - 1

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

    def update(self, others: NumberSet) -> None:
        """Add all of ``others``."""
        for first, last in others.spans():
            self.add(first, last)

    def missing(self, first: int, last: int) -> NumberSet:
        """The numbers from ``first`` to ``last`` (both included) that are not here."""
        gaps = NumberSet()
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

    def without(self, others: NumberSet) -> NumberSet:
        """The numbers here that are not in ``others``."""
        rest = NumberSet()
        for first, last in self.spans():
            rest.update(others.missing(first, last))
        return rest
