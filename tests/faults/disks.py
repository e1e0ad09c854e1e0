"""Small filesystems of a test's own, that can be filled, emptied, and fail to be written."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pytest

from tests.support.servers import eventually

_MIB: Final = 1 << 20


class Disk:
    """An ext4 filesystem in a file, mounted by a loop device. Skips the test where that isn't permitted."""

    def __init__(self, directory: Path, size_mib: int) -> None:
        self.path = directory / "disk"
        self._image = directory / "disk.img"
        self._size_bytes = size_mib * _MIB
        self._filler = self.path / "filler"

    def __enter__(self) -> Self:
        if os.geteuid() != 0:
            pytest.skip("mounting a filesystem needs root")
        with self._image.open("wb") as image:
            image.truncate(self._size_bytes)
        # No blocks kept for root: full is to mean full. A card's blocks have 4 KiB; with a small filesystem's
        # 1 KiB SQLite can't reserve the pages that it maps: who writes one on a full disk may get a SIGBUS.
        subprocess.run(["/sbin/mkfs.ext4", "-q", "-m", "0", "-b", "4096", str(self._image)], check=True)
        self.path.mkdir()
        mounted = subprocess.run(
            ["mount", "-o", "loop", str(self._image), str(self.path)], capture_output=True, text=True
        )
        if mounted.returncode:
            pytest.skip(f"mounting a filesystem isn't permitted here: {mounted.stderr.strip()}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        subprocess.run(["umount", "--lazy", str(self.path)], check=True)

    def fill(self) -> None:
        """Take every free block."""
        with self._filler.open("ab") as filler:
            for size in (_MIB, 4096, 1):
                try:
                    while True:
                        os.write(filler.fileno(), bytes(size))
                        os.fsync(filler.fileno())
                except OSError:
                    continue

    def empty(self) -> None:
        """Give the blocks back."""
        self._filler.unlink()

    def protect(self) -> None:
        """Make it read-only; no process may be writing."""
        subprocess.run(["mount", "-o", "remount,ro", str(self.path)], check=True)

    def unprotect(self) -> None:
        """Let it be written again."""
        subprocess.run(["mount", "-o", "remount,rw", str(self.path)], check=True)

    def fail(self) -> None:
        """Make it read-only under the feet of whoever writes it, as the kernel does after an I/O error."""
        subprocess.run(["mount", "-o", "remount,abort", str(self.path)], check=True)

    def repair(self) -> None:
        """Check it and mount it again, writable; no process may have a file of it open."""
        subprocess.run(["umount", str(self.path)], check=True)
        # The kernel lets go of the image a moment later; mounted before that, it is the broken filesystem.
        attached = ("losetup", "--noheadings", "--associated", str(self._image))
        eventually(lambda: subprocess.run(attached, capture_output=True, check=True).stdout == b"")
        subprocess.run(["/sbin/e2fsck", "-p", str(self._image)], check=False, capture_output=True)
        subprocess.run(["mount", "-o", "loop", str(self._image), str(self.path)], check=True)
