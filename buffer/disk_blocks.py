"""The blocks of an outbox's file: storing in place of the oldest where room is short, reading, removing.

Every change is one transaction, after which the figures in memory follow. Removal of some records of a block
is kept in memory only, until ``write_removed``.

Raises OutboxCorrupt where the file turns out to be damaged, except for a payload: such a block is deleted and
reported. Raises sqlite3.Error too: the caller translates. The lock and the replacement of a damaged file are
the caller's.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from buffer import blocks, tables
from buffer.blocks import Block, DamagedBlockError, Dictionary
from buffer.errors import CORRUPT, DISK_LOW, OTHERS_SHARE, Drop, OnDrop, OutboxCorrupt, OutboxDiskFull
from buffer.files import FAULTS
from buffer.outbox_file import OutboxFile, pages_for
from buffer.tables import Numbering, NumberRanges, ZstdDictionaries

_GIVE_BACK_BYTES: Final = 1 << 20
"""An emptied file smaller than this keeps its space: else a flapping link would rewrite it all the time."""
_DROPS_PER_COMMIT: Final = 500
_RESTORED_BYTES: Final = 1 << 20
"""What one transaction copies from a damaged file."""


class DiskBlocks:
    """Blocks in the order of their numbers; ``numbering`` counts them.

    ``load`` comes first, and again whenever the file was opened again. ``on_drop`` is called after the
    transaction that
    """

    numbering: Numbering

    def __init__(self, file: OutboxFile, on_drop: OnDrop) -> None:
        self._file = file
        self._on_drop = on_drop
        self.loaded = False

    def load(self) -> None:
        """Read the open file's figures."""
        connection = self._file.connection
        self._dictionaries = ZstdDictionaries()
        # A bit for each removed record of a block that has others left, by the block's first number.
        self._removed: dict[int, int] = {}
        for first, last in NumberRanges(tables.read_removed(connection)):
            for head in tables.heads_within(connection, first, last):
                self._removed[head.first] = self._removed.get(head.first, 0) | _bits(first, last, head)
        self.numbering = Numbering.read(connection, self._file.path)
        self.loaded = True

    def __len__(self) -> int:
        """Records that are stored and not removed, as far as the file could be opened."""
        if not self.loaded:
            return 0
        return self.numbering.stored - sum(map(int.bit_count, self._removed.values()))

    # Storing.

    def append(
        self, records: Sequence[bytes], summary: bytes, *, others: bool, drop_oldest: bool
    ) -> list[int]:
        """Store records as one block; their numbers.

        Without room other blocks are dropped, on a full disk only with ``drop_oldest``. Nothing is stored
        where it raises OutboxDiskFull, OutboxUnusable.
        """
        dictionary = self._dictionaries.for_append(self._file.connection, records)
        block = blocks.make(self.numbering.issued + 1, records, summary, dictionary, others=others)
        in_file = self._dictionaries.in_file
        new = None if dictionary is None or dictionary.number in in_file else dictionary
        sizes = [block.size_bytes] if new is None else [block.size_bytes, len(new.content)]
        missing, reason = self._file.missing_pages(sizes, drop_oldest=drop_oldest)
        try:
            dropped = self._insert(block, new, missing, reason)
        except OutboxDiskFull:
            if self._file.damaged.delete_oldest():
                return self.append(records, summary, others=others, drop_oldest=drop_oldest)
            if not drop_oldest or not self.numbering.stored:
                raise
            # Dropping makes room in the file; the ballast is for the log of that.
            missing, reason = pages_for(sizes, tables.PAGE_BYTES), DISK_LOW
            dropped = self._file.with_ballast(lambda: self._insert(block, new, missing, reason))
        if new is not None:
            in_file[new.number] = new
        for drop in dropped:
            self._removed.pop(drop.first, None)
            self._on_drop(drop)
        if dropped:
            self._file.restore_ballast()
        return list(range(block.first, block.last + 1))

    def restore(self, damaged: sqlite3.Connection, found: NumberRanges) -> None:
        """Store what is sound of a damaged file, under the numbers it had; ``found`` gets these.

        No limit holds here: the damaged file goes first when the next append wants room. A full disk
        ends the pass. Raises OutboxUnusable.
        """
        is_new = not self.numbering.stored
        with contextlib.suppress(OutboxDiskFull):
            with self._change() as figures:
                for dictionary in dictionaries(damaged):
                    if tables.dictionary(figures.connection, dictionary.number) is None:
                        tables.add_dictionary(figures.connection, dictionary)
            for batch in _batches(sound_blocks(damaged)):
                with self._change() as figures:
                    for block in batch:
                        # A crash, or damage within the pass, may have left it here.
                        if is_new or not tables.can_find(figures.connection, [block.first]):
                            figures.insert(block)
                for block in batch:
                    found.add(block.first, block.last)

    def probe(self) -> None:
        """Write a little, to check whether the file could grow. Raises as ``append``."""
        self._file.missing_pages([tables.PAGE_BYTES], drop_oldest=False)
        with self._file.transaction() as connection:
            tables.write_numbering(connection, self.numbering.row)

    def skip_to(self, issued: int) -> None:
        """Write that numbers up to this one were issued to records not here. Raises as ``append``."""
        self._file.with_room(lambda: self._skip_to(issued))

    def _skip_to(self, issued: int) -> None:
        with self._change() as figures:
            figures.issued = issued

    @contextlib.contextmanager
    def _change(self) -> Iterator[Numbering]:
        """One transaction; the figures follow it."""
        figures = dataclasses.replace(self.numbering)
        with self._file.transaction():
            yield figures
            if figures != self.numbering:
                figures.write()
        self.numbering = figures

    def _insert(self, block: Block, new: Dictionary | None, missing_pages: int, reason: str) -> list[Drop]:
        """Store a block in one transaction, in place of others where pages are missing; what was dropped."""
        dropped: list[Drop] = []
        its_bytes, goes_itself = block.size_bytes if block.others else 0, False
        with self._change() as figures:
            connection = figures.connection
            share = self._file.share_of_others() if missing_pages else 0
            while (
                missing_pages
                and len(dropped) < _DROPS_PER_COMMIT
                and connection.execute("PRAGMA freelist_count").fetchone()[0] < missing_pages
            ):
                over = figures.others_bytes + its_bytes > share
                why = OTHERS_SHARE if over else reason
                oldest = tables.oldest_head(connection, others=over)
                if oldest is None:
                    # Where nothing is stored, the last resort is to store it with too few pages.
                    goes_itself = over
                    if goes_itself:
                        dropped.append(Drop(why, block.first, block.last, block.count, block.summary))
                    break
                dropped.append(self._drop_of(oldest, why))
                figures.delete(oldest)
            if goes_itself:
                figures.issued = block.last
            else:
                figures.insert(block)
            if new is not None:
                tables.add_dictionary(connection, new)
            figures.dropped += sum(drop.count or 0 for drop in dropped)
        return dropped

    def _drop_of(self, block: Block, reason: str) -> Drop:
        """The loss of a block that is still stored: of what is left of it, where some was removed."""
        drop = Drop(reason, block.first, block.last, block.count, block.summary)
        removed = self._removed.get(block.first, 0)
        if not removed:
            return drop
        left: tuple[bytes, ...] = ()
        connection = self._file.connection
        with (
            contextlib.closing(tables.blocks_from(connection, block.first)) as found,
            contextlib.suppress(DamagedBlockError),
        ):
            for whole in islice(found, 1):
                records = whole.records(self._dictionaries.find(connection, whole.dictionary))
                left = tuple(record for at, record in enumerate(records) if not removed >> at & 1)
        return dataclasses.replace(drop, count=block.count - removed.bit_count(), left=left)

    # Reading.

    def peek(self, after: int, limit: int, max_bytes: int) -> list[tuple[int, bytes]]:
        """The oldest records with numbers above ``after``: at most ``limit`` and ``max_bytes``, at least one.

        Damaged payloads are reported and skipped. Raises OutboxUnusable, OutboxDiskFull.
        """
        path, numbering = self._file.path, self.numbering
        taken: list[tuple[int, bytes]] = []
        if limit < 1 or after > numbering.issued:
            return taken
        damaged: list[Block] = []
        expected = numbering.oldest if not after else None
        taken_bytes = last = 0
        firsts: list[int] = []
        with contextlib.closing(tables.blocks_from(self._file.connection, after + 1)) as found:
            for block in found:
                if expected not in (None, block.first) or block.first <= last:
                    raise OutboxCorrupt(f"{path}: blocks are missing")
                expected, last = None, block.last
                firsts.append(block.first)
                try:
                    records = block.records(self._dictionaries.find(self._file.connection, block.dictionary))
                except DamagedBlockError as error:
                    if not error.head_is_sound:
                        raise OutboxCorrupt(f"{path}: a block's head is damaged") from error
                    damaged.append(block)
                    continue
                rows = list(enumerate(records, block.first))
                removed = self._removed.get(block.first, 0)
                if removed or block.first <= after:
                    rows = [row for row in rows if row[0] > after and not removed >> row[0] - block.first & 1]
                for row in rows:
                    taken_bytes += len(row[1])
                    if len(taken) >= limit or (taken and taken_bytes > max_bytes):
                        break
                    taken.append(row)
                else:
                    continue
                break
        if not after and not last and numbering.stored:
            raise OutboxCorrupt(f"{path}: all blocks are missing")
        if not tables.can_find(self._file.connection, firsts):
            # A scan and a search can disagree in a damaged tree: the block could never be removed.
            raise OutboxCorrupt(f"{path}: a block is out of place")
        for block in damaged:
            self._file.with_room(lambda block=block: self._give_up(block))  # type: ignore[misc]
        return taken

    def _give_up(self, block: Block) -> None:
        """Delete a block with a damaged payload, and report it."""
        drop = self._drop_of(block, CORRUPT)
        with self._change() as figures:
            figures.delete(block)
        self._removed.pop(block.first, None)
        self._on_drop(drop)

    # Removing.

    def remove(self, numbers: Sequence[int]) -> None:
        """Remove the records with these ascending numbers. Raises OutboxDiskFull, OutboxUnusable."""
        self._file.with_room(lambda: self._remove(numbers))

    def write_removed(self) -> None:
        """Write which records were removed from blocks that have others left."""
        numbers = [
            first + at
            for first, removed in sorted(self._removed.items())
            for at in range(removed.bit_length())
            if removed >> at & 1
        ]
        tables.write_removed(self._file.connection, numbers)

    def give_space_back(self) -> None:
        """Shrink the emptied file, if that is worth it."""
        if self._file.database_bytes() > _GIVE_BACK_BYTES:
            self._file.give_space_back()
            # Readings of a past outage are a poor sample of the next ones.
            self._dictionaries = ZstdDictionaries()

    def _remove(self, numbers: Sequence[int]) -> None:
        partial: dict[int, int] = {}
        finished: list[Block] = []
        with self._change() as figures:
            connection = figures.connection
            for first, last in NumberRanges(numbers):
                for head in tables.heads_within(connection, first, last):
                    before = partial.get(head.first) or self._removed.get(head.first, 0)
                    gone = before | _bits(first, last, head)
                    if gone.bit_count() == head.count:
                        finished.append(head)
                    elif gone:
                        partial[head.first] = gone
            figures.delete(*finished)
        self._removed.update(partial)
        for head in finished:
            self._removed.pop(head.first, None)


