"""The file of an outbox: opening it, its transactions, its log, and room to work on a full disk.

The caller holds the lock. Blocks, and all numbers but the one a new file begins after, are the caller's.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeVar

from buffer import tables
from buffer.damaged_files import DamagedFiles
from buffer.drops import DISK_LOW
from buffer.errors import (
    OutboxCorrupt,
    OutboxDiskFull,
    OutboxError,
    OutboxForeign,
    OutboxUnusable,
    OutboxVersionError,
)
from buffer.files import database_bytes, file_size, permission_problem
from buffer.space_limits import Limits
from buffer.sqlite_errors import translated

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
        elif "numbering" not in found or found.isdisjoint({"blocks", "records"}):
            raise OutboxForeign(f"{self.path} is a database, but not an outbox; choose another outbox.path")
        else:
            # Version 1 had ``records`` in place of ``blocks``.
            self._check_version(connection, version)
        # Every time: a power cut may have come between the schema and this.
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise OutboxUnusable(f"{self.path} can't have a write-ahead log (journal mode {mode})")
        connection.execute("PRAGMA synchronous = FULL")
        # VACUUM builds the new file in a temporary one: of an empty outbox that is a few pages.
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute(f"PRAGMA journal_size_limit = {self.limits.log_bytes}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {self.limits.log_bytes // tables.PAGE_BYTES}")

    def _check_version(self, connection: sqlite3.Connection, version: int) -> None:
        """Take over the version before, refuse another one.

        Raises OutboxVersionError; OutboxCorrupt where the version is damaged.
        """
        if version == tables.VERSION_BEFORE:
            tables.take_over(connection)
            return
        if version == tables.SCHEMA_VERSION:
            return
        with contextlib.suppress(sqlite3.Error):
            row = connection.execute("SELECT version FROM numbering").fetchone()
            if row is not None and row[0] == tables.SCHEMA_VERSION:
                raise OutboxCorrupt(f"{self.path} has version {version} in one place and {row[0]} in another")
        raise OutboxVersionError(
            f"{self.path} has version {version}, this program uses {tables.SCHEMA_VERSION}: "
            "drain it with the fieldgate that wrote it"
        )
