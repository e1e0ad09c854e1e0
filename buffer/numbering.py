"""How many records there are and how they are numbered, without reading the middle of the file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path

from buffer import tables
from buffer.errors import OutboxCorrupt
from buffer.tables import NumberingRow


class NumberRanges:
    """Record numbers as disjoint ranges, ends included, in the order they were added; neighbours become one.

    Memory grows with the gaps, not with the numbers.
    """

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


class Numbering:
    """Read from both ends of the file.

    ``issued`` is the last number issued, ``stored`` how many records the blocks have, ``oldest`` the first
    number of the oldest block, ``dropped`` how many records were ever dropped, ``row`` the table's. Raises
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

    def committed(self, row: NumberingRow, stored: int, issued: int = 0) -> None:
        """Take over the figures of a transaction that is on the disk."""
        self.row, self.stored, self.dropped = row, stored, row.dropped
        self.oldest = row.floor if stored else None
        self.issued = max(issued, self.issued)