def dictionaries(damaged: sqlite3.Connection) -> Iterator[Dictionary]:
    """The sound dictionaries of a damaged file, up to what SQLite can't read."""
    with contextlib.suppress(*FAULTS):
        yield from tables.dictionaries(damaged)


def sound_blocks(damaged: sqlite3.Connection) -> Iterator[Block]:
    """Blocks with sound heads, from the oldest up to what SQLite can't read, then from the newest down to it.

    A damaged tree may show a block twice: it comes once.
    """
    above, below = 0, 1 << 63
    try:
        for block in tables.blocks_after(damaged, 0):
            if block.first > above and block.head_is_sound():
                yield block
                above = block.last
    except FAULTS:
        with contextlib.suppress(*FAULTS):
            for block in tables.blocks_down_to(damaged, above):
                if above < block.first and block.last < below and block.head_is_sound():
                    yield block
                    below = block.first


def _batches(blocks: Iterable[Block]) -> Iterator[list[Block]]:
    """Blocks in parts of a bounded size: each is a transaction, and they go through the log."""
    batch: list[Block] = []
    size = 0
    for block in blocks:
        batch.append(block)
        size += block.size_bytes
        if size > _RESTORED_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _bits(first: int, last: int, head: Block) -> int:
    """The numbers of a range that are a block's, as bits of its records."""
    begin, end = max(first, head.first) - head.first, min(last, head.last) - head.first + 1
    return (1 << end) - (1 << begin) if begin < end else 0
