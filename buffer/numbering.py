"""How many records there are and how they are numbered, without reading the middle of the file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from buffer import tables
from buffer.blocks import Block
from buffer.errors import OutboxCorrupt
from buffer.tables import NumberingRow


class NumberRanges:
    """Record numbers as disjoint ranges, ends included, in the order they were added; neighbours become one.

    Memory grows with the gaps, not with the numbers.
    """

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        self._ranges: list[tuple[int, int]] = []
        begin, end = 0, -1
        for number in numbers:
            if number != end + 1:
                if begin <= end:
                    self.add(begin, end)
                begin = number
            end = number
        if begin <= end:
            self.add(begin, end)

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


@dataclass(slots=True)
class Numbering:
    """The figures of an open file's blocks, as they are on the disk or in a transaction.

    ``issued`` is the last number issued, ``stored`` how many records the blocks have, ``dropped`` how many
    records were ever dropped, ``others_bytes`` what blocks of others' records take, ``row`` the table's.
    """

    connection: sqlite3.Connection
    path: Path
    row: NumberingRow
    issued: int
    stored: int
    dropped: int
    others_bytes: int

    @classmethod
    def read(cls, connection: sqlite3.Connection, path: Path) -> Numbering:
        """From both ends of the file. Raises OutboxCorrupt where they disagree with its row."""
        row = tables.read_numbering(connection)
        oldest, newest = tables.oldest_head(connection), tables.newest_head(connection)
        if oldest is None or newest is None:
            issued, stored = row.issued, 0
            sound = row.floor == row.issued + 1
        else:
            issued, stored = max(newest.last, row.issued), newest.last - oldest.first + 1 - row.holes
            sound = oldest.first == row.floor and stored > 0
        if not sound:
            raise OutboxCorrupt(f"{path} does not match its numbering")
        return cls(connection, path, row, issued, stored, row.dropped, tables.bytes_of_others(connection))

    @property
    def oldest(self) -> int | None:
        """The first number of the oldest block."""
        return self.row.floor if self.stored else None

    def insert(self, block: Block) -> None:
        """Store a new block."""
        tables.insert(self.connection, block)
        self.issued = block.last
        self.stored += block.count
        if block.others:
            self.others_bytes += block.size_bytes

    def delete(self, *blocks: Block) -> None:
        """Delete blocks, given without their payloads. Raises OutboxCorrupt."""
        for block in blocks:
            if block.others:
                self.others_bytes -= tables.bytes_of_others(self.connection, block.first)
            self.stored -= block.count
        tables.delete(self.connection, [block.first for block in blocks])

    def write(self) -> None:
        """Write the row where it has changed. Raises OutboxCorrupt where the blocks don't match."""
        oldest, newest = tables.oldest_head(self.connection), tables.newest_head(self.connection)
        if oldest is None or newest is None:
            if self.stored:
                raise OutboxCorrupt(f"{self.path}: {self.stored} records are missing")
            row = NumberingRow(self.issued, self.issued + 1, 0, self.dropped)
        else:
            holes = newest.last - oldest.first + 1 - self.stored
            if holes < 0:
                raise OutboxCorrupt(f"{self.path}: blocks are missing before {oldest.first}")
            # The newest block's number counts while it is the last one: an append writes blocks only.
            known = self.row.issued if newest.last >= self.issued else self.issued
            row = NumberingRow(known, oldest.first, holes, self.dropped)
        if row != self.row:
            tables.write_numbering(self.connection, row)
        self.row = row
