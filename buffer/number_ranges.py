"""Sets of record numbers, kept as ranges: memory grows with the gaps, not with the numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


class NumberRanges:
    """Disjoint ranges, both ends included, in the order they were added; neighbours become one."""

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        self._ranges: list[tuple[int, int]] = []
        for number in numbers:
            self.add(number, number)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self._ranges)

    def add(self, first: int, last: int) -> None:
        """Add ``first`` to ``last``, none of which is here."""
        begin, end = self._ranges[-1] if self._ranges else (0, -1)
        if end + 1 == first:
            self._ranges[-1] = (begin, last)
        elif last + 1 == begin:
            self._ranges[-1] = (first, end)
        else:
            self._ranges.append((first, last))

    def missing(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """The ranges within ``first`` to ``last`` that are not here, in ascending order."""
        for begin, end in (*sorted(self._ranges), (last + 1, last)):
            if first > last:
                return
            if begin > first:
                yield first, min(begin - 1, last)
            first = max(first, end + 1)
