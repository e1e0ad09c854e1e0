"""Errors of SQLite and the file system as an outbox's: damage, no room, in use, a bad disk."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from buffer.errors import OutboxCorrupt, OutboxDiskFull, OutboxError, OutboxLocked, OutboxUnusable, wants_room
from buffer.files import free_bytes, permission_problem

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
