"""Files that a config names, by their content: a certificate is renewed at the same path."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cloud.toml_problems import KeyPath

EVERY_S: Final = 3600.0
_MAX_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file and a digest of its content, None where it couldn't be read."""

    path: Path
    digest: str | None


def named_file(path: Path) -> NamedFile:
    """A file as it is now. Never raises."""
    try:
        with path.open("rb") as file:
            return NamedFile(path, hashlib.sha256(file.read(_MAX_BYTES)).hexdigest())
    except (OSError, ValueError):
        return NamedFile(path, None)


class FileWatch:
    """Reads files again each hour; a content is reported once, also where it wasn't taken over."""

    def __init__(self, files: Mapping[KeyPath, NamedFile]) -> None:
        self.begin(files)
        self._next_s: float | None = None

    def begin(self, files: Mapping[KeyPath, NamedFile]) -> None:
        """Watch these from now on."""
        self._files = dict(files)

    def changed(self, now_s: float) -> list[Path]:
        """The files with another content than last time; none before an hour has passed."""
        if self._next_s is None:
            self._next_s = now_s + EVERY_S
        if now_s < self._next_s:
            return []
        self._next_s = now_s + EVERY_S
        before, self._files = self._files, {key: named_file(file.path) for key, file in self._files.items()}
        return [file.path for key, file in self._files.items() if file != before[key]]
