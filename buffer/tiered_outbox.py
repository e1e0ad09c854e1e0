"""An outbox that stores records on its disk, and in memory while the disk refuses them.

Invariants:

- Numbers grow and are never issued twice by one outbox, nor ever to two records of the file. All on the disk
  are below all in memory, so the older are read first.
- While there are records in memory, new ones are added there, too; the oldest move to the disk first, several
  blocks a commit, as soon as it accepts them.
- Memory is bounded in bytes. Only when it is full, records are dropped because of the disk: others' where
  they fill more than a quarter of it; else the oldest of all where a full disk can use their pages again, and
  where not, the oldest in memory.
- At the operator's cap, ``max_bytes``, rows are dropped at once.
- A file that can't be opened is tried again, without blocking. Refused at once and for good: a file in use by
  another outbox, of another program, of another version.

Records still in memory at ``close`` are lost, and reported.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from buffer import drops
from buffer.blocks import Block, Group
from buffer.drops import InMemory, OnDrop
from buffer.errors import (
    OutboxClosed,
    OutboxCorrupt,
    OutboxDiskFull,
    OutboxError,
    OutboxForeign,
    OutboxTooLarge,
    OutboxUnusable,
)
from buffer.lock import last_reserved
from buffer.memory_blocks import MemoryBlocks
from buffer.space_limits import Limits
from buffer.sqlite_outbox import SqliteOutbox

MEMORY_BYTES: Final = 32 << 20
_NO_LIMITS: Final = Limits()
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 16.0
_CALM_S: Final = 60.0
"""A disk that worked for so long is tried again soon after it fails, another one seldom."""
_STEP_S: Final = 0.2
_BLOCKS_PER_COMMIT: Final = 100
_BYTES_PER_COMMIT: Final = 256 << 10
_UNKNOWN: Final = 1 << 50
_SHARE: Final = 4
"""Others' records may fill this part of memory before they make room for the owner's."""


class TieredOutbox:
    """Opaque records, oldest first: on the disk, and in memory while that can't be used.

    ``limits`` are the disk's, ``memory_bytes`` bounds the memory. ``on_drop`` is called in the calling
    thread. Raises OutboxLocked, OutboxForeign, OutboxVersionError, ValueError; any other fault of the
    file is in ``in_memory().problem``, and opening is tried again.
    """

    def __init__(
        self,
        path: Path,
        limits: Limits = _NO_LIMITS,
        *,
        on_drop: OnDrop = drops.ignore,
        memory_bytes: int = MEMORY_BYTES,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._on_drop = on_drop
        self._memory_bytes = memory_bytes
        self._monotonic = monotonic
        self._limits = limits
        self._memory = MemoryBlocks()
        self._disk: SqliteOutbox | None = None
        self._problem: str | None = None
        self._is_full = False
        self._try_at_s = self._room_at_s = self._worked_s = float("-inf")
        self._pause_s = _FIRST_PAUSE_S
        self._closed = False
        self._issued = self._backfilled = 0
        try:
            self._open()
        except OutboxForeign:
            raise
        except (OutboxDiskFull, OutboxUnusable, OutboxCorrupt) as error:
            self._failed(error)
            reserved = last_reserved(path)
            # Without the file's numbers: one by the clock, above any that an earlier start derived.
            self._issued = reserved if reserved is not None else _UNKNOWN + (time.time_ns() >> 10)

    def append(self, records: Sequence[bytes], summary: bytes = b"", *, others: bool = False) -> list[int]:
        """Store all records or none; their numbers, growing, never issued again. ``others``' make room first.

        They are on the disk when it returns, unless ``in_memory().oldest`` is at or below their first number.
        Raises OutboxTooLarge.
        """
        self._check_open()
        if not records:
            return []
        if not self._memory and self._may_try():
            try:
                numbers = self._opened().append(
                    records, summary, others=others, not_below=self._issued + 1, drop_oldest=False
                )
            except OutboxTooLarge:
                raise
            except OutboxError as error:
                self._failed(error)
            else:
                self._issued = numbers[-1]
                self._works()
                return numbers
        block = self._memory.append(self._issued + 1, records, summary, others=others)
        self._issued = block.last
        self._move()
        while self._memory.size_bytes() > self._memory_bytes:
            self._make_room()
        return list(range(block.first, block.last + 1))

    def peek(self, after: int, limit: int, max_bytes: int) -> list[tuple[int, bytes]]:
        """The oldest records with numbers above ``after``: at most ``limit`` and ``max_bytes``, at least one.

        Records that the disk can't read now are skipped where memory has some, else it raises OutboxError.
        """
        self._check_open()
        self.tend()
        taken: list[tuple[int, bytes]] = []
        failure: OutboxError | None = None
        if self._disk is not None:
            try:
                taken = self._disk.peek(after, limit, max_bytes)
                if taken and self._memory and self._disk.peek(taken[-1][0], 1, 1):
                    return taken
            except OutboxError as error:
                failure = error
                self._backfilled += 1
        after = taken[-1][0] if taken else after
        room = limit - len(taken)
        if room > 0:
            taken_bytes = sum(len(record) for _, record in taken)
            taken += self._memory.peek(after, room, max_bytes - taken_bytes, always_one=not taken)
            while self._memory.damaged:
                self._drop(self._memory.damaged.pop(), drops.CORRUPT)
        if failure is not None and not taken:
            raise failure
        return taken

    def remove(self, numbers: Iterable[int]) -> None:
        """Remove records; unknown numbers are ignored.

        Raises OutboxError where the disk refuses: those in memory are removed all the same.
        """
        self._check_open()
        oldest = self._memory.oldest
        numbers = list(numbers)
        if oldest is not None:
            self._memory.remove(number for number in numbers if number >= oldest)
            numbers = [number for number in numbers if number < oldest]
        if numbers and self._disk is not None:
            self._disk.remove(numbers)

    def refile(self, groups: Sequence[Group]) -> list[range]:
        """Store groups of records as the newest in place of those they were read from; each one's numbers.

        One transaction on the disk. Raises OutboxError where it has no room without dropping others, while
        it fails, or where memory has records: nothing is changed then.
        """
        self._check_open()
        if self._memory or self._problem is not None or self._disk is None:
            raise OutboxUnusable(f"{self._path} is not to be written now")
        stored = self._disk.refile(groups, not_below=self._issued + 1)
        self._issued = stored[-1][-1]
        return stored

    def tend(self, *, at_once: bool = False) -> None:
        """Move some of memory to the disk, or check whether it works again, where that is due.

        With ``at_once`` it is due, and all of memory moves, as far as the disk accepts it.
        """
        self._check_open()
        if at_once:
            self._try_at_s = float("-inf")
            while self._memory and self._may_try():
                self._move()
        elif self._memory:
            self._move()
        elif self._problem is not None and self._may_try():
            try:
                self._opened().probe()
            except OutboxError as error:
                self._failed(error)
            else:
                self._works()

    def __len__(self) -> int:
        return self._memory.records + (0 if self._disk is None else len(self._disk))

    @property
    def backfilled(self) -> int:
        """Grows when records may have come in below numbers that were read already.

        That is after the file was opened, or could not be read and memory was read past it.
        """
        return self._backfilled + (0 if self._disk is None else self._disk.backfilled)

    def in_memory(self) -> InMemory:
        """The records that are not on the disk, and why."""
        return InMemory(self._memory.records, self._memory.size_bytes(), self._memory.oldest, self._problem)

    def size_bytes(self) -> int:
        """Bytes on disk, as far as the file is open."""
        return 0 if self._disk is None else self._disk.size_bytes()

    def close(self) -> None:
        """Try the disk once more, report what it refuses, release the file; safe to call twice."""
        if self._closed:
            return
        self.tend(at_once=True)
        while (oldest := self._memory.oldest) is not None:
            self._drop(self._memory.block(oldest), drops.NOT_STORED)
        self._closed = True
        if self._disk is not None:
            try:
                self._disk.skip_to(self._issued)
            except OutboxError:
                # Numbers of records in memory may then be issued again: none of them was stored.
                pass
            finally:
                self._disk.close()

    # The disk.

    def _may_try(self) -> bool:
        return self._monotonic() >= self._try_at_s

    def _opened(self) -> SqliteOutbox:
        if self._disk is None:
            self._open()
        if self._disk is None:
            raise OutboxUnusable(f"{self._path} is not open")
        return self._disk

    def _open(self) -> None:
        disk = self._open_file()
        oldest = self._memory.oldest
        if oldest is not None and disk.issued >= oldest:
            # Not the file whose numbers were expected. Once memory is empty any will do.
            disk.close()
            raise OutboxUnusable(f"{self._path} has issued the numbers of records in memory")
        self._disk = disk
        self._backfilled += 1
        self._issued = max(self._issued, disk.issued)

    def _open_file(self) -> SqliteOutbox:
        return SqliteOutbox(self._path, self._limits, on_drop=self._on_drop)

    def _failed(self, error: OutboxError) -> None:
        now_s = self._monotonic()
        if self._problem is None and now_s - self._worked_s > _CALM_S:
            self._pause_s = _FIRST_PAUSE_S
        self._problem = str(error)
        self._is_full = isinstance(error, OutboxDiskFull)
        self._try_at_s = now_s + self._pause_s
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)

    def _works(self) -> None:
        if self._problem is not None:
            self._problem = None
            self._worked_s = self._monotonic()

    def _move(self) -> None:
        """Move the oldest blocks to the disk, for a moment."""
        until_s = time.monotonic() + _STEP_S
        count = _BLOCKS_PER_COMMIT
        while self._memory and self._may_try() and time.monotonic() < until_s:
            try:
                self._move_oldest(count, drop_oldest=False)
            except OutboxError as error:
                if count > 1 and isinstance(error, OutboxDiskFull):
                    # There may be room for some.
                    count = 1
                elif isinstance(error, OutboxTooLarge):
                    (block,) = self._memory.oldest_blocks(1, 0)
                    self._drop(block, drops.OUTBOX_FULL)
                else:
                    self._failed(error)
        if not self._memory and self._may_try():
            self._works()

    def _move_oldest(self, count: int, *, drop_oldest: bool) -> None:
        some = self._memory.oldest_blocks(count, _BYTES_PER_COMMIT)
        removed = {block.first: self._memory.removed_of(block) for block in some}
        dictionaries = self._memory.dictionaries_of(some)
        self._opened().store(some, removed, dictionaries, drop_oldest=drop_oldest)
        for block in some:
            self._memory.forget(block)

    # Memory.

    def _make_room(self) -> None:
        """Drop the oldest block of others where they exceed their share; else of all, or of memory."""
        if self._memory.others_bytes > self._memory_bytes // _SHARE:
            self._drop(self._memory.oldest_of_others(), drops.OTHERS_SHARE)
            return
        now_s = self._monotonic()
        if self._is_full and self._disk is not None and len(self._disk) and now_s >= self._room_at_s:
            try:
                self._move_oldest(1, drop_oldest=True)
            except OutboxError as error:
                self._failed(error)
                self._room_at_s = self._try_at_s
            else:
                return
        (oldest,) = self._memory.oldest_blocks(1, 0)
        self._drop(oldest, drops.DISK_LOW if self._is_full else drops.MEMORY_FULL)

    def _drop(self, block: Block, reason: str) -> None:
        drop = self._memory.drop_of(block, reason)
        self._memory.forget(block)
        self._on_drop(drop)

    def _check_open(self) -> None:
        if self._closed:
            raise OutboxClosed(f"{self._path} is closed")
