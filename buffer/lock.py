"""The lock file of an outbox: one outbox at a time, and no number twice.

A lock that somebody holds is seen on a read-only disk, too. ``last_reserved`` asks without the lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import Final

from buffer.errors import OutboxDiskFull, OutboxError, OutboxLocked, OutboxUnusable, wants_room

_RESERVE: Final = 1 << 20
_CLOSED: Final = "closed"


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
            if wants_room(error):
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
            if wants_room(error):
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


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"
