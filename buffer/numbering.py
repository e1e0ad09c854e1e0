"""How many records there are and how they are numbered, without reading the middle of the file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from buffer import tables
from buffer.blocks import Block
from buffer.drops import Drop
from buffer.errors import OutboxCorrupt
from buffer.tables import NumberingRow

_MOST_GONE: Final = 10_000
"""So many ranges of dropped numbers are remembered, where others' blocks go from between the owner's for
weeks. Should the file be damaged, forgotten ones are announced once more."""


class NumberRanges:
    """Record numbers as disjoint ranges, ends included, in the order they were added; neighbours become one.

    Memory grows with the gaps, not with the numbers.
    """

    def __init__(self, numbers: Iterable[int] = (), *, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._ranges: list[tuple[int, int]] = list(ranges)
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

    def above(self, last: int) -> NumberRanges:
        """Those of them that are above ``last``."""
        return NumberRanges(ranges=[(max(begin, last + 1), end) for begin, end in self if end > last])

    def keep_newest(self, count: int) -> None:
        """Forget all but the ranges added last."""
        del self._ranges[:-count]

    def missing(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """The ranges within ``first`` to ``last`` that are not here, in ascending order."""
        for begin, end in (*sorted(self._ranges), (last + 1, last)):
            if first > last:
                return
            if begin > first:
                yield first, min(begin - 1, last)
            first = max(first, end + 1)


class Numbering:
    """Read from both ends of the file.

    ``issued`` is the last number issued, ``stored`` how many records the blocks have, ``oldest`` the first
    number of the oldest block, ``dropped`` how many records were ever dropped, ``row`` the table's. Of the
    numbers from ``whole_from`` on, only those in ``gone`` are known to be stored no more. Raises
    OutboxCorrupt where the ends of the file disagree with its row.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._path = path
        row = tables.read_numbering(connection)
        oldest, newest = tables.oldest_head(connection), tables.newest_head(connection)
        if oldest is None or newest is None:
            self.issued, self.stored = row.issued, 0
            self.oldest: int | None = None
            sound = row.floor == row.issued + 1
        else:
            self.issued = max(newest.last, row.issued)
            self.stored = newest.last - oldest.first + 1 - row.holes
            self.oldest = oldest.first
            sound = oldest.first == row.floor and self.stored > 0
        if not sound:
            raise OutboxCorrupt(f"{self._path} does not match its numbering")
        self.row = row
        self.dropped = row.dropped
        self.whole_from, self.gone = row.floor, NumberRanges()

    def write(
        self,
        connection: sqlite3.Connection,
        issued: int | None = None,
        stored: int | None = None,
        dropped: int | None = None,
    ) -> NumberingRow:
        """Write the row where a change of the blocks changes it; the row as it is now in the table."""
        issued = self.issued if issued is None else max(issued, self.issued)
        stored = self.stored if stored is None else stored
        dropped = self.dropped if dropped is None else dropped
        oldest, newest = tables.oldest_head(connection), tables.newest_head(connection)
        if oldest is None or newest is None:
            if stored:
                raise OutboxCorrupt(f"{self._path}: {stored} records are missing")
            row = NumberingRow(issued, issued + 1, 0, dropped)
        else:
            holes = newest.last - oldest.first + 1 - stored
            if holes < 0:
                raise OutboxCorrupt(f"{self._path}: blocks are missing before {oldest.first}")
            known = self.row.issued if newest.last >= issued else issued
            row = NumberingRow(known, oldest.first, holes, dropped)
        if row != self.row:
            tables.write_numbering(connection, row)
        return row

    def issue(self, block: Block) -> None:
        """A new block is on the disk, and its numbers are issued."""
        self.skip_to(block.first - 1)
        self.issued = max(block.last, self.issued)

    def skip_to(self, last: int) -> None:
        """Numbers up to this one were issued to records that were never here, or are lost."""
        if last > self.issued:
            self.gone.add(self.issued + 1, last)
            self.issued = last

    def committed(self, row: NumberingRow, stored: int, gone: Iterable[Block | Drop] = ()) -> None:
        """Take over the figures of a transaction that is on the disk."""
        self.row, self.stored, self.dropped = row, stored, row.dropped
        self.oldest = row.floor if stored else None
        for block in gone:
            self.gone.add(block.first, block.last)
        self.gone.keep_newest(_MOST_GONE)
        if not row.holes:
            # From the oldest block to the newest there is no number that isn't stored.
            self.whole_from, self.gone = row.floor, self.gone.above(row.floor + stored - 1)
        # Blocks of a damaged file come in below.
        self.whole_from = min(self.whole_from, row.floor)
