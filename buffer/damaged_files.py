"""Damaged files beside an outbox that have been copied from: kept for people while there is room."""

from __future__ import annotations

import logging
from pathlib import Path

from buffer.files import file_size

log = logging.getLogger(__name__)


class DamagedFiles:
    """The files, each with its log, oldest first. ``refresh`` lists the directory."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._names: list[str] = []

    def refresh(self) -> None:
        """Find the files that there are."""
        found = self._path.parent.glob(f"{self._path.name}.damaged-*")
        self._names = sorted({file.name.removesuffix("-wal") for file in found})

    def size_bytes(self) -> int:
        """What they take."""
        return sum(file_size(file) for name in self._names for file in self._files(name))

    def delete_oldest(self) -> bool:
        """Delete one and log it; False where there is none. Raises OSError."""
        if not self._names:
            return False
        name = self._names.pop(0)
        size = sum(map(file_size, self._files(name)))
        for file in self._files(name):
            file.unlink(missing_ok=True)
        if size:
            log.warning("event=outbox.damaged_deleted file=%s bytes=%d", name, size)
        return True

    def _files(self, name: str) -> tuple[Path, Path]:
        return self._path.with_name(name), self._path.with_name(f"{name}-wal")
