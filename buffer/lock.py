"""The lock file of an outbox: one outbox at a time, and how far its numbers had come."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import Final

from buffer.errors import OutboxLocked
from buffer.files import boot_id
from buffer.sqlite_errors import translated

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
