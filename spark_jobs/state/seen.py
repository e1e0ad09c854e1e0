"""Which readings are in the table already: ranges of ``seq`` per (gateway, channel, run).

``seq`` is dense, so a run of readings is one range however long it gets, and a repeat is found without
looking at the big table. Invariant: after a batch the ranges are those of ``readings``. They are written
after the readings; the sink's start therefore takes up what a crash between the two writes left out, from the
readings themselves. Owned by the one thread that runs the batches of ``ingest``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from cloud.wire.number_set import NumberSet
from spark_jobs.transforms.packing import Identity

Range = tuple[int, int]
"""First and last seq, both inside."""


class SeenRanges(defaultdict[Identity, NumberSet]):
    """The seqs seen of each (gateway, channel, run)."""

    def __init__(self) -> None:
        super().__init__(NumberSet)

    def ranges(self) -> Iterator[tuple[Identity, Range]]:
        """All of them as ranges."""
        return ((key, span) for key, seqs in self.items() for span in seqs.spans())


@dataclass
class Contents:
    """What a batch holds: its identities as ranges, and the identities' keys that have a number twice."""

    ranges: SeenRanges = field(default_factory=SeenRanges)
    twice: set[Identity] = field(default_factory=set)
    rows: int = 0

    def add(self, table: Any) -> None:
        """Takes up ranges as ``ranges_of`` gives them."""
        for gateway, channel, run, first, last, rows in zip(
            *(column.to_pylist() for column in table.columns), strict=True
        ):
            key = (gateway, channel, run)
            if rows > last - first + 1 or self.ranges[key].overlaps(first, last):
                self.twice.add(key)
            self.ranges[key].add(first, last)
            self.rows += rows
