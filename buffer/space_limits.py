"""How many pages the outbox may use: its own cap, and the floor of free disk space.

It counts only: ``disk_blocks`` drops the oldest blocks for the pages that are missing.

The file never shrinks while it holds anything; pages of dropped blocks are used again. So the cap is on pages
in use, less the room of the other files: log, log index and ballast.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from buffer import files
from buffer.drops import DISK_LOW, OUTBOX_FULL
from buffer.errors import OutboxTooLarge

_LOG_BYTES: Final = 4 << 20
_SMALLEST_LOG_BYTES: Final = 64 << 10
_LOG_INDEX_BYTES: Final = 128 << 10
# A block's row can split a leaf and its parents, or take a fresh page for a dictionary's copy.
_TREE_PAGES: Final = 8


def pages_for(sizes: Sequence[int], page_bytes: int) -> int:
    """The most pages that rows of these sizes may take, splits included."""
    return sum(size // (page_bytes - 8) + 1 for size in sizes) + _TREE_PAGES - 1


@dataclass(frozen=True, slots=True)
class Limits:
    """``max_bytes`` caps everything: database, log, its index, ballast; a megabyte more than that at least.

    ``min_free_disk`` bytes of the directory's file system must stay free, by ``free_bytes``;
    ``ballast_bytes`` are held on it for the day it is full.
    """

    max_bytes: int = 1 << 40
    min_free_disk: int = 0
    ballast_bytes: int = 0
    free_bytes: Callable[[Path], int] = files.free_bytes

    def with_ballast(self) -> Limits:
        """The same with as much of it as the log may hold: on a full disk that is emptied into its room."""
        return replace(self, ballast_bytes=self.log_bytes)

    @property
    def log_bytes(self) -> int:
        """How large the log may grow before it is moved into the database."""
        return min(_LOG_BYTES, max(_SMALLEST_LOG_BYTES, self.max_bytes // 16))

    def missing_pages(
        self, connection: sqlite3.Connection, sizes: Sequence[int], directory: Path, beside_bytes: int
    ) -> tuple[int, str]:
        """How many pages must become free before rows of these sizes can be stored, and why.

        ``beside_bytes`` is what damaged files take that lie there. Raises OutboxTooLarge.
        """
        page_bytes, pages, free = (
            connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_size", "page_count", "freelist_count")
        )
        needed = pages_for(sizes, page_bytes)
        other_files = self.ballast_bytes + 2 * self.log_bytes + _LOG_INDEX_BYTES
        budget = (self.max_bytes - other_files) // page_bytes
        if needed > budget // 2:
            raise OutboxTooLarge(f"{sum(sizes)} bytes are too many for outbox.max_bytes")
        over = pages - free + needed - budget
        if beside_bytes:
            # Pages of the file that are free take room, too, as long as that can be had from elsewhere.
            over = max(over, over - needed + free) + beside_bytes // page_bytes + 1
        if over > 0:
            return max(free + over, needed), OUTBOX_FULL
        growth = (needed - free) * page_bytes
        if self.min_free_disk and growth > 0 and self.free_bytes(directory) - growth < self.min_free_disk:
            return needed, DISK_LOW
        return 0, ""
