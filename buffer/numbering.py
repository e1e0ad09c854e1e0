"""How many records there are and how they are numbered, known without a look at the middle of the file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path

from buffer import tables
from buffer.blocks import Block
from buffer.drops import Drop
from buffer.errors import OutboxCorrupt
from buffer.tables import Numbering


class Stock:
    """Learned from the ends of the file; its middle is looked at when it is read.

    ``issued`` is the last number issued, ``stored`` how many records the blocks hold, ``oldest`` the first
    number of the oldest block, ``dropped`` how many records were ever dropped. Of the numbers from
    ``whole_from`` on, only the ranges ``gone`` are known to be stored no more. Raises OutboxCorrupt where the
    ends of the file disagree with its numbering.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._path = path
        numbering = tables.read_numbering(connection)
        oldest, newest = tables.oldest_head(connection), tables.newest_head(connection)
        if oldest is None or newest is None:
            self.issued, self.stored = numbering.issued, 0
            self.oldest: int | None = None
            sound = numbering.floor == numbering.issued + 1
        else:
            self.issued = max(newest.last, numbering.issued)
            self.stored = newest.last - oldest.first + 1 - numbering.holes
            self.oldest = oldest.first
            sound = oldest.first == numbering.floor and self.stored > 0
        if not sound:
            raise OutboxCorrupt(f"{self._path} does not hold what its numbering says")
        self.numbering = numbering
        self.dropped = numbering.dropped
        self.whole_from, self.gone = numbering.floor, list[tuple[int, int]]()

    def renumber(
        self,
        connection: sqlite3.Connection,
        issued: int | None = None,
        stored: int | None = None,
        dropped: int | None = None,
    ) -> Numbering:
        """Write the numbering where the blocks' change changes it; what it is now."""
        issued = self.issued if issued is None else max(issued, self.issued)
        stored = self.stored if stored is None else stored
        dropped = self.dropped if dropped is None else dropped
        oldest, newest = tables.oldest_head(connection), tables.newest_head(connection)
        if oldest is None or newest is None:
            if stored:
                raise OutboxCorrupt(f"{self._path}: {stored} records are missing")
            numbering = Numbering(issued, issued + 1, 0, dropped)
        else:
            holes = newest.last - oldest.first + 1 - stored
            if holes < 0:
                raise OutboxCorrupt(f"{self._path}: blocks are missing before {oldest.first}")
            known = self.numbering.issued if newest.last >= issued else issued
            numbering = Numbering(known, oldest.first, holes, dropped)
        if numbering != self.numbering:
            tables.write_numbering(connection, numbering)
        return numbering

    def give_numbers(self, block: Block) -> None:
        """A new block is on the disk, and its numbers are given."""
        self.pass_over(block.first - 1)
        self.issued = max(block.last, self.issued)

    def pass_over(self, last: int) -> None:
        """Numbers up to this one were given to records kept elsewhere to their end.

        If the file is damaged one day, nobody misses them here.
        """
        if last > self.issued:
            self.gone.append((self.issued + 1, last))
            self.issued = last

    def adopt(self, numbering: Numbering, stored: int, gone: Iterable[Block | Drop] = ()) -> None:
        """The transaction is on the disk: its figures are ours."""
        self.numbering, self.stored, self.dropped = numbering, stored, numbering.dropped
        self.oldest = numbering.floor if stored else None
        for block in gone:
            if self.gone and self.gone[-1][1] + 1 == block.first:
                self.gone[-1] = (self.gone[-1][0], block.last)
            else:
                self.gone.append((block.first, block.last))
        if not numbering.holes:
            # From the oldest block on there is no number that isn't stored.
            self.whole_from, self.gone = numbering.floor, []
