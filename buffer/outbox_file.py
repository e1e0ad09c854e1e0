"""The file of an outbox: its lock, opening it, its transactions, its log, its caps, and room on a full disk.

The file never shrinks while it holds anything; pages of dropped blocks are used again. So the cap is on pages
in use, less the room of the other files: log, log index and ballast. ``disk_blocks`` drops the oldest blocks
for the pages that are missing.

The caller holds the lock. Blocks, and all numbers but the one a new file begins after, are the caller's.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar

from buffer import files, tables
from buffer.errors import (
    DISK_LOW,
    OUTBOX_FULL,
    OutboxCorrupt,
    OutboxDiskFull,
    OutboxError,
    OutboxForeign,
    OutboxLocked,
    OutboxTooLarge,
    OutboxUnusable,
    OutboxVersionError,
)
from buffer.files import boot_id, database_bytes, file_size, permission_problem, translated

_LOG_BYTES: Final = 4 << 20
_SMALLEST_LOG_BYTES: Final = 64 << 10
_LOG_INDEX_BYTES: Final = 128 << 10
# A block's row can split a leaf and its parents, or take a fresh page for a dictionary's copy.
_TREE_PAGES: Final = 8


def pages_for(sizes: Sequence[int], page_bytes: int) -> int:
    """The most pages that rows of these sizes may take, splits included."""
    return sum(size // (page_bytes - 8) + 1 for size in sizes) + _TREE_PAGES - 1


@dataclass(frozen=True, slots=True)
class Limits:
    """``max_bytes`` caps everything: database, log, its index, ballast; a megabyte more than that at least.

    ``min_free_disk`` bytes of the directory's file system must stay free, by ``free_bytes``;
    ``ballast_bytes`` are held on it for the day it is full.
    """

    max_bytes: int = 1 << 40
    min_free_disk: int = 0
    ballast_bytes: int = 0
    free_bytes: Callable[[Path], int] = files.free_bytes

    def with_ballast(self) -> Limits:
        """The same with as much of it as the log may hold: on a full disk that is emptied into its room."""
        return replace(self, ballast_bytes=self.log_bytes)

    @property
    def log_bytes(self) -> int:
        """How large the log may grow before it is moved into the database."""
        return min(_LOG_BYTES, max(_SMALLEST_LOG_BYTES, self.max_bytes // 16))

    def missing_pages(
        self, connection: sqlite3.Connection, sizes: Sequence[int], directory: Path, beside_bytes: int
    ) -> tuple[int, str]:
        """How many pages must become free before rows of these sizes can be stored, and why.

        ``beside_bytes`` is what damaged files take that lie there. Raises OutboxTooLarge.
        """
        page_bytes, pages, free = (
            connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_size", "page_count", "freelist_count")
        )
        needed = pages_for(sizes, page_bytes)
        other_files = self.ballast_bytes + 2 * self.log_bytes + _LOG_INDEX_BYTES
        budget = (self.max_bytes - other_files) // page_bytes
        if needed > budget // 2:
            raise OutboxTooLarge(f"{sum(sizes)} bytes are too many for outbox.max_bytes")
        over = pages - free + needed - budget
        if beside_bytes:
            # Pages of the file that are free take room, too, as long as that can be had from elsewhere.
            over = max(over, over - needed + free) + beside_bytes // page_bytes + 1
        if over > 0:
            return max(free + over, needed), OUTBOX_FULL
        growth = (needed - free) * page_bytes
        if self.min_free_disk and growth > 0 and self.free_bytes(directory) - growth < self.min_free_disk:
            return needed, DISK_LOW
        return 0, ""


log = logging.getLogger(__name__)


class DamagedFiles:
    """The files, each with its log, oldest first. ``refresh`` lists the directory."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._names: list[str] = []

    def refresh(self) -> None:
        """Find the files that there are."""
        found = self._path.parent.glob(f"{self._path.name}.damaged-*")
        self._names = sorted({file.name.removesuffix("-wal") for file in found})

    def size_bytes(self) -> int:
        """What they take."""
        return sum(file_size(file) for name in self._names for file in self._files(name))

    def delete_oldest(self) -> bool:
        """Delete one and log it; False where there is none. Raises OSError."""
        if not self._names:
            return False
        name = self._names.pop(0)
        size = sum(map(file_size, self._files(name)))
        for file in self._files(name):
            file.unlink(missing_ok=True)
        if size:
            log.warning("event=outbox.damaged_deleted file=%s bytes=%d", name, size)
        return True

    def _files(self, name: str) -> tuple[Path, Path]:
        return self._path.with_name(name), self._path.with_name(f"{name}-wal")


