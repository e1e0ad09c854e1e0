"""The durable outbox: opaque records in one SQLite file, as checksummed blocks.

Invariants:

- What ``append`` returned numbers for is on the disk: WAL with ``synchronous=FULL``, one transaction a call,
  one block a transaction. A block is of the owner's records or of others'.
- Where room is needed, others' blocks go first, the oldest of them, while they hold more than a quarter of
  the file; then the oldest of all.
- No record is returned whose checksum is wrong.
- Numbers grow by one and are never used again: the newest block or the numbering has the last one, and the
  lock file where both are destroyed. After damage they may skip; what is left of the file keeps its own.
- A block is deleted when all its records are removed. Removal of some of them is kept in memory until a clean
  close: after a crash those are read again (their readings have identities, and are counted once).
- Every loss is reported with a Drop, after the transaction that
- No read transaction is open between calls, so the log can always be checkpointed.
- One outbox uses the file at a time, by a lock on ``<file>.lock`` that ends with its process. Others can read
  the file meanwhile.

This module: the lock, opening, and replacing a damaged file. The blocks are buffer.disk_blocks'.

A damaged file and its log are renamed to ``<file>.salvage-<when>-<floor>-<last>-<certainty>`` and a new file
replaces them. One pass copies into it, under the numbers they had, the blocks that SQLite still reads and
whose heads are sound; a payload is judged when it is read; the rest is announced. Then the name becomes
``<file>.damaged-…``, for people to examine. A crash before that repeats the pass.

One thread uses it at a time; it need not be the one that made it.
"""

from __future__ import annotations

import contextlib
import sqlite3
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import quote

from buffer import tables
from buffer.disk_blocks import DiskBlocks
from buffer.errors import (
    CORRUPT,
    Drop,
    OnDrop,
    OutboxClosed,
    OutboxCorrupt,
    OutboxError,
    OutboxForeign,
    OutboxLocked,
    OutboxVersionError,
    ignore,
)
from buffer.files import make_directory, move_database, translated
from buffer.outbox_file import Limits, Lock, OutboxFile
from buffer.tables import NumberRanges

_SALVAGE: Final = ".salvage-"
_DAMAGED: Final = ".damaged-"
_KNOWN, _AT_MOST = "known", "atmost"


class Aside:
    """A damaged file that was set aside; records ``floor`` to ``last`` may have been in it."""

    def __init__(self, source: Path) -> None:
        self._source = source
        *_, floor, last, certainty = source.name.split("-")
        self.floor, self.last, self.last_is_known = int(floor), int(last), certainty == _KNOWN

    @contextlib.contextmanager
    def opened(self) -> Iterator[sqlite3.Connection]:
        """The file, read only: closing it as the last reader must not move the log into it."""
        with contextlib.closing(
            sqlite3.connect(f"file:{quote(str(self._source))}?mode=ro", uri=True, check_same_thread=False)
        ) as connection:
            connection.text_factory = tables.damaged_text
            yield connection

    def finish(self) -> None:
        """Give the file its final name."""
        move_database(self._source, Path(str(self._source).replace(_SALVAGE, _DAMAGED)))


def set_aside(path: Path, floor: int, last: int, *, last_is_known: bool) -> None:
    """Rename a damaged file; records ``floor`` to ``last`` may have been in it."""
    when = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    certainty = _KNOWN if last_is_known else _AT_MOST
    target = path.with_name(f"{path.name}{_SALVAGE}{when}-{floor}-{last}-{certainty}")
    move_database(path, target)
    # A file that has vanished gets the name, too: the loss of its records is still to be reported.
    target.touch()


def pending(path: Path) -> list[Aside]:
    """Files set aside and not yet copied from, oldest first."""
    found = path.parent.glob(f"{path.name}{_SALVAGE}*")
    return [Aside(file) for file in sorted(found) if file.name.endswith((_KNOWN, _AT_MOST))]


