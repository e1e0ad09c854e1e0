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

Here: the lock, opening, and what to do about a damaged file. What is in the file is buffer.disk_blocks'.

One thread uses it at a time; it need not be the one that made it.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

from buffer import drops, files, recovery
from buffer.blocks import Block, Dictionary
from buffer.disk_blocks import DiskBlocks
from buffer.drops import NOTHING_IN_MEMORY, Drop, InMemory, OnDrop
from buffer.errors import OutboxClosed, OutboxCorrupt, OutboxDiskFull, OutboxError
from buffer.files import make_directory
from buffer.lock import Lock
from buffer.outbox_file import OutboxFile
from buffer.retention import Limits
from buffer.tables import APPLICATION_ID, SCHEMA_VERSION

__all__ = ["APPLICATION_ID", "BALLAST_BYTES", "SCHEMA_VERSION", "SqliteOutbox"]

BALLAST_BYTES: Final = 1 << 20
"""Room for the log of a removal and for what opening takes; see docs/durability.md."""
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
        self._blocks = DiskBlocks(self._file, on_drop)
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
        return self._blocks.stock.issued

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

        def append() -> list[int]:
            first = max(self._blocks.stock.issued + 1, not_below)
            self._held.reserve(first + len(records) - 1)
            return self._blocks.append(first, records, summary, for_the_oldest=for_the_oldest)

        numbers = self._mended(append)
        self._note()
        return numbers

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

        def store() -> None:
            self._held.reserve(moved[-1].last)
            self._blocks.take_over(moved, removed, dictionaries, for_the_oldest=for_the_oldest)

        self._mended(store)
        self._note()

    def probe(self) -> None:
        """Write a little, to see whether the file could grow. Raises as ``append``."""
        self._ready()
        self._mended(self._blocks.probe)

    def skip_to(self, issued: int) -> None:
        """Never give a number up to this one. Raises as ``append``."""
        self._ready()
        if issued > self._blocks.stock.issued:
            self._mended(lambda: self._blocks.skip_to(issued))
            self._note()

    def peek(self, after: int, limit: int, max_bytes: int) -> list[tuple[int, bytes]]:
        """The oldest records with numbers above ``after``: at most ``limit`` and ``max_bytes``, at least one.

        Damaged blocks are announced and passed over. Raises OutboxUnusable, OutboxDiskFull.
        """
        self._ready()
        self._salvage_some()
        return self._mended(lambda: self._blocks.peek(max(after, 0), limit, max_bytes))

    def remove(self, numbers: Iterable[int]) -> None:
        """Forget records, durably where their whole block is; unknown numbers are ignored.

        Raises OutboxDiskFull, OutboxUnusable (nothing is forgotten, try again later).
        """
        self._ready()
        known = sorted({number for number in numbers if 1 <= number <= self.issued})
        if known and self._blocks.stock.stored:
            self._mended(lambda: self._blocks.remove(known))
            self._note()
            if not self._blocks.stock.stored and not self._salvages:
                self._blocks.give_space_back()

    def __len__(self) -> int:
        # What is still to be salvaged counts as one: somebody must ask for it.
        return max(self._blocks.waiting, 1 if self._salvages else 0)

    @property
    def dropped(self) -> int:
        """Records dropped for want of room since the file was made, announced or not."""
        return self._blocks.stock.dropped

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
                    self._blocks.take_down_removed()
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

    def _connect(self, issued: int, *, replaces: bool = False) -> None:
        """Open the file, or make it, numbering after ``issued``. Raises OutboxCorrupt."""
        recovery.pending(self._path)
        self._file.open(issued, may_be_new=issued > 0 or not self._held.issued)
        try:
            self._blocks.load(replaces=replaces)
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
        lock, found = self._held, self._blocks.stock.issued
        if lock.issued <= found:
            return None
        last = max(lock.issued if lock.issued_is_exact else lock.reserved, found)
        self._blocks.lose_up_to(last)
        count = last - found if lock.issued_is_exact else None
        return Drop(drops.CORRUPT, found + 1, last, count, b"") if last > found else None

    # Recovering.

    def _mended(self, work: Callable[[], _T]) -> _T:
        """Do the work; where the file turns out to be damaged, set it aside and do it on a fresh one."""
        try:
            return work()
        except OutboxCorrupt:
            self._file.close()
            stock = self._blocks.stock
            self._set_aside(stock.whole_from, stock.issued, stock.gone)
            return work()

    def _set_aside(self, floor: int, last: int | None, gone: Sequence[tuple[int, int]] = ()) -> None:
        """Start a fresh file in a damaged one's place; ``last`` is the last number issued, where known."""
        ceiling = (self._held.reserved or _UNKNOWN) if last is None else last
        source = recovery.set_aside(self._path, floor, ceiling, last_is_known=last is not None)
        self._connect(issued=ceiling, replaces=True)
        self._begin_salvage(source, self._blocks.forget_dictionaries(), gone)

    def _begin_salvage(
        self, source: Path, spare: Dictionary | None = None, gone: Sequence[tuple[int, int]] = ()
    ) -> None:
        self._salvages.begin(source, self._file.first_page(), spare, gone)

    def _salvage_some(self) -> None:
        """Copy from damaged files for a moment. On a disk without room they wait: nothing goes for them."""
        if not self._salvages:
            return
        with contextlib.suppress(OutboxDiskFull):
            self._salvages.step(self._path, self._take_back, self._on_drop)
        if not self._salvages:
            self._blocks.forget_lost_removals()

    def _take_back(self, block: Block, dictionary: Dictionary | None) -> None:
        self._blocks.take_back(block, dictionary)
        self._backfilled += 1

    # The lock.

    @property
    def _held(self) -> Lock:
        if self._lock is None:
            raise OutboxClosed(f"{self._path} is closed")
        return self._lock

    def _note(self) -> None:
        stock = self._blocks.stock
        self._held.note(stock.issued, stock.oldest or stock.issued + 1)
