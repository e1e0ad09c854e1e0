"""The durable outbox: opaque records in one SQLite file.

Invariants:

- What ``append`` returned numbers for is on the disk: WAL with ``synchronous=FULL``, one transaction a call.
- Numbers grow by one and are never used again, also after the newest record was removed: ``remove`` stores
  the last number issued in the transaction that deletes its record. (AUTOINCREMENT keeps the same promise
  for one more page written with every append.)
- No read transaction is open between calls, so the log can always be checkpointed.
- One outbox uses the file at a time, held by a lock on ``<file>.lock`` that ends with its process. Others can
  read the file meanwhile.

One thread uses it at a time; it need not be the one that made it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from buffer.errors import (
    OutboxClosed,
    OutboxCorrupt,
    OutboxDiskFull,
    OutboxError,
    OutboxLocked,
    OutboxUnusable,
    OutboxVersionError,
)

SCHEMA_VERSION: Final = 1
"""``PRAGMA user_version`` of the files this module writes."""
APPLICATION_ID: Final = 0x6664_676F
"""``PRAGMA application_id`` ("fdgo"): tells an outbox from any other SQLite file."""

_BUSY_TIMEOUT_S: Final = 2.0
_LOG_LIMIT_BYTES: Final = 4 << 20
_GIVE_BACK_BYTES: Final = 1 << 20
"""An empty outbox smaller than this keeps its space: a flapping link would else rewrite it all the time."""

# The primary codes (https://www.sqlite.org/rescode.html) that mean damaged content; every other (FULL,
# IOERR, READONLY, CANTOPEN, PERM) is the disk's, and the content is as good as it was.
_CORRUPT: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_LOCKED: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})


class SqliteOutbox:
    """Opaque records, oldest first, durable.

    Raises OutboxLocked where another outbox uses the file, OutboxUnusable where directory or file can't be
    made or opened, OutboxDiskFull, OutboxCorrupt, OutboxVersionError.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        _make_directory(path.parent)
        self._lock = _take_lock(path)
        self._connection: sqlite3.Connection | None = None
        try:
            with self._translated():
                # Only the lock's holder gets here, so a busy file is a reader's: worth a wait.
                self._connection = sqlite3.connect(
                    path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
                )
                self._prepare(self._connection)
                self._count, self._issued = self._take_stock(self._connection)
        except OutboxError:
            self.close()
            raise

    def append(self, records: Sequence[bytes]) -> list[int]:
        """Store all records or none, durably when it returns; their numbers, growing, never used again.

        Raises OutboxDiskFull, OutboxUnusable (try again later), OutboxCorrupt.
        """
        if not records:
            return []
        first = self._issued + 1
        rows = list(enumerate(records, first))
        with self._transaction() as connection:
            connection.executemany("INSERT INTO records (number, record) VALUES (?, ?)", rows)
        self._issued += len(rows)
        self._count += len(rows)
        return [number for number, _ in rows]

    def peek(self, after: int, limit: int, max_bytes: int) -> list[tuple[int, bytes]]:
        """The oldest records with numbers above ``after``: at most ``limit`` and ``max_bytes``, at least one.

        Raises OutboxUnusable, OutboxCorrupt.
        """
        taken: list[tuple[int, bytes]] = []
        taken_bytes = 0
        with self._translated():
            cursor = self._open_connection().execute(
                "SELECT number, record FROM records WHERE number > ? ORDER BY number LIMIT ?",
                (min(max(after, 0), self._issued), max(limit, 0)),
            )
            # Closing ends the read transaction: a snapshot left open would let the log grow without bound.
            with contextlib.closing(cursor):
                for number, record in cursor:
                    taken_bytes += len(record)
                    if taken and taken_bytes > max_bytes:
                        break
                    taken.append((number, record))
        return taken

    def remove(self, numbers: Iterable[int]) -> None:
        """Forget records, durably when it returns; unknown numbers are ignored.

        Raises OutboxDiskFull, OutboxUnusable (nothing is forgotten, try again later), OutboxCorrupt.
        """
        known = sorted({number for number in numbers if 1 <= number <= self._issued})
        if not known:
            return
        removed = 0
        with self._transaction() as connection:
            for first, last in _spans(known):
                removed += connection.execute(
                    "DELETE FROM records WHERE number BETWEEN ? AND ?", (first, last)
                ).rowcount
            if removed and known[-1] == self._issued:
                connection.execute("UPDATE numbering SET issued = ?", (self._issued,))
        self._count -= removed
        if removed and not self._count and self.size_bytes() > _GIVE_BACK_BYTES:
            self._give_space_back()

    def __len__(self) -> int:
        return self._count

    def size_bytes(self) -> int:
        """Bytes on disk: the database, its write-ahead log and the log's index."""
        return sum(_file_size(Path(f"{self._path}{suffix}")) for suffix in ("", "-wal", "-shm"))

    def close(self) -> None:
        """Release the file; safe to call twice."""
        connection, self._connection = self._connection, None
        try:
            if connection is not None:
                with self._translated():
                    connection.close()
        finally:
            # The lock file stays: removing it would let two processes lock two files of one name.
            lock, self._lock = self._lock, -1
            if lock >= 0:
                os.close(lock)

    def _open_connection(self) -> sqlite3.Connection:
        if self._connection is None:
            raise OutboxClosed(f"{self._path} is closed")
        return self._connection

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Commit what the block does, or undo it and raise an OutboxError."""
        connection = self._open_connection()
        with self._translated():
            try:
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
            finally:
                # SQLite itself rolls some failures back, a full disk among them.
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise _outbox_error(self._path, error) from error

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Create the schema in a new file; check whose an old one is."""
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if not tables and not version:
            _create_schema(connection)
        else:
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            if application != APPLICATION_ID:
                raise OutboxCorrupt(
                    f"{self._path} is a database, but not an outbox; choose another outbox.path"
                )
            if version != SCHEMA_VERSION:
                raise OutboxVersionError(
                    f"{self._path} has version {version}, this program knows {SCHEMA_VERSION}: "
                    "drain it with the version that wrote it, or upgrade"
                )
        # Every time: a power cut may have come between the schema and this.
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise OutboxUnusable(f"{self._path} can't have a write-ahead log (journal mode {mode})")
        connection.execute("PRAGMA synchronous = FULL")
        # VACUUM builds the new file in a temporary one: of an empty outbox that is three pages.
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute(f"PRAGMA journal_size_limit = {_LOG_LIMIT_BYTES}")

    def _take_stock(self, connection: sqlite3.Connection) -> tuple[int, int]:
        """How many records there are, and the last number issued."""
        count, newest = connection.execute(
            "SELECT count(*), coalesce(max(number), 0) FROM records"
        ).fetchone()
        row = connection.execute("SELECT issued FROM numbering").fetchone()
        if row is None:
            raise OutboxCorrupt(f"{self._path} has lost its numbering; set it aside and start a new one")
        return count, max(newest, row[0])

    def _give_space_back(self) -> None:
        """Shrink the empty file and its log.

        VACUUM of an empty database writes three pages, whatever it held; incremental_vacuum moves every free
        page through the log (measured: 146 MB of log for a 139 MB file, and that much free disk).
        """
        # Space that can't be given back now, on a full disk or beside a reader, is given back the next time.
        with contextlib.suppress(sqlite3.OperationalError):
            connection = self._open_connection()
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _create_schema(connection: sqlite3.Connection) -> None:
    # Here and not above: it takes pandas in where that is installed, and only a new file needs it.
    from sqlite_utils import Database

    # Before WAL, or it does nothing. It lets a part of a large file be given back without rewriting the rest.
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("BEGIN IMMEDIATE")
    database = Database(connection, execute_plugins=False)
    database.create_table("records", {"number": int, "record": bytes}, pk="number", not_null={"record"})
    database.create_table("numbering", {"id": int, "issued": int}, pk="id", not_null={"issued"})
    connection.execute("INSERT INTO numbering (id, issued) VALUES (1, 0)")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute("COMMIT")


