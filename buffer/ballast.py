"""Disk space held for the day the disk is full."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from buffer.files import file_size


class Ballast:
    """A file of nothing, given up when even DELETE finds no room for its log."""

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
