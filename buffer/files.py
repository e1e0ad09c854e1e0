"""The files beside the database: directory, lock, ballast; and what SQLite's errors mean."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from buffer.errors import (
    OutboxCorrupt,
    OutboxDiskFull,
    OutboxError,
    OutboxLocked,
    OutboxUnusable,
)

_SQLITE_SUFFIXES: Final = ("", "-wal", "-shm")
_RESERVE: Final = 1 << 20
_CLOSED: Final = "closed"
# The primary codes (https://www.sqlite.org/rescode.html) that mean damaged content; every other (FULL,
# IOERR, READONLY, CANTOPEN, PERM) is the disk's, and the content is as good as it was.
_CORRUPT: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_LOCKED: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_WITHOUT_A_WORD: Final = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN})
_FULL_BELOW_BYTES: Final = 64 << 10
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


def make_directory(directory: Path) -> None:
    """Make the directory so that it outlives a power cut. Raises OutboxUnusable, OutboxDiskFull."""
    missing = []
    ancestor = directory
    while not ancestor.exists() and ancestor != ancestor.parent:
        missing.append(ancestor)
        ancestor = ancestor.parent
    try:
        for path in reversed(missing):
            path.mkdir(mode=0o750, exist_ok=True)
            sync_directory(path.parent)
        if not directory.is_dir():
            raise NotADirectoryError(f"{directory} is not a directory")
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise OutboxDiskFull(f"no room for the outbox's directory {directory}") from error
        raise OutboxUnusable(
            f"cannot make the outbox's directory {directory} ({error.strerror or error}); "
            "make it, writable for this user, or set outbox.path"
        ) from error


def sync_directory(directory: Path) -> None:
    """Make names in a directory outlive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, content: bytes) -> None:
    """Give a file a content, all of it or not at all, whatever happens meanwhile. Raises OSError."""
    fresh = path.with_name(f"{path.name}-fresh")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    fresh.rename(path)
    sync_directory(path.parent)


