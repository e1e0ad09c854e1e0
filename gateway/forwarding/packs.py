"""What the disk has refused, compressed: it may be much, for hours. Owned by the forwarder's thread."""

from __future__ import annotations

import zlib
from bisect import insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

import msgspec

from buffer.drops import Drop
from gateway.forwarding.seq_summary import summarise
from gateway.ports import Record

Row = tuple[Record, float, bool, bool]
"""An entry's record, when it entered, whether it is our own, and whether it may go to Kafka by itself."""
_ROWS: Final = msgspec.msgpack.Decoder(list[Row])


@dataclass(slots=True, eq=False)
class Pack:
    """Entries of one class; ``waits`` while Kafka would take none of them, for their topic or the clock."""

    content: bytes
    summary: bytes
    count: int
    entered_s: float
    others: bool
    waits: bool

    @property
    def size_bytes(self) -> int:
        """What it takes in memory."""
        return len(self.content) + len(self.summary)

    def rows(self) -> list[Row]:
        """The entries."""
        return _ROWS.decode(zlib.decompress(self.content))

    def drop(self, reason: str) -> Drop:
        """Their loss."""
        return Drop(reason, 0, 0, self.count, self.summary)


class Packs:
    """Packs, oldest first; ``records`` and ``size_bytes`` are all of theirs."""

    def __init__(self) -> None:
        self._packs: list[Pack] = []
        self.records = self.size_bytes = self.others_bytes = 0

    def __iter__(self) -> Iterator[Pack]:
        return iter(self._packs)

    def add(self, rows: Sequence[Row], *, others: bool, waits: bool) -> None:
        """Compress entries of one class, oldest first."""
        content = zlib.compress(msgspec.msgpack.encode(rows))
        pack = Pack(content, summarise(row[0] for row in rows), len(rows), rows[0][1], others, waits)
        # Those that were opened and couldn't leave are older than what was packed since.
        insort(self._packs, pack, key=attrgetter("entered_s"))
        self._count(pack, 1)

    def remove(self, pack: Pack) -> None:
        """Take a pack out."""
        self._packs.remove(pack)
        self._count(pack, -1)

    def release(self) -> None:
        """Kafka may take what waited."""
        for pack in self._packs:
            pack.waits = False

    def _count(self, pack: Pack, sign: int) -> None:
        self.records += sign * pack.count
        self.size_bytes += sign * pack.size_bytes
        self.others_bytes += sign * pack.size_bytes * pack.others