_CLOSED: Final = "closed"


class Lock:
    """Locks the file against a second outbox, and remembers what a damaged one can't show.

    The file has four words: the last number *issued*, twice (the first had another meaning), and the *floor*,
    below which nothing is stored: written after each commit without fsync, never too high. And the boot they
    were written in, or "closed" with fsync.
    """

    def __init__(self, path: Path) -> None:
        with translated(path), contextlib.ExitStack() as failed:
            # A file of its own: closing a descriptor of the database drops SQLite's own (POSIX) locks on it.
            self._descriptor = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
            failed.callback(self.release)
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise OutboxLocked(
                    f"{path} is in use by another fieldgate; stop that one, or give this one its own"
                    " outbox.path"
                ) from error
            words = _words(os.pread(self._descriptor, 256, 0))
            failed.pop_all()
        sound = bool(words)
        self.issued, self.floor = map(int, words[1:3]) if sound else (0, 1)
        self._boot = boot_id()
        # Whether ``issued`` is exact: nothing was issued between its writing and now.
        self.issued_is_exact = sound and words[3] in (_CLOSED, self._boot)

    def write_issued(self, issued: int, floor: int) -> None:
        """Write the numbers of a commit that is on the disk."""
        self.issued, self.floor, self.issued_is_exact = issued, floor, True
        with contextlib.suppress(OSError):
            self._write(self._boot)

    def write_closed(self) -> None:
        """Write that no more numbers are issued."""
        if self.issued:
            with contextlib.suppress(OSError):
                self._write(_CLOSED)
                os.fdatasync(self._descriptor)

    def _write(self, word: str) -> None:
        line = f"{self.issued:020d} {self.issued:020d} {self.floor:020d} {word:36}\n"
        os.pwrite(self._descriptor, line.encode(), 0)

    def release(self) -> None:
        """Release the lock. The lock file stays: else two processes could lock two files of one name."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _words(content: bytes) -> list[str]:
    """A lock file's four words; an empty list where they are damaged."""
    words = content.decode("ascii", "replace").split()
    return words if len(words) == 4 and all(word.isdigit() for word in words[:3]) else []


_BUSY_TIMEOUT_S: Final = 2.0
_T = TypeVar("_T")