class Lock:
    """Keeps a second outbox away from the file, and numbers from being used again.

    The file holds four words. The *reservation*: no record has a number above it; it is raised and fsynced a
    million at a time, and it is where numbering goes on when the database that knew better is destroyed. The
    last number *issued*, written after each commit without fsync: exact while the machine has not restarted,
    and never too high. The *floor*, below which nothing is stored, written likewise, never too high either.
    And the boot they were written in, or "closed" with fsync.
    """

    def __init__(self, path: Path) -> None:
        lock_path = Path(f"{path}.lock")
        try:
            # A file of its own: closing a descriptor of the database drops SQLite's own (POSIX) locks on it.
            descriptor = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        except OSError as error:
            if error.errno in _NO_ROOM:
                raise OutboxDiskFull(f"no room for {lock_path}") from error
            _refuse_if_locked(path, lock_path)
            raise OutboxUnusable(
                f"cannot open {lock_path} ({error.strerror}); check its owner and mode"
            ) from error
        self._descriptor = descriptor
        try:
            _lock(path, lock_path, descriptor)
            words = _words(descriptor)
        except OutboxError:
            self.release()
            raise
        except OSError as error:
            self.release()
            raise OutboxUnusable(f"cannot read {lock_path} ({error.strerror})") from error
        sound = bool(words)
        self.reserved, self.issued, self.floor = map(int, words[:3]) if sound else (0, 0, 1)
        self._boot = _boot_id()
        # Whether ``issued`` is exact: nothing was issued between its writing and now.
        self.issued_is_exact = sound and words[3] in (_CLOSED, self._boot)

    def reserve(self, number: int) -> None:
        """See to it that ``number`` is within the reservation. Raises OutboxDiskFull, OutboxUnusable."""
        if number <= self.reserved:
            return
        reserved, self.reserved = self.reserved, (number // _RESERVE + 1) * _RESERVE
        try:
            self._write(self._boot)
            os.fdatasync(self._descriptor)
        except OSError as error:
            self.reserved = reserved
            if error.errno in _NO_ROOM:
                raise OutboxDiskFull("no room to reserve record numbers") from error
            raise OutboxUnusable(f"cannot reserve record numbers ({error.strerror})") from error

    def note(self, issued: int, floor: int) -> None:
        """Take down the numbers of a commit that is on the disk."""
        self.issued, self.floor, self.issued_is_exact = issued, floor, True
        with contextlib.suppress(OSError):
            self._write(self._boot)

    def note_close(self) -> None:
        """Take down that no more numbers are issued."""
        if self.reserved:
            with contextlib.suppress(OSError):
                self._write(_CLOSED)
                os.fdatasync(self._descriptor)

    def _write(self, word: str) -> None:
        line = f"{self.reserved:020d} {self.issued:020d} {self.floor:020d} {word:36}\n"
        os.pwrite(self._descriptor, line.encode(), 0)

    def release(self) -> None:
        """Let others have the file. The lock file stays: else two processes could lock two of a name."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _lock(path: Path, lock_path: Path, descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise OutboxLocked(
            f"{path} is in use by another fieldgate; stop that one, or give this one its own outbox.path"
        ) from error
    except OSError as error:
        raise OutboxUnusable(f"cannot lock {lock_path} ({error.strerror})") from error


def _refuse_if_locked(path: Path, lock_path: Path) -> None:
    """On a disk that has become read-only another outbox may hold the lock: flock asks for no writing."""
    with contextlib.suppress(OSError):
        descriptor = os.open(lock_path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _lock(path, lock_path, descriptor)
        finally:
            os.close(descriptor)


def _words(descriptor: int) -> list[str]:
    """What a lock file says; nothing where that isn't sound."""
    words = os.pread(descriptor, 256, 0).decode("ascii", "replace").split()
    return words if len(words) == 4 and all(word.isdigit() for word in words[:3]) else []


def last_reserved(path: Path) -> int | None:
    """The number that no record of an outbox is above, asked without its lock; None where nobody knows."""
    with contextlib.suppress(OSError):
        descriptor = os.open(f"{path}.lock", os.O_RDONLY | os.O_CLOEXEC)
        try:
            words = _words(descriptor)
        finally:
            os.close(descriptor)
        return int(words[0]) if words else None
    return None


class Ballast:
    """Disk space held for the day the disk is full: even DELETE needs some then."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        self._path = Path(f"{path}.ballast")
        self.wanted_bytes = size_bytes

    def size_bytes(self) -> int:
        """What it holds now."""
        return file_size(self._path)

    def is_whole(self) -> bool:
        """Whether it holds what it should."""
        return self.size_bytes() == self.wanted_bytes

    def make(self) -> bool:
        """Take the space; False where there is none, and then nothing is taken."""
        with contextlib.suppress(OSError):
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
            try:
                os.ftruncate(descriptor, self.wanted_bytes)
                if self.wanted_bytes:
                    os.posix_fallocate(descriptor, 0, self.wanted_bytes)
                return True
            except OSError:
                os.ftruncate(descriptor, 0)
            finally:
                os.close(descriptor)
        return False

    def release(self) -> bool:
        """Give the space back; False where there was none to give."""
        if not self.size_bytes():
            return False
        with contextlib.suppress(OSError):
            os.truncate(self._path, 0)
            return True
        return False


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"


def file_size(path: Path) -> int:
    """Bytes of a file, 0 where there is none."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def database_bytes(path: Path) -> int:
    """Bytes of the database, its log and the log's index."""
    return sum(file_size(Path(f"{path}{suffix}")) for suffix in _SQLITE_SUFFIXES)


def free_bytes(directory: Path) -> int:
    """What this user may still write to the file system."""
    facts = os.statvfs(directory)
    return facts.f_bavail * facts.f_frsize


def move_database(path: Path, target: Path) -> None:
    """Rename a database and its log. Raises OutboxUnusable."""
    try:
        # The log first: without its database it is nothing, but a new database would take it for its own.
        for suffix in ("-wal", ""):
            with contextlib.suppress(FileNotFoundError):
                Path(f"{path}{suffix}").rename(f"{target}{suffix}")
        Path(f"{path}-shm").unlink(missing_ok=True)
        sync_directory(path.parent)
    except OSError as error:
        raise OutboxUnusable(f"cannot set {path} aside ({error.strerror})") from error


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
    """Raise an OutboxError for what SQLite raises."""
    try:
        yield
    except sqlite3.Error as error:
        raise _outbox_error(path, error) from error
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise OutboxDiskFull(f"no room on the disk of {path}") from error
        raise OutboxUnusable(f"cannot use {path} ({error.strerror or error})") from error


def is_damage(error: sqlite3.Error) -> bool:
    """Whether content is damaged, and not just the disk unwilling."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        # Python's own: text that is no UTF-8 where a damaged record says text.
        return isinstance(error, sqlite3.OperationalError)
    # A damaged schema makes tables and columns vanish, which is SQLITE_ERROR.
    return code & 0xFF in _CORRUPT or code == sqlite3.SQLITE_ERROR


def _outbox_error(path: Path, error: sqlite3.Error) -> OutboxError:
    if is_damage(error):
        return OutboxCorrupt(f"{path} is damaged ({error})")
    code = error.sqlite_errorcode & 0xFF
    # The log and its index have errors of their own for want of room.
    cramped = code in _WITHOUT_A_WORD and _is_full(path.parent)
    if code == sqlite3.SQLITE_FULL or cramped:
        return OutboxDiskFull(f"no room on the disk of {path} ({error})")
    if code in _LOCKED:
        return OutboxLocked(f"{path} is locked by a program that reads or writes it ({error})")
    return OutboxUnusable(f"cannot use {path} ({error})")


def _is_full(directory: Path) -> bool:
    with contextlib.suppress(OSError):
        return free_bytes(directory) < _FULL_BELOW_BYTES
    return False
