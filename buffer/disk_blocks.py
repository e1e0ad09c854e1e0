"""The blocks of an outbox's file: stored, in the oldest ones' place where room is wanted, read, and removed.

Every change is one transaction, and what is known here of the file changes after it. Removal of some records
of a block is only kept in memory, until ``take_down_removed``.

Raises OutboxCorrupt where the file turns out to be damaged, but for a payload: such a block is set aside,
announced and passed over. Knows neither the lock, nor how a damaged file is replaced.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from buffer import blocks, drops, recovery, tables
from buffer.blocks import Block, DamagedBlockError, Dictionary
from buffer.drops import Drop, OnDrop
from buffer.errors import OutboxCorrupt, OutboxDiskFull
from buffer.numbering import Stock
from buffer.outbox_file import OutboxFile
from buffer.retention import pages_for
from buffer.sqlite_errors import translated
from buffer.zstd_dictionaries import Dictionaries

_GIVE_BACK_BYTES: Final = 1 << 20
"""An emptied file smaller than this keeps its space: a flapping link would else rewrite it all the time."""
_DROPS_PER_COMMIT: Final = 500


class DiskBlocks:
    """Blocks in the order of their numbers; ``stock`` says how many, and which numbers were given.

    ``load`` comes first, and again whenever the file was opened anew. ``on_drop`` is told what is given up,
    after the transaction that drops it.
    """

    stock: Stock

    def __init__(self, file: OutboxFile, on_drop: OnDrop) -> None:
        self._file = file
        self._on_drop = on_drop
        self._dictionaries = Dictionaries()
        # Numbers of removed records, by the first number of their block, which holds others yet.
        self._removed: dict[int, set[int]] = {}

    def load(self, *, replaces: bool) -> None:
        """Learn what the open file holds.

        Where it ``replaces`` a damaged one, what was removed from that stays so: its blocks will come back.
        """
        with translated(self._file.path):
            connection = self._file.connection
            stock = Stock(connection, self._file.path)
            removed: dict[int, set[int]] = {}
            for span in _spans(tables.read_removed(connection)):
                for head in tables.heads_within(connection, span.start, span.stop - 1):
                    removed.setdefault(head.first, set()).update(_within(span, head))
        self.stock = stock
        if not replaces:
            self._removed = removed

    @property
    def waiting(self) -> int:
        """Records that are stored and not removed; less while removals wait for blocks still to come back."""
        return self.stock.stored - sum(map(len, self._removed.values()))

    # Storing.

    def append(
        self, first: int, records: Sequence[bytes], summary: bytes, *, for_the_oldest: bool
    ) -> list[int]:
        """Store records, numbered from ``first``, as one block; their numbers.

        Without room the oldest are dropped, on a full disk only if it is ``for_the_oldest``. Raises
        OutboxDiskFull, OutboxUnusable: nothing is stored then.
        """
        dictionary, copy = self._dictionaries.for_append(self._file.connection, records)
        block = blocks.make(first, records, summary, dictionary)
        self._store([block], [dictionary] if copy and dictionary is not None else [], for_the_oldest)
        self._dictionaries.appended(dictionary)
        self.stock.give_numbers(block)
        return list(range(block.first, block.last + 1))

    def take_over(
        self,
        moved: Sequence[Block],
        removed: Mapping[int, Iterable[int]],
        dictionaries: Sequence[Dictionary],
        *,
        for_the_oldest: bool,
    ) -> None:
        """Store blocks made elsewhere, without those ``removed`` of their records. Raises as ``append``."""
        self._store_with(dictionaries, moved, for_the_oldest)
        for block in moved:
            if gone := set(removed.get(block.first, ())):
                self._removed[block.first] = gone
            self.stock.give_numbers(block)

    def take_back(self, block: Block, dictionary: Dictionary | None) -> None:
        """Store a block of a damaged file; nothing is dropped for it. Raises as ``append``."""
        self._store_with([] if dictionary is None else [dictionary], [block], for_the_oldest=False)

    def probe(self) -> None:
        """Write a little, to see whether the file could grow. Raises as ``append``."""
        with translated(self._file.path):
            _, reason = self._file.limits.missing_pages(self._file.connection, [tables.PAGE_BYTES])
        if reason == drops.DISK_LOW:
            raise self._too_little_room()
        with self._file.transaction() as connection:
            tables.write_numbering(connection, self.stock.numbering)

    def skip_to(self, issued: int) -> None:
        """Take down that numbers up to this one were given elsewhere. Raises as ``append``."""
        self._file.with_room(lambda: self._skip_to(issued))

    def lose_up_to(self, issued: int) -> None:
        """Take down that numbers up to this one were given to records that can't be found any more."""
        self.stock.issued = issued
        with self._file.transaction() as connection:
            self.stock.renumber(connection)

    def _skip_to(self, issued: int) -> None:
        with self._file.transaction() as connection:
            after = self.stock.renumber(connection, issued)
        self.stock.pass_over(issued)
        self.stock.adopt(after, self.stock.stored)

    def _store_with(
        self, dictionaries: Sequence[Dictionary], fresh: Sequence[Block], for_the_oldest: bool
    ) -> None:
        """Store blocks, and those of their dictionaries that the file isn't known to hold."""
        new = [dictionary for dictionary in dictionaries if not self._dictionaries.has(dictionary)]
        self._store(fresh, new, for_the_oldest)
        for dictionary in new:
            self._dictionaries.stored(dictionary)

    def _store(self, fresh: Sequence[Block], copies: Sequence[Dictionary], for_the_oldest: bool) -> None:
        """Store blocks, and copies of dictionaries, in one transaction."""
        sizes = [block.size_bytes for block in fresh]
        with translated(self._file.path):
            missing, reason = self._file.limits.missing_pages(self._file.connection, sizes)
        if reason == drops.DISK_LOW and not for_the_oldest:
            raise self._too_little_room()
        try:
            dropped = self._insert(fresh, copies, missing, reason)
        except OutboxDiskFull:
            if not for_the_oldest or not self.stock.stored:
                raise
            # In the file there is room as soon as the oldest are gone; the ballast is for the log of that.
            self._file.free_ballast()
            try:
                dropped = self._insert(fresh, copies, pages_for(sizes, tables.PAGE_BYTES), drops.DISK_LOW)
            finally:
                self._file.mind_ballast()
        for drop in dropped:
            removed = len(self._removed.pop(drop.first, ()))
            self._on_drop(dataclasses.replace(drop, count=(drop.count or 0) - removed))
        if dropped:
            self._file.mind_ballast()

    def _insert(
        self, fresh: Sequence[Block], copies: Sequence[Dictionary], missing_pages: int, reason: str
    ) -> list[Drop]:
        """Store blocks in the place of the oldest ones, in one transaction; what was dropped."""
        dropped: list[Drop] = []
        gone = added = 0
        with self._file.transaction() as connection:
            while (
                missing_pages
                and len(dropped) < _DROPS_PER_COMMIT
                and connection.execute("PRAGMA freelist_count").fetchone()[0] < missing_pages
                and (oldest := tables.oldest_head(connection)) is not None
            ):
                if oldest.first > fresh[0].first:
                    # A salvaged block, older than all there is: it is the one to go.
                    dropped += [Drop(reason, old.first, old.last, old.count, old.summary) for old in fresh]
                    break
                tables.delete(connection, oldest.first)
                dropped.append(Drop(reason, oldest.first, oldest.last, oldest.count, oldest.summary))
                gone += oldest.count
            else:
                added = sum(block.count * tables.insert(connection, block) for block in fresh)
            stored = self.stock.stored - gone + added
            for dictionary in copies:
                tables.add_dictionary(connection, dictionary)
            dropped_ever = self.stock.dropped + sum(drop.count or 0 for drop in dropped)
            after = self.stock.renumber(connection, fresh[-1].last, stored, dropped_ever)
        self.stock.adopt(after, stored, dropped)
        return dropped

    def _too_little_room(self) -> OutboxDiskFull:
        return OutboxDiskFull(f"the disk of {self._file.path} has less room than it must keep")

    # Reading.

    def peek(self, after: int, limit: int, max_bytes: int) -> list[tuple[int, bytes]]:
        """The oldest records with numbers above ``after``: at most ``limit`` and ``max_bytes``, at least one.

        Damaged payloads are announced and passed over. Raises OutboxUnusable, OutboxDiskFull.
        """
        path, stock = self._file.path, self.stock
        taken: list[tuple[int, bytes]] = []
        if limit < 1 or after > stock.issued:
            return taken
        damaged: list[Block] = []
        expected = stock.oldest if not after else None
        taken_bytes = 0
        last = 0
        with (
            translated(path),
            contextlib.closing(tables.blocks_from(self._file.connection, after + 1)) as found,
        ):
            for block in found:
                if expected not in (None, block.first) or block.first <= last:
                    raise OutboxCorrupt(f"{path}: blocks are missing")
                if not tables.finds(self._file.connection, block.first):
                    # In a damaged tree a scan and a search can disagree: it could never be removed.
                    raise OutboxCorrupt(f"{path}: a block is out of place")
                expected, last = None, block.last
                try:
                    records = block.records(self._dictionaries.find(self._file.connection, block.dictionary))
                except DamagedBlockError as error:
                    if not error.head_is_sound:
                        raise OutboxCorrupt(f"{path}: a block's head is damaged") from error
                    damaged.append(block)
                    continue
                removed = self._removed.get(block.first, ())
                for number, record in enumerate(records, block.first):
                    if number <= after or number in removed:
                        continue
                    taken_bytes += len(record)
                    if len(taken) >= limit or (taken and taken_bytes > max_bytes):
                        break
                    taken.append((number, record))
                else:
                    continue
                break
        if not after and not last and stock.stored:
            raise OutboxCorrupt(f"{path}: all blocks are missing")
        for block in damaged:
            self._file.with_room(lambda block=block: self._give_up(block))  # type: ignore[misc]
        return taken

    def _give_up(self, block: Block) -> None:
        """Set a block with a damaged payload aside, in a file of its own, and announce it."""
        with contextlib.suppress(OSError):
            recovery.damaged_name(self._file.path, f"block-{block.first}").write_bytes(block.payload)
        with self._file.transaction() as connection:
            tables.delete(connection, block.first)
            stored = self.stock.stored - block.count
            after = self.stock.renumber(connection, self.stock.issued, stored)
        self.stock.adopt(after, stored, [block])
        self._removed.pop(block.first, None)
        self._on_drop(Drop(drops.CORRUPT, block.first, block.last, block.count, block.summary))

    # Removing.

    def remove(self, numbers: Sequence[int]) -> None:
        """Forget the records with these ascending numbers. Raises OutboxDiskFull, OutboxUnusable."""
        self._file.with_room(lambda: self._remove(numbers))

    def take_down_removed(self) -> None:
        """Store which records were removed from blocks that hold others yet. Raises sqlite3.Error."""
        numbers = sorted(set[int]().union(*self._removed.values()))
        tables.write_removed(self._file.connection, numbers)

    def give_space_back(self) -> None:
        """Shrink the emptied file, if that is worth it."""
        if self._file.database_bytes() > _GIVE_BACK_BYTES:
            self._file.give_space_back()
            # What was true of readings a long outage ago is a poor sample of the next ones.
            self._dictionaries.forget()

    def forget_lost_removals(self) -> None:
        """No more blocks come back from damaged files: what was removed from lost ones counts no longer."""
        with translated(self._file.path):
            connection = self._file.connection
            lost = [first for first in self._removed if not tables.finds(connection, first)]
        for first in lost:
            del self._removed[first]

    def forget_dictionaries(self) -> Dictionary | None:
        """Another file has taken the place of this one, and holds none. The one last used."""
        return self._dictionaries.forget()

    def _remove(self, numbers: Sequence[int]) -> None:
        partial: dict[int, set[int]] = {}
        finished: list[Block] = []
        with self._file.transaction() as connection:
            for span in _spans(numbers):
                for head in tables.heads_within(connection, span.start, span.stop - 1):
                    gone = partial.setdefault(head.first, set(self._removed.get(head.first, ())))
                    if len(gone) == head.count:
                        continue
                    gone.update(_within(span, head))
                    if len(gone) == head.count:
                        tables.delete(connection, head.first)
                        finished.append(head)
            stored = self.stock.stored - sum(head.count for head in finished)
            after = (
                self.stock.renumber(connection, self.stock.issued, stored)
                if finished
                else self.stock.numbering
            )
        self._removed.update({first: gone for first, gone in partial.items() if gone})
        for head in finished:
            self._removed.pop(head.first, None)
        if finished:
            self.stock.adopt(after, stored, finished)


def _spans(numbers: Sequence[int]) -> Iterator[range]:
    """Each unbroken run of ascending numbers; a drain makes one."""
    if not numbers:
        return
    first = last = numbers[0]
    for number in numbers[1:]:
        if number != last + 1:
            yield range(first, last + 1)
            first = number
        last = number
    yield range(first, last + 1)


def _within(span: range, head: Block) -> range:
    """The part of a run of numbers that is a block's."""
    return range(max(head.first, span.start), min(head.last + 1, span.stop))