class OutboxFile:
    """One SQLite file in write-ahead mode, with its ballast."""

    def __init__(self, path: Path, limits: Limits) -> None:
        self.path = path
        self.limits = limits
        self.damaged = DamagedFiles(path)
        # Preallocated, and emptied when even DELETE finds no room for its log.
        self._ballast = Path(f"{path}.ballast")
        self._connection: sqlite3.Connection | None = None

    @property
    def is_open(self) -> bool:
        """Whether there is a connection."""
        return self._connection is not None

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection. Raises OutboxUnusable where the file could not be opened."""
        if self._connection is None:
            raise OutboxUnusable(f"{self.path} is not open")
        return self._connection

    def open(self, issued: int, *, may_be_new: bool) -> None:
        """Open the file, or make it, numbering after ``issued``.

        Raises OutboxCorrupt, also for an empty file where it may not be new.
        """
        if problem := permission_problem(self.path):
            # SQLite would open it to be read only, and keep it so when the owner is right again.
            raise OutboxUnusable(f"cannot use {self.path} ({problem})")
        try:
            with translated(self.path):
                # Only the lock's holder gets here, so a busy file is a reader's: worth a wait.
                self._connection = sqlite3.connect(
                    self.path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
                )
                self._prepare(self._connection, issued, may_be_new=may_be_new)
                self.damaged.refresh()
        except OutboxError:
            self.close()
            raise

    def close(self) -> None:
        """Close the file: what was committed is on the disk."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    def size_bytes(self) -> int:
        """Everything: database, log, its index, ballast."""
        return self.database_bytes() + file_size(self._ballast)

    def database_bytes(self) -> int:
        """Database, log and its index."""
        return database_bytes(self.path)

    def missing_pages(self, sizes: Sequence[int], *, drop_oldest: bool) -> tuple[int, str]:
        """How many pages must become free before rows of these sizes can be stored, and why.

        Damaged files are deleted first. Raises OutboxTooLarge; without ``drop_oldest`` OutboxDiskFull where
        the disk has too little room.
        """
        with translated(self.path):
            while True:
                beside_bytes = self.damaged.size_bytes()
                missing, reason = self.limits.missing_pages(
                    self.connection, sizes, self.path.parent, beside_bytes
                )
                if not missing or not self.damaged.delete_oldest():
                    break
        if reason == DISK_LOW and not drop_oldest:
            raise OutboxDiskFull(f"the disk of {self.path} has less room than it must keep")
        return missing, reason

    def share_of_others(self) -> int:
        """Up to how many bytes others' records take no room from the owner's: a quarter of the file."""
        (pages,) = self.connection.execute("PRAGMA page_count").fetchone()
        return int(pages) * tables.PAGE_BYTES // 4

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Commit the body's changes, or roll them back. Raises an OutboxError."""
        connection = self.connection
        with translated(self.path):
            try:
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
            finally:
                # SQLite itself rolls some failures back, a full disk among them.
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    def with_room(self, work: Callable[[], _T]) -> _T:
        """Do the work; on a full disk once more, with the ballast's room."""
        try:
            return work()
        except OutboxDiskFull:
            if not file_size(self._ballast):
                raise
        return self.with_ballast(work)

    def with_ballast(self, work: Callable[[], _T]) -> _T:
        """Do the work with the ballast's room."""
        with contextlib.suppress(OSError):
            os.truncate(self._ballast, 0)
        try:
            return work()
        finally:
            self.restore_ballast()

    def restore_ballast(self) -> None:
        """Reserve the ballast again where it was freed and the disk has room for all of it."""
        wanted_bytes, reserved_bytes = self.limits.ballast_bytes, file_size(self._ballast)
        if reserved_bytes == wanted_bytes:
            return
        if self._connection is not None:
            with contextlib.suppress(sqlite3.OperationalError):
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        with contextlib.suppress(OSError):
            descriptor = os.open(self._ballast, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
            try:
                os.ftruncate(descriptor, wanted_bytes)
                if wanted_bytes:
                    os.posix_fallocate(descriptor, 0, wanted_bytes)
            except OSError:
                # What an earlier version has reserved stays.
                os.ftruncate(descriptor, reserved_bytes)
            finally:
                os.close(descriptor)

    def give_space_back(self) -> None:
        """Shrink the empty file and its log: VACUUM of an empty database writes a few pages."""
        # What fails now, on a full disk or beside a reader, succeeds another time.
        with contextlib.suppress(sqlite3.OperationalError):
            connection = self.connection
            connection.execute("DELETE FROM dictionaries")
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def _prepare(self, connection: sqlite3.Connection, issued: int, *, may_be_new: bool) -> None:
        connection.text_factory = tables.damaged_text
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        found = tables.names(connection)
        if not found and not version:
            if not may_be_new or self.path.stat().st_size:
                # An outbox that has lost its tables, or was cut to nothing.
                raise OutboxCorrupt(f"{self.path} is empty, and was not")
            tables.create(connection, issued)
        elif not found >= {"numbering", "blocks"}:
            raise OutboxForeign(f"{self.path} is a database, but not an outbox; choose another outbox.path")
        elif version != tables.SCHEMA_VERSION:
            self._refuse(connection, version)
        # Every time: a power cut may have come between the schema and this.
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise OutboxUnusable(f"{self.path} can't have a write-ahead log (journal mode {mode})")
        connection.execute("PRAGMA synchronous = FULL")
        # VACUUM builds the new file in a temporary one: of an empty outbox that is a few pages.
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute(f"PRAGMA journal_size_limit = {self.limits.log_bytes}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {self.limits.log_bytes // tables.PAGE_BYTES}")

    def _refuse(self, connection: sqlite3.Connection, version: int) -> None:
        """Raise OutboxVersionError, or OutboxCorrupt where the version is damaged."""
        with contextlib.suppress(sqlite3.Error):
            row = connection.execute("SELECT version FROM numbering").fetchone()
            if row is not None and row[0] == tables.SCHEMA_VERSION:
                raise OutboxCorrupt(f"{self.path} has version {version} in one place and {row[0]} in another")
        raise OutboxVersionError(
            f"{self.path} has version {version}, this program uses {tables.SCHEMA_VERSION}: "
            "drain it with the fieldgate that wrote it"
        )
