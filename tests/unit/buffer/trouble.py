"""A disk that fails on command: the outbox's file is real, its calls fail."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from buffer.errors import OnDrop, OutboxDiskFull, OutboxError, OutboxUnusable
from buffer.outbox_file import Limits
from buffer.sqlite_outbox import SqliteOutbox

_NO_LIMITS = Limits()


class Disk:
    """Switches: what writing raises, whether reading and opening fail, too; and a clock moved by hand."""

    def __init__(self) -> None:
        self.writing: OutboxError | None = None
        self.reading = self.opening = True
        self.now_s = 0.0
        self.tried = 0

    @property
    def is_full(self) -> bool:
        """Whether it only wants room."""
        return isinstance(self.writing, OutboxDiskFull)

    def fill(self) -> None:
        """As SQLite reports a full disk."""
        self.writing = OutboxDiskFull("full")

    def make_read_only(self) -> None:
        """As after an I/O error."""
        self.writing = OutboxUnusable("read-only")

    def mend(self) -> None:
        """All works, and it is time to try."""
        self.writing, self.reading, self.opening = None, True, True
        self.now_s += 60

    def outbox(self, path: Path, on_drop: OnDrop, limits: Limits = _NO_LIMITS) -> FailingOutbox:
        """An outbox on this disk."""
        return FailingOutbox(self, path, limits, on_drop)


class FailingOutbox(SqliteOutbox):
    """The real one, behind the switches."""

    def __init__(self, disk: Disk, path: Path, limits: Limits, on_drop: OnDrop) -> None:
        self.disk = disk
        super().__init__(path, limits, on_drop=on_drop, patient=True)

    def _ready(self) -> None:
        if not self.disk.opening:
            raise OutboxUnusable("no directory")
        super()._ready()

    def append(
        self,
        records: Sequence[bytes],
        summary: bytes = b"",
        *,
        others: bool = False,
        drop_oldest: bool = True,
    ) -> list[int]:
        self._check(drop_oldest)
        return super().append(records, summary, others=others, drop_oldest=drop_oldest)

    def probe(self) -> None:
        self._check(drop_oldest=False)
        super().probe()

    def peek(self, after: int, limit: int, max_bytes: int) -> list[tuple[int, bytes]]:
        if not self.disk.reading:
            raise OutboxUnusable("unreadable")
        return super().peek(after, limit, max_bytes)

    def remove(self, numbers: Iterable[int]) -> None:
        if isinstance(self.disk.writing, OutboxUnusable):
            raise self.disk.writing
        super().remove(numbers)

    def _check(self, drop_oldest: bool) -> None:
        self.disk.tried += 1
        if self.disk.writing is not None and not (self.disk.is_full and drop_oldest):
            raise self.disk.writing
