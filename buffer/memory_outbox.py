"""An outbox in memory, for tests and for readings that need not outlive the process.

One thread uses it at a time. Nothing is durable: records end with the process.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from buffer.errors import OutboxClosed


class MemoryOutbox:
    """Opaque records, oldest first, without a disk."""

    def __init__(self) -> None:
        # Numbers only grow and dicts keep insertion order, so this is sorted without sorting.
        self._records: dict[int, bytes] = {}
        self._issued = 0
        self._bytes = 0
        self._closed = False

    def append(self, records: Sequence[bytes]) -> list[int]:
        """Store all records; their numbers, growing, never used again."""
        self._check_open()
        numbers = list(range(self._issued + 1, self._issued + 1 + len(records)))
        self._records.update(zip(numbers, records, strict=True))
        self._issued += len(records)
        self._bytes += sum(len(record) for record in records)
        return numbers

    def peek(self, after: int, limit: int, max_bytes: int) -> list[tuple[int, bytes]]:
        """The oldest records with numbers above ``after``: at most ``limit`` and ``max_bytes``, but one."""
        self._check_open()
        taken: list[tuple[int, bytes]] = []
        taken_bytes = 0
        newer = ((number, record) for number, record in self._records.items() if number > after)
        for number, record in islice(newer, max(limit, 0)):
            taken_bytes += len(record)
            if taken and taken_bytes > max_bytes:
                break
            taken.append((number, record))
        return taken

    def remove(self, numbers: Iterable[int]) -> None:
        """Forget records; unknown numbers are ignored."""
        self._check_open()
        for number in numbers:
            self._bytes -= len(self._records.pop(number, b""))

    def __len__(self) -> int:
        return len(self._records)

    def size_bytes(self) -> int:
        """Bytes of the stored records; there is no file."""
        return self._bytes

    def close(self) -> None:
        """Refuse further use; safe to call twice."""
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise OutboxClosed("the outbox is closed")
