"""The durable outbox: opaque records in one SQLite file, as checksummed blocks.

Invariants:

- What ``append`` returned numbers for is on the disk: WAL with ``synchronous=FULL``, one transaction a call,
  one block a transaction.
- Nothing is given out whose checksum is wrong.
- Numbers grow by one and are never used again: the newest block or the numbering knows the last one, and the
  lock file's reservation where both are destroyed. After damage they may skip.
- A block is deleted when all its records are removed. Removal of some of them is kept in memory until a clean
  close: after a crash those come again (their readings have identities, and are counted once).
- What can't be kept is announced with a Drop, after the transaction that drops it.
- No read transaction is open between calls, so the log can always be checkpointed.
- One outbox uses the file at a time, held by a lock on ``<file>.lock`` that ends with its process. Others can
  read the file meanwhile.

One thread uses it at a time; it need not be the one that made it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

from buffer import blocks, drops, files, recovery, tables
from buffer.blocks import Block, DamagedBlockError, Dictionary
from buffer.dictionaries import Dictionaries
from buffer.drops import NOTHING_IN_MEMORY, Drop, InMemory, OnDrop
from buffer.errors import OutboxClosed, OutboxCorrupt, OutboxDiskFull, OutboxError
from buffer.files import Lock, make_directory, translated
from buffer.outbox_file import OutboxFile
from buffer.retention import Limits, pages_for
from buffer.stock import Stock, spans
from buffer.tables import APPLICATION_ID, SCHEMA_VERSION

__all__ = ["APPLICATION_ID", "BALLAST_BYTES", "SCHEMA_VERSION", "SqliteOutbox"]

BALLAST_BYTES: Final = 1 << 20
"""Room for the log of a removal and for what opening takes; see docs/durability.md."""
_GIVE_BACK_BYTES: Final = 1 << 20
"""An empty outbox smaller than this keeps its space: a flapping link would else rewrite it all the time."""
_DROPS_PER_COMMIT: Final = 500
_UNKNOWN: Final = 1 << 40
"""Where numbers go on when neither file nor lock tells the last one."""

_T = TypeVar("_T")


class SqliteOutbox:
    """Opaque records, oldest first, durable.

    ``max_bytes`` caps everything on disk, ballast included (None: no cap); ``min_free_disk`` is what must
    stay free for others, asked of ``free_bytes``. Past either the oldest records go, and ``on_drop`` is told,
    in the calling thread. A damaged file is set aside and salvaged, not refused.

    Raises OutboxLocked where another outbox uses the file, OutboxUnusable where directory or file can't be
    made or opened or the file is another program's, OutboxDiskFull, OutboxVersionError; ValueError for a cap
    too small to work with.
    """

    def __init__(
        self,
        path: Path,
        *,
        max_bytes: int | None = None,
        min_free_disk: int = 0,
        ballast_bytes: int = 0,
        free_bytes: Callable[[], int] | None = None,
        on_drop: OnDrop = drops.ignore,
    ) -> None:
        self._path = path
        self._on_drop = on_drop
        free = free_bytes or (lambda: files.free_bytes(path.parent))
        self._file = OutboxFile(path, Limits(max_bytes, min_free_disk, ballast_bytes, free))
        self._partial: dict[int, set[int]] = {}
        self._dictionaries = Dictionaries()
        self._salvages = recovery.Salvages()
        self._backfilled = 0
        make_directory(path.parent)
        self._lock: Lock | None = Lock(path)
        try:
            self._file.with_room(self._open)
        except OutboxError:
            self.close()
            raise

    @property
    def issued(self) -> int:
        """The last number that a record of the file was given."""
        return self._stock.issued

    def append(
        self,
        records: Sequence[bytes],
        summary: bytes = b"",
        *,
        not_below: int = 0,
        for_the_oldest: bool = True,
    ) -> list[int]:
        """Store all records or none, durably when it returns; their numbers, growing, never used again.

        ``summary`` comes back in the Drop if the block is ever dropped, even where its payload is damaged.
        Numbers below ``not_below`` were given to records kept elsewhere. The oldest records are dropped where
        ``max_bytes`` would be exceeded, and on a disk without room unless ``for_the_oldest`` is False. Raises
        OutboxDiskFull, OutboxUnusable (try again later).
        """
        self._ready()
        if not records:
            return []
        return self._mended(lambda: self._append(records, summary, not_below, for_the_oldest))

    def store(
        self,
        moved: Sequence[Block],
        removed: Mapping[int, Iterable[int]],
        dictionaries: Sequence[Dictionary],
        *,
        for_the_oldest: bool,
    ) -> None:
        """Store blocks that were kept elsewhere, in one commit, all or none, numbered above all that is here.

        ``removed`` are records of theirs that are gone, by the first number of the block; ``dictionaries``
        are what they are compressed with. Raises as ``append``.
        """
        self._ready()
        self._mended(lambda: self._take_over(moved, removed, dictionaries, for_the_oldest))

    def probe(self) -> None:
        """Write a little, to see whether the file could grow. Raises as ``append``."""
        self._ready()
        self._mended(self._probe)

    def skip_to(self, issued: int) -> None:
        """Never give a number up to this one. Raises as ``append``."""
        self._ready()
        if issued > self._stock.issued:
            self._mended(lambda: self._file.with_room(lambda: self._skip_to(issued)))
            self._note()

    def peek(self, after: int, limit: int, max_bytes: int) -> list[tuple[int, bytes]]:
        """The oldest records with numbers above ``after``: at most ``limit`` and ``max_bytes``, at least one.

        Damaged blocks are announced and passed over. Raises OutboxUnusable, OutboxDiskFull.
        """
        self._ready()
        self._salvage_some()
        return self._mended(lambda: self._peek(max(after, 0), limit, max_bytes))

    def remove(self, numbers: Iterable[int]) -> None:
        """Forget records, durably where their whole block is; unknown numbers are ignored.

        Raises OutboxDiskFull, OutboxUnusable (nothing is forgotten, try again later).
        """
        self._ready()
        known = sorted({number for number in numbers if 1 <= number <= self._stock.issued})
        if known and self._stock.stored:
            self._mended(lambda: self._file.with_room(lambda: self._remove(known)))
            self._note()
            if (
                not self._stock.stored
                and not self._salvages
                and files.database_bytes(self._path) > _GIVE_BACK_BYTES
            ):
                self._file.give_space_back()
                # What was true of readings a long outage ago is a poor sample of the next ones.
                self._dictionaries.forget()

    def __len__(self) -> int:
        waiting = self._stock.stored - sum(map(len, self._partial.values()))
        # What is still to be salvaged counts as one: somebody must ask for it.
        return max(waiting, 1 if self._salvages else 0)

    @property
    def dropped(self) -> int:
        """Records dropped for want of room since the file was made, announced or not."""
        return self._stock.dropped

    def size_bytes(self) -> int:
        """Bytes on disk: the database, its write-ahead log, the log's index, and the ballast."""
        return self._file.size_bytes()

    @property
    def backfilled(self) -> int:
        """Raised when records of a damaged file come in below numbers that were read already."""
        return self._backfilled

    def in_memory(self) -> InMemory:
        """Nothing is kept there."""
        return NOTHING_IN_MEMORY

    def tend(self, *, at_once: bool = False) -> None:
        """Nothing is to be done between calls."""

    def close(self) -> None:
        """Release the file; safe to call twice."""
        lock, self._lock = self._lock, None
        if lock is None:
            return
        try:
            if self._file.is_open:
                # What was stored is on the disk: a failure costs repetitions.
                with contextlib.suppress(sqlite3.Error):
                    numbers = sorted(set[int]().union(*self._partial.values()))
                    tables.write_removed(self._file.connection, numbers)
                self._file.close()
        finally:
            lock.note_close()
            lock.release()

    # Opening.

    def _open(self) -> None:
        lock = self._held
        try:
            self._connect(0)
        except OutboxCorrupt:
            self._set_aside(lock.floor, lock.issued if lock.issued_is_exact else None)
        else:
            lost = self._lost_after_the_newest()
            if lost is not None:
                self._on_drop(lost)
        for source in recovery.pending(self._path):
            self._begin_salvage(source)
        self._file.mind_ballast()

    def _connect(self, issued: int) -> None:
        """Open the file, or make it, numbering after ``issued``. Raises OutboxCorrupt."""
        recovery.pending(self._path)
        self._file.open(issued, may_be_new=issued > 0 or not self._held.issued)
        try:
            with translated(self._path):
                connection = self._file.connection
                self._stock = Stock(connection, self._path)
                self._partial = {}
                for span in spans(tables.read_removed(connection)):
                    for head in tables.heads_within(connection, span.start, span.stop - 1):
                        numbers = range(max(head.first, span.start), min(head.last + 1, span.stop))
                        self._partial.setdefault(head.first, set()).update(numbers)
        except OutboxError:
            self._file.close()
            raise

    def _ready(self) -> None:
        """Open the file again where that failed before. Raises OutboxClosed and what opening raises."""
        if self._lock is None:
            raise OutboxClosed(f"{self._path} is closed")
        if not self._file.is_open:
            self._file.with_room(self._open)

    def _lost_after_the_newest(self) -> Drop | None:
        """What was stored after the newest block that can be found: a damaged log ends there, silently."""
        first = self._stock.issued + 1
        if self._held.issued > self._stock.issued:
            last = self._held.issued if self._held.issued_is_exact else self._held.reserved
        else:
            return None
        self._stock.issued = max(last, self._stock.issued)
        with self._file.transaction() as connection:
            self._stock.renumber(connection)
        count = last - first + 1 if self._held.issued_is_exact else None
        return Drop(drops.CORRUPT, first, last, count, b"") if last >= first else None

    # Appending.

    def _append(
        self, records: Sequence[bytes], summary: bytes, not_below: int, for_the_oldest: bool
    ) -> list[int]:
        first = max(self._stock.issued + 1, not_below)
        self._held.reserve(first + len(records) - 1)
        dictionary, copy = self._dictionaries.for_append(self._file.connection, records)
        block = blocks.make(first, records, summary, dictionary)
        copies = [dictionary] if copy and dictionary is not None else []
        self._store([block], copies, for_the_oldest)
        self._dictionaries.appended(dictionary)
        self._numbered(block)
        return list(range(block.first, block.last + 1))

    def _take_over(
        self,
        moved: Sequence[Block],
        removed: Mapping[int, Iterable[int]],
        dictionaries: Sequence[Dictionary],
        for_the_oldest: bool,
    ) -> None:
        self._held.reserve(moved[-1].last)
        new = [dictionary for dictionary in dictionaries if not self._dictionaries.has(dictionary)]
        self._store(moved, new, for_the_oldest)
        for dictionary in new:
            self._dictionaries.stored(dictionary)
        for block in moved:
            if gone := set(removed.get(block.first, ())):
                self._partial[block.first] = gone
            self._numbered(block)

    def _numbered(self, block: Block) -> None:
        """A new block is on the disk, and its numbers are given."""
        if block.first > self._stock.issued + 1:
            # Kept elsewhere to their end: if the file is damaged one day, nobody misses them here.
            self._stock.gone.append((self._stock.issued + 1, block.first - 1))
        self._stock.issued = max(block.last, self._stock.issued)
        self._note()

    def _probe(self) -> None:
        with translated(self._path):
            _, reason = self._file.limits.missing_pages(self._file.connection, [tables.PAGE_BYTES])
        if reason == drops.DISK_LOW:
            raise OutboxDiskFull(f"the disk of {self._path} has less room than it must keep")
        with self._file.transaction() as connection:
            tables.write_numbering(connection, self._stock.numbering)

    def _skip_to(self, issued: int) -> None:
        with self._file.transaction() as connection:
            after = self._stock.renumber(connection, issued)
        self._stock.gone.append((self._stock.issued + 1, issued))
        self._stock.issued = issued
        self._stock.adopt(after, self._stock.stored)

    def _store(self, fresh: Sequence[Block], copies: Sequence[Dictionary], for_the_oldest: bool) -> None:
        """Store blocks, and copies of dictionaries, in one transaction."""
        sizes = [block.size_bytes for block in fresh]
        with translated(self._path):
            missing, reason = self._file.limits.missing_pages(self._file.connection, sizes)
        if reason == drops.DISK_LOW and not for_the_oldest:
            raise OutboxDiskFull(f"the disk of {self._path} has less room than it must keep")
        try:
            dropped = self._insert(fresh, copies, missing, reason)
        except OutboxDiskFull:
            if not for_the_oldest or not self._stock.stored:
                raise
            # In the file there is room as soon as the oldest are gone; the ballast is for the log of that.
            self._file.free_ballast()
            try:
                dropped = self._insert(fresh, copies, pages_for(sizes, tables.PAGE_BYTES), drops.DISK_LOW)
            finally:
                self._file.mind_ballast()
        for drop in dropped:
            removed = len(self._partial.pop(drop.first, ()))
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
            stored = self._stock.stored - gone + added
            for dictionary in copies:
                tables.add_dictionary(connection, dictionary)
            dropped_ever = self._stock.dropped + sum(drop.count or 0 for drop in dropped)
            after = self._stock.renumber(connection, fresh[-1].last, stored, dropped_ever)
        self._stock.adopt(after, stored, dropped)
        return dropped

    # Reading.

    def _peek(self, after: int, limit: int, max_bytes: int) -> list[tuple[int, bytes]]:
        taken: list[tuple[int, bytes]] = []
        if limit < 1 or after > self._stock.issued:
            return taken
        damaged: list[Block] = []
        expected = self._stock.oldest if not after else None
        taken_bytes = 0
        last = 0
        with (
            translated(self._path),
            contextlib.closing(tables.blocks_from(self._file.connection, after + 1)) as found,
        ):
            for block in found:
                if expected not in (None, block.first) or block.first <= last:
                    raise OutboxCorrupt(f"{self._path}: blocks are missing")
                if not tables.finds(self._file.connection, block.first):
                    # In a damaged tree a scan and a search can disagree: it could never be removed.
                    raise OutboxCorrupt(f"{self._path}: a block is out of place")
                expected, last = None, block.last
                try:
                    records = block.records(self._dictionaries.find(self._file.connection, block.dictionary))
                except DamagedBlockError as error:
                    if not error.head_is_sound:
                        raise OutboxCorrupt(f"{self._path}: a block's head is damaged") from error
                    damaged.append(block)
                    continue
                removed = self._partial.get(block.first, ())
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
        if not after and not last and self._stock.stored:
            raise OutboxCorrupt(f"{self._path}: all blocks are missing")
        for block in damaged:
            self._file.with_room(lambda block=block: self._give_up(block))  # type: ignore[misc]
        return taken

    def _give_up(self, block: Block) -> None:
        """Set a block with a damaged payload aside, in a file of its own, and announce it."""
        aside = self._path.with_name(f"{self._path.name}.damaged-{recovery.stamp()}-block-{block.first}")
        with contextlib.suppress(OSError):
            aside.write_bytes(block.payload)
        with self._file.transaction() as connection:
            tables.delete(connection, block.first)
            stored = self._stock.stored - block.count
            after = self._stock.renumber(connection, self._stock.issued, stored)
        self._stock.adopt(after, stored, [block])
        self._partial.pop(block.first, None)
        self._on_drop(Drop(drops.CORRUPT, block.first, block.last, block.count, block.summary))

    # Removing.

    def _remove(self, numbers: Sequence[int]) -> None:
        partial: dict[int, set[int]] = {}
        finished: list[Block] = []
        with self._file.transaction() as connection:
            for span in spans(numbers):
                for head in tables.heads_within(connection, span.start, span.stop - 1):
                    gone = partial.setdefault(head.first, set(self._partial.get(head.first, ())))
                    if len(gone) == head.count:
                        continue
                    gone.update(range(max(head.first, span.start), min(head.last + 1, span.stop)))
                    if len(gone) == head.count:
                        tables.delete(connection, head.first)
                        finished.append(head)
            stored = self._stock.stored - sum(head.count for head in finished)
            after = (
                self._stock.renumber(connection, self._stock.issued, stored)
                if finished
                else self._stock.numbering
            )
        self._partial.update({first: gone for first, gone in partial.items() if gone})
        for head in finished:
            self._partial.pop(head.first, None)
        if finished:
            self._stock.adopt(after, stored, finished)

    # Recovering.

    def _mended(self, work: Callable[[], _T]) -> _T:
        """Do the work; where the file turns out to be damaged, set it aside and do it on a fresh one."""
        try:
            return work()
        except OutboxCorrupt:
            self._file.close()
            self._set_aside(self._stock.whole_from, self._stock.issued, self._stock.gone)
            return work()

    def _set_aside(self, floor: int, last: int | None, gone: Sequence[tuple[int, int]] = ()) -> None:
        """Start a fresh file in a damaged one's place; ``last`` is the last number issued, where known."""
        ceiling = (self._held.reserved or _UNKNOWN) if last is None else last
        source = recovery.set_aside(self._path, floor, ceiling, last_is_known=last is not None)
        partial = self._partial
        self._connect(issued=ceiling)
        self._partial = partial
        self._begin_salvage(source, self._dictionaries.forget(), gone)

    def _begin_salvage(
        self, source: Path, spare: Dictionary | None = None, gone: Sequence[tuple[int, int]] = ()
    ) -> None:
        with translated(self._path):
            self._file.connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        with self._path.open("rb") as file:
            first_page = file.read(tables.PAGE_BYTES)
        self._salvages.begin(source, first_page, spare, gone)

    def _salvage_some(self) -> None:
        """Copy from damaged files for a moment. On a disk without room they wait: nothing goes for them."""
        with contextlib.suppress(OutboxDiskFull):
            self._salvages.step(self._path, self._store_salvaged, self._on_drop)

    def _store_salvaged(self, block: Block, dictionary: Dictionary | None) -> None:
        copies = [] if dictionary is None or self._dictionaries.has(dictionary) else [dictionary]
        self._store([block], copies, for_the_oldest=False)
        self._backfilled += 1
        for copy in copies:
            self._dictionaries.stored(copy)

    # Bookkeeping.

    @property
    def _held(self) -> Lock:
        if self._lock is None:
            raise OutboxClosed(f"{self._path} is closed")
        return self._lock

    def _note(self) -> None:
        self._held.note(self._stock.issued, self._stock.oldest or self._stock.issued + 1)
