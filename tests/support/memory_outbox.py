"""An outbox in memory, for tests: it has all that the one on the disk has, and uses none of it.

One thread uses it at a time. Nothing is durable: records end with the process.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from buffer import drops
from buffer.blocks import Group
from buffer.drops import Drop, OnDrop
from buffer.errors import OutboxClosed, OutboxDiskFull
from buffer.sqlite_outbox import SqliteOutbox

RECORD_OVERHEAD_BYTES: Final = 80
"""What Python spends on a record beside its bytes: object, table entry, number (CPython 3.11, 64 bit)."""


@dataclass(slots=True)
class _Block:
    """What one append brought; ``left`` in the order of its numbers."""

    first: int
    count: int
    summary: bytes
    left: dict[int, bytes] = field(default_factory=dict)

    def size_bytes(self) -> int:
        return len(self.summary) + sum(RECORD_OVERHEAD_BYTES + len(record) for record in self.left.values())


class MemoryOutbox(SqliteOutbox):
    """Opaque records, oldest first, without a disk.

    ``max_bytes`` bounds the memory taken (None: no bound); past it the oldest block goes and ``on_drop`` is
    called, in the calling thread. ``numbered_from`` is the first number given.
    """

    def __init__(
        self, *, max_bytes: int | None = None, on_drop: OnDrop = drops.ignore, numbered_from: int = 1
    ) -> None:
        self._max_bytes = max_bytes
        self._on_drop = on_drop
        # Numbers only grow and dicts keep insertion order, so this is sorted without sorting.
        self._held_blocks: dict[int, _Block] = {}
        self._issued = numbered_from - 1
        self._count = 0
        self._bytes = 0
        self._closed = False
        self.problem: str | None = None

    def append(
        self,
        records: Sequence[bytes],
        summary: bytes = b"",
        *,
        others: bool = False,
        drop_oldest: bool = True,
    ) -> list[int]:
        """Store all records or none; their numbers, growing, never used again.

        Raises OutboxDiskFull where they would not fit in an empty outbox.
        """
        self._check_open()
        if not records:
            return []
        numbers = list(range(self._issued + 1, self._issued + 1 + len(records)))
        block = _Block(numbers[0], len(numbers), summary, dict(zip(numbers, records, strict=True)))
        size = block.size_bytes()
        if self._max_bytes is not None:
            if size > self._max_bytes:
                raise OutboxDiskFull(f"{size} bytes are more than the outbox in memory may hold")
            while self._bytes + size > self._max_bytes:
                self._drop_oldest()
        self._held_blocks[block.first] = block
        self._issued = numbers[-1]
        self._count += len(numbers)
        self._bytes += size
        return numbers

    def peek(self, after: int, limit: int, max_bytes: int) -> list[tuple[int, bytes]]:
        """The oldest records with numbers above ``after``: at most ``limit`` and ``max_bytes``, but one."""
        self._check_open()
        taken: list[tuple[int, bytes]] = []
        taken_bytes = 0
        for block in self._held_blocks.values():
            if block.first + block.count - 1 <= after:
                continue
            for number, record in block.left.items():
                if number <= after:
                    continue
                taken_bytes += len(record)
                if len(taken) >= limit or (taken and taken_bytes > max_bytes):
                    return taken
                taken.append((number, record))
        return taken

    def remove(self, numbers: Iterable[int]) -> None:
        """Forget records; unknown numbers are ignored."""
        self._check_open()
        firsts = list(self._held_blocks)
        for number in numbers:
            at = bisect_right(firsts, number) - 1
            block = self._held_blocks.get(firsts[at]) if at >= 0 else None
            record = None if block is None else block.left.pop(number, None)
            if block is None or record is None:
                continue
            self._count -= 1
            self._bytes -= RECORD_OVERHEAD_BYTES + len(record)
            if not block.left:
                self._bytes -= len(block.summary)
                del self._held_blocks[block.first]

    def refile(self, groups: Sequence[Group]) -> list[range]:
        """Store groups of records as the newest in place of those they were read from."""
        for group in groups:
            self.remove(group.numbers)
        stored = [self.append(group.records, group.summary) for group in groups]
        return [range(numbers[0], numbers[-1] + 1) for numbers in stored]

    def __len__(self) -> int:
        return self._count

    def size_bytes(self) -> int:
        """Bytes of memory taken, about; there is no file."""
        return self._bytes

    def probe(self) -> None:
        """There is no disk that could fail."""

    def close(self) -> None:
        """Refuse further use; safe to call twice."""
        self._closed = True

    def _drop_oldest(self) -> None:
        block = self._held_blocks.pop(next(iter(self._held_blocks)))
        self._count -= len(block.left)
        self._bytes -= block.size_bytes()
        last = block.first + block.count - 1
        left = tuple(block.left.values()) if len(block.left) < block.count else ()
        self._on_drop(Drop(drops.OUTBOX_FULL, block.first, last, len(block.left), block.summary, left))

    def _check_open(self) -> None:
        if self._closed:
            raise OutboxClosed("the outbox is closed")
