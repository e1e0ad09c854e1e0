"""The lock file of an outbox: one outbox at a time, and how far its numbers had come.

A lock that another process holds is noticed on a read-only disk, too.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import Final

from buffer.errors import OutboxDiskFull, OutboxError, OutboxLocked, OutboxUnusable, wants_room
from buffer.files import boot_id, permission_problem

_CLOSED: Final = "closed"


class Lock:
    """Locks the file against a second outbox, and remembers what a damaged one can't show.

    The file has four words: the last number *issued*, twice (the first had another meaning), and the *floor*,
    below which nothing is stored: written after each commit without fsync, never too high. And the boot they
    were written in, or "closed" with fsync.
    """

    def __init__(self, path: Path) -> None:
        lock_path = Path(f"{path}.lock")
        try:
            # A file of its own: closing a descriptor of the database drops SQLite's own (POSIX) locks on it.
            descriptor = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        except OSError as error:
            if wants_room(error):
                raise OutboxDiskFull(f"no room for {lock_path}") from error
            _refuse_if_locked(path, lock_path)
            reason = permission_problem(path) or error.strerror
            raise OutboxUnusable(f"cannot open {lock_path} ({reason})") from error
        self._descriptor = descriptor
        try:
            _lock(path, lock_path, descriptor)
            words = _words(os.pread(descriptor, 256, 0))
        except OutboxError:
            self.release()
            raise
        except OSError as error:
            self.release()
            raise OutboxUnusable(f"cannot read {lock_path} ({error.strerror})") from error
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
    """Raise OutboxLocked where another outbox holds the lock: flock works on a read-only disk, too."""
    with contextlib.suppress(OSError):
        descriptor = os.open(lock_path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _lock(path, lock_path, descriptor)
        finally:
            os.close(descriptor)


def _words(content: bytes) -> list[str]:
    """A lock file's four words; an empty list where they are damaged."""
    words = content.decode("ascii", "replace").split()
    return words if len(words) == 4 and all(word.isdigit() for word in words[:3]) else []
