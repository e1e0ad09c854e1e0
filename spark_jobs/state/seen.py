"""Which readings are in the table already: ranges of ``seq`` per (gateway, channel, run).

``seq`` is dense, so a run of readings is one range however long it gets, and a repeat is found without
looking at the big table. Invariant: after a batch the ranges are those of ``readings``. They are written
after the readings; ``load`` therefore takes up what a crash between the two writes left out, from the
readings themselves. Owned by the one thread that runs the batches of ``ingest``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from spark_jobs.transforms.packing import Identity

Range = tuple[int, int]
"""First and last seq, both inside."""


@dataclass
class Contents:
    """What a batch holds: its identities as ranges, and the identities' keys that have a number twice."""

    ranges: SeenRanges = field(default_factory=lambda: SeenRanges())
    twice: set[Identity] = field(default_factory=set)
    rows: int = 0

    def add(self, table: Any) -> None:
        """Takes up ranges as ``IdentityNumbers`` gives them, an Arrow table."""
        for gateway, channel, run, first, last, rows in zip(
            *(column.to_pylist() for column in table.columns), strict=True
        ):
            key = (gateway, channel, run)
            if rows > last - first + 1 or self.ranges.overlaps(key, first, last):
                self.twice.add(key)
            self.ranges.add(key, first, last)
            self.rows += rows


@dataclass
class SeenRanges:
    """Disjoint, ascending, non-adjacent ranges per (gateway, channel, run)."""

    _ranges: dict[Identity, list[Range]] = field(default_factory=dict)

    def identities(self) -> Iterable[Identity]:
        """All (gateway, channel, run) of which something was seen."""
        return self._ranges.keys()

    def of(self, key: Identity) -> tuple[Range, ...]:
        """The ranges seen, ascending."""
        return tuple(self._ranges.get(key, ()))

    def count(self, key: Identity) -> int:
        """How many readings were seen."""
        return sum(last - first + 1 for first, last in self._ranges.get(key, ()))

    def overlaps(self, key: Identity, first: int, last: int) -> bool:
        """Whether any of first…last was seen."""
        ranges = self._ranges.get(key)
        if not ranges:
            return False
        at = bisect_right(ranges, last, key=lambda seen: seen[0])
        return at > 0 and ranges[at - 1][1] >= first

    def add(self, key: Identity, first: int, last: int) -> None:
        """Marks first…last as seen; joins ranges that touch."""
        ranges = self._ranges.setdefault(key, [])
        left = bisect_left(ranges, first - 1, key=lambda seen: seen[1])
        right = bisect_right(ranges, last + 1, key=lambda seen: seen[0])
        if left < right:
            first, last = min(first, ranges[left][0]), max(last, ranges[right - 1][1])
        ranges[left:right] = [(first, last)]

    def __len__(self) -> int:
        return sum(map(len, self._ranges.values()))

    def __iter__(self) -> Iterator[tuple[Identity, Range]]:
        for key, ranges in self._ranges.items():
            for seen in ranges:
                yield key, seen
