"""Disk space reserved for the day the disk is full."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from buffer.files import file_size


class Ballast:
    """A preallocated file, emptied when even DELETE finds no room for its log."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        self._path = Path(f"{path}.ballast")
        self.wanted_bytes = size_bytes

    def size_bytes(self) -> int:
        """Bytes reserved now."""
        return file_size(self._path)

    def is_whole(self) -> bool:
        """Whether all the space is reserved."""
        return self.size_bytes() == self.wanted_bytes

    def make(self) -> bool:
        """Reserve the space; False where the disk has too little, and then nothing is reserved."""
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
        """Free the space; False where none was reserved."""
        if not self.size_bytes():
            return False
        with contextlib.suppress(OSError):
            os.truncate(self._path, 0)
            return True
        return False