def _spans(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First and last of each unbroken run of ascending numbers; a drain makes one."""
    first = last = numbers[0]
    for number in numbers[1:]:
        if number != last + 1:
            yield first, last
            first = number
        last = number
    yield first, last


def _make_directory(directory: Path) -> None:
    """Make the directory so that it outlives a power cut. Raises OutboxUnusable."""
    missing = []
    ancestor = directory
    while not ancestor.exists() and ancestor != ancestor.parent:
        missing.append(ancestor)
        ancestor = ancestor.parent
    try:
        for path in reversed(missing):
            path.mkdir(mode=0o750, exist_ok=True)
            parent = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(parent)
            finally:
                os.close(parent)
        if not directory.is_dir():
            raise NotADirectoryError(f"{directory} is not a directory")
    except OSError as error:
        raise OutboxUnusable(
            f"cannot make the outbox's directory {directory} ({error.strerror or error}); "
            "make it, writable for this user, or set outbox.path"
        ) from error


def _take_lock(path: Path) -> int:
    """A descriptor that holds the lock until it is closed or the process ends. Raises OutboxLocked."""
    lock_path = Path(f"{path}.lock")
    try:
        # A file of its own: closing a descriptor of the database drops SQLite's own (POSIX) locks on it.
        descriptor = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    except OSError as error:
        raise OutboxUnusable(
            f"cannot open {lock_path} ({error.strerror}); check its owner and mode"
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise OutboxLocked(
            f"{path} is in use by another fieldgate; stop that one, or give this one its own outbox.path"
        ) from error
    except OSError as error:
        os.close(descriptor)
        raise OutboxUnusable(f"cannot lock {lock_path} ({error.strerror})") from error
    return descriptor


def _file_size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _outbox_error(path: Path, error: sqlite3.Error) -> OutboxError:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code in _CORRUPT:
        return OutboxCorrupt(f"{path} is damaged ({error}); it is left as it is")
    if code == sqlite3.SQLITE_FULL:
        return OutboxDiskFull(f"no room on the disk of {path} ({error})")
    if code in _LOCKED:
        return OutboxLocked(f"{path} is locked by a program that reads or writes it ({error})")
    return OutboxUnusable(f"cannot use {path} ({error})")
