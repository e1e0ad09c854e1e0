"""Files and directories that survive a power cut, their sizes, and their errors as an outbox's."""

from __future__ import annotations

import contextlib
import os
import pwd
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from buffer.errors import OutboxCorrupt, OutboxDiskFull, OutboxError, OutboxLocked, OutboxUnusable, wants_room

_SQLITE_SUFFIXES: Final = ("", "-wal", "-shm")
_SUFFIXES: Final = (*_SQLITE_SUFFIXES, ".lock", ".ballast")


def make_directory(directory: Path) -> None:
    """Make a directory that survives a power cut. Raises OutboxUnusable, OutboxDiskFull."""
    try:
        for path in reversed((directory, *directory.parents)):
            if not path.exists():
                path.mkdir(mode=0o750, exist_ok=True)
                sync_directory(path.parent)
        if not directory.is_dir():
            raise NotADirectoryError(f"{directory} is not a directory")
    except OSError as error:
        if wants_room(error):
            raise OutboxDiskFull(f"no room for the outbox's directory {directory}") from error
        raise OutboxUnusable(
            f"cannot make the outbox's directory {directory} ({error.strerror or error}); "
            "make it, writable for this user, or set outbox.path"
        ) from error


def permission_problem(path: Path) -> str:
    """Which of an outbox's files this process may not write, and the command that mends it; or empty."""
    user = pwd_name(os.geteuid())
    closed = [
        each
        for each in (path.parent, *(Path(f"{path}{suffix}") for suffix in _SUFFIXES))
        if not os.access(each, os.R_OK | os.W_OK, effective_ids=True)
        and each.exists()
        and not os.statvfs(each).f_flag & os.ST_RDONLY
    ]
    if not closed:
        return ""
    whose = pwd_name(closed[0].stat().st_uid)
    return f"{closed[0]} is {whose}'s and can't be written by {user}: {_chown(user, closed)}"


def misowned_files(path: Path) -> str:
    """Which of an outbox's files are not the directory's owner's, and the command that mends it; or empty."""
    owner = path.parent.stat().st_uid
    files = [Path(f"{path}{suffix}") for suffix in _SUFFIXES]
    misowned = [each for each in files if each.exists() and each.stat().st_uid != owner]
    if not misowned:
        return ""
    name, whose = pwd_name(owner), pwd_name(misowned[0].stat().st_uid)
    return f"{misowned[0]} is {whose}'s, its directory {name}'s: {_chown(name, misowned)}"


def _chown(user: str, files: Iterable[Path]) -> str:
    return f"sudo chown -h {user}: {' '.join(map(str, files))}"


def pwd_name(uid: int) -> str:
    """A user's name, or the number where there is none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def sync_directory(directory: Path) -> None:
    """Make the names in a directory survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def boot_id() -> str:
    """The kernel's id of this boot (random(4))."""
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
    """Bytes that this user may still write to the file system."""
    facts = os.statvfs(directory)
    return facts.f_bavail * facts.f_frsize


def move_database(path: Path, target: Path) -> None:
    """Rename a database and its log. Raises OSError."""
    # The database first: a log alone is one that SQLite deletes before it makes a database of that name.
    for suffix in ("", "-wal"):
        with contextlib.suppress(FileNotFoundError):
            Path(f"{path}{suffix}").rename(f"{target}{suffix}")
    Path(f"{path}-shm").unlink(missing_ok=True)
    sync_directory(path.parent)


# The primary codes (https://www.sqlite.org/rescode.html) that mean damaged content; every other (FULL,
# IOERR, READONLY, CANTOPEN, PERM) is the disk's, and the content is as good as it was.
_CORRUPT: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_LOCKED: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_MAYBE_FULL: Final = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN})
FAULTS: Final = (sqlite3.Error, UnicodeDecodeError)
"""What SQLite's module raises: the second where a message quotes a damaged name."""
_FULL_BELOW_BYTES: Final = 64 << 10


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
    """Raise an OutboxError for what SQLite raises."""
    try:
        yield
    except FAULTS as error:
        raise _outbox_error(path, error) from error
    except OSError as error:
        if wants_room(error):
            raise OutboxDiskFull(f"no room on the disk of {path}") from error
        reason = permission_problem(path) or error.strerror or error
        raise OutboxUnusable(f"cannot use {path} ({reason})") from error


def is_damage(error: Exception) -> bool:
    """Whether content is damaged, and not only the disk failing."""
    if isinstance(error, UnicodeDecodeError):
        return True
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        # Python's own: invalid UTF-8 where a damaged record has the type text.
        return isinstance(error, sqlite3.OperationalError)
    # A damaged schema makes tables and columns vanish, which is SQLITE_ERROR.
    return code & 0xFF in _CORRUPT or code == sqlite3.SQLITE_ERROR


def _outbox_error(path: Path, error: sqlite3.Error | UnicodeDecodeError) -> OutboxError:
    if isinstance(error, UnicodeDecodeError) or is_damage(error):
        return OutboxCorrupt(f"{path} is damaged ({error})")
    code = error.sqlite_errorcode & 0xFF
    # The log and its index have errors of their own for want of room.
    cramped = code in _MAYBE_FULL and _is_full(path.parent)
    if code == sqlite3.SQLITE_FULL or cramped:
        return OutboxDiskFull(f"no room on the disk of {path} ({error})")
    if code in _LOCKED:
        return OutboxLocked(f"{path} is locked by a program that reads or writes it ({error})")
    return OutboxUnusable(f"cannot use {path} ({permission_problem(path) or error})")


def _is_full(directory: Path) -> bool:
    with contextlib.suppress(OSError):
        return free_bytes(directory) < _FULL_BELOW_BYTES
    return False