def losses(asides: list[Aside], found: NumberRanges, stored: int | None) -> Iterator[Drop]:
    """What none of the files set aside had; ``stored`` is how many records there were, None if unknown."""
    floor, last = min(aside.floor for aside in asides), max(aside.last for aside in asides)
    missing = list(found.missing(floor, last))
    lost = sum(end - begin + 1 for begin, end in missing)
    if stored is not None:
        left = max(stored - (last - floor + 1 - lost), 0)
        if left < lost:
            # Others of these numbers were removed or dropped before.
            missing = [(missing[0][0], missing[-1][1])] if left else []
            lost = left
    for begin, end in missing:
        count = lost if len(missing) == 1 else end - begin + 1
        is_known = asides[-1].last_is_known or end < last
        yield Drop(CORRUPT, begin, end, count if is_known else None, b"")


_NO_LIMITS: Final = Limits()
_UNKNOWN: Final = 1 << 20
"""Numbers skip so many where the last one is not known: the lock file is half a minute behind at most."""

_T = TypeVar("_T")


class SqliteOutbox:
    """Opaque records, oldest first, durable.

    Past the ``limits`` the oldest records are dropped, and ``on_drop`` is called in the calling thread. A
    damaged file is set aside, and what SQLite reads of it kept.

    Raises OutboxLocked where another outbox uses the file, OutboxForeign where it is another program's,
    OutboxVersionError; where directory or file can't be made or opened OutboxUnusable, OutboxDiskFull, or
    with ``patient`` nothing: each call tries again, and ``problem`` is why this one failed.
    """

    def __init__(
        self, path: Path, limits: Limits = _NO_LIMITS, *, on_drop: OnDrop = ignore, patient: bool = False
    ) -> None:
        self._path = path
        self._on_drop = on_drop
        self._file = OutboxFile(path, limits)
        self._blocks = DiskBlocks(self._file, on_drop)
        self._lock: Lock | None = None
        self._closed = False
        self.problem: str | None = None
        try:
            self._ready()
        except OutboxError as error:
            refused = isinstance(error, OutboxLocked | OutboxForeign | OutboxVersionError)
            if refused or not patient:
                self.close()
                raise
            self.problem = str(error)

    @property
    def issued(self) -> int:
        """The last number issued to a record of the file."""
        return self._blocks.numbering.issued

    def append(
        self,
        records: Sequence[bytes],
        summary: bytes = b"",
        *,
        others: bool = False,
        drop_oldest: bool = True,
    ) -> list[int]:
        """Store all records or none, durably when it returns; their numbers, growing, never used again.

        ``summary`` is reported in the Drop if the block is ever dropped, even where its payload is damaged.
        Where the cap would be exceeded, and on a disk without room unless ``drop_oldest`` is False, blocks
        are dropped: of ``others``' records while they hold more than their share, else the oldest.
        Raises OutboxDiskFull, OutboxUnusable (try again later).
        """
        self._ready()
        if not records:
            return []

        numbers = self._repaired(
            lambda: self._blocks.append(records, summary, others=others, drop_oldest=drop_oldest)
        )
        self._write_issued()
        return numbers

    def probe(self) -> None:
        """Write a little, to check whether the file could grow. Raises as ``append``."""
        self._ready()
        self._repaired(self._blocks.probe)

    def peek(self, after: int, limit: int, max_bytes: int) -> list[tuple[int, bytes]]:
        """The oldest records with numbers above ``after``: at most ``limit`` and ``max_bytes``, at least one.

        Damaged blocks are reported and skipped. Raises OutboxUnusable, OutboxDiskFull.
        """
        self._ready()
        return self._repaired(lambda: self._blocks.peek(max(after, 0), limit, max_bytes))

    def remove(self, numbers: Iterable[int]) -> None:
        """Remove records, durably where their whole block is; unknown numbers are ignored.

        Raises OutboxDiskFull, OutboxUnusable (nothing is removed, try again later).
        """
        self._ready()
        known = sorted(set(numbers))
        known = known[bisect_left(known, 1) : bisect_right(known, self.issued)]
        if known and self._blocks.numbering.stored:
            self._repaired(lambda: self._blocks.remove(known))
            self._write_issued()
            if not self._blocks.numbering.stored:
                self._blocks.give_space_back()

    def __len__(self) -> int:
        return len(self._blocks)

    def size_bytes(self) -> int:
        """Bytes on disk: the database, its write-ahead log, the log's index, and the ballast."""
        return self._file.size_bytes()

    def close(self) -> None:
        """Release the file; safe to call twice."""
        self._closed = True
        lock, self._lock = self._lock, None
        if lock is None:
            return
        try:
            if self._file.is_open:
                # A failure costs repetitions, no record.
                with contextlib.suppress(sqlite3.Error):
                    self._blocks.write_removed()
                self._file.close()
                lock.write_closed()
        finally:
            lock.release()

    # Opening.

    def _open(self) -> None:
        lock = self._held
        with translated(self._path):
            asides = pending(self._path)
            try:
                # Where a crash came between setting the newest aside and its replacement.
                self._connect(asides[-1].last if asides and lock.issued <= asides[-1].last else 0)
            except OutboxCorrupt:
                self._set_aside(lock.floor, lock.issued if lock.issued_is_exact else None)
            else:
                self._recover()
                lost = self._lost_after_the_newest()
                if lost is not None:
                    self._on_drop(lost)
            self._file.restore_ballast()

    def _connect(self, issued: int) -> None:
        """Open the file, or make it, numbering after ``issued``. Raises OutboxCorrupt."""
        self._file.open(issued, may_be_new=issued > 0 or not self._held.issued)
        try:
            with translated(self._path):
                self._blocks.load()
        except OutboxError:
            self._file.close()
            raise

    def _ready(self) -> None:
        """Open the file where that has failed before. Raises OutboxClosed and what opening raises."""
        if self._closed:
            raise OutboxClosed(f"{self._path} is closed")
        if self._lock is None:
            make_directory(self._path.parent)
            self._lock = Lock(self._path)
        if not self._file.is_open:
            self._file.with_room(self._open)

    def _lost_after_the_newest(self) -> Drop | None:
        """The records stored after the newest block: SQLite silently ends a damaged log there."""
        lock, found = self._held, self._blocks.numbering.issued
        if lock.issued <= found:
            return None
        last = lock.issued + (0 if lock.issued_is_exact else _UNKNOWN)
        self._blocks.skip_to(last)
        return Drop(CORRUPT, found + 1, last, last - found if lock.issued_is_exact else None, b"")

    # Recovering.

    def _repaired(self, work: Callable[[], _T]) -> _T:
        """Do the work; where the file turns out to be damaged, set it aside and do it on a new one."""
        try:
            with translated(self._path):
                return work()
        except OutboxCorrupt:
            self._file.close()
        with translated(self._path):
            numbering = self._blocks.numbering
            self._set_aside(numbering.oldest or numbering.issued + 1, numbering.issued, numbering.stored)
            return work()

    def _set_aside(self, floor: int, last: int | None, stored: int | None = None) -> None:
        """Replace a damaged file with a new one.

        ``last`` is the last number issued, ``stored`` how many records it had, where known.
        """
        ceiling = self._held.issued + _UNKNOWN if last is None else last
        set_aside(self._path, floor, ceiling, last_is_known=last is not None)
        self._connect(ceiling)
        self._recover(stored)

    def _recover(self, stored: int | None = None) -> None:
        """Copy what SQLite reads of the files set aside, and report what is missing."""
        asides = pending(self._path)
        if not asides:
            return
        found = NumberRanges()
        for aside in asides:
            with aside.opened() as damaged:
                self._blocks.restore(damaged, found)
        self._write_issued()
        for loss in losses(asides, found, stored):
            self._on_drop(loss)
        for aside in asides:
            aside.finish()
        self._file.damaged.refresh()

    # The lock.

    @property
    def _held(self) -> Lock:
        if self._lock is None:
            raise OutboxClosed(f"{self._path} is closed")
        return self._lock

    def _write_issued(self) -> None:
        numbering = self._blocks.numbering
        self._held.write_issued(numbering.issued, numbering.oldest or numbering.issued + 1)
