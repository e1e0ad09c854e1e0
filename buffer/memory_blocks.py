"""Blocks kept in memory while the disk can't be used, compressed as on the disk.

Nothing here is durable. One thread uses it at a time.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from buffer import blocks
from buffer.blocks import Block, DamagedBlockError, Dictionary
from buffer.drops import Drop

OVERHEAD_BYTES: Final = 420
"""Python's memory for a block beside summary and payload (CPython 3.11, 64 bit): objects, numbers, checksums,
table entries with their slack."""


@dataclass(slots=True)
class _Kept:
    """A block; bit n of ``gone`` is set where its record n is removed."""

    block: Block
    gone: int = 0

    @property
    def left(self) -> int:
        return self.block.count - self.gone.bit_count()

    def size_bytes(self) -> int:
        return (
            OVERHEAD_BYTES
            + len(self.block.summary)
            + len(self.block.payload)
            # Sized for the worst, so that a removal never makes it larger.
            + self.block.count // 7
        )


class MemoryBlocks:
    """Blocks in the order of their numbers."""

    def __init__(self) -> None:
        # Numbers only grow and dicts keep insertion order; the list finds a number's block.
        self._kept: dict[int, _Kept] = {}
        self._firsts: list[int] = []
        self._dictionaries: dict[int, Dictionary] = {}
        self._current: Dictionary | None = None
        # In order; no values.
        self._others: dict[int, None] = {}
        self.others_bytes = 0
        """What of the size is others' records."""
        self.damaged: list[Block] = []
        self.records = 0
        self._bytes = 0

    def __bool__(self) -> bool:
        return bool(self._kept)

    @property
    def oldest(self) -> int | None:
        """The first number of the oldest block; None without one."""
        return self._firsts[0] if self._firsts else None

    def size_bytes(self) -> int:
        """Memory of the blocks, without their dictionary's, which has a fixed size."""
        return self._bytes

    def append(self, first: int, records: Sequence[bytes], summary: bytes, *, others: bool) -> Block:
        """Add records numbered from ``first``, which is above all numbers here."""
        if self._current is None:
            self._current = blocks.learn(records)
            if self._current is not None:
                self._dictionaries[self._current.number] = self._current
        made = blocks.make(first, records, summary, self._current, others=others)
        # A copy: zstd's buffer has room for the uncompressed bytes (measured: ten times as much).
        block = replace(made, payload=bytes(memoryview(made.payload)))
        kept = _Kept(block)
        self._kept[first] = kept
        self._firsts.append(first)
        self.records += block.count
        self._bytes += kept.size_bytes()
        if others:
            self._others[first] = None
            self.others_bytes += kept.size_bytes()
        return block

    def peek(self, after: int, limit: int, max_bytes: int, *, always_one: bool) -> list[tuple[int, bytes]]:
        """The oldest records above ``after``: at most ``limit`` and ``max_bytes``.

        With ``always_one`` one is returned however large. Blocks that fail their checksums (the memory itself
        is faulty) are skipped, and in ``damaged`` from then on.
        """
        taken: list[tuple[int, bytes]] = []
        taken_bytes = 0
        for kept in self._from(after + 1):
            try:
                records = kept.block.records(self._dictionaries.get(kept.block.dictionary))
            except DamagedBlockError:
                self.damaged.append(kept.block)
                continue
            for at, record in enumerate(records):
                number = kept.block.first + at
                if number <= after or kept.gone >> at & 1:
                    continue
                taken_bytes += len(record)
                if len(taken) >= limit or (taken_bytes > max_bytes and (taken or not always_one)):
                    return taken
                taken.append((number, record))
        return taken

    def remove(self, numbers: Iterable[int]) -> None:
        """Remove records; unknown numbers are ignored."""
        for number in numbers:
            kept = self._with(number)
            bit = 0 if kept is None else 1 << number - kept.block.first
            if kept is None or kept.gone & bit:
                continue
            kept.gone |= bit
            self.records -= 1
            if not kept.left:
                self.forget(kept.block)

    def block(self, first: int) -> Block:
        """The block that begins with a number."""
        return self._kept[first].block

    def oldest_of_others(self) -> Block:
        """The oldest block of others' records, where there is one."""
        return self.block(next(iter(self._others)))

    def oldest_blocks(self, count: int, max_bytes: int) -> list[Block]:
        """The oldest blocks: at most ``count`` and ``max_bytes``, at least one where there is one."""
        taken: list[Block] = []
        taken_bytes = 0
        for first in self._firsts[:count]:
            block = self._kept[first].block
            taken_bytes += block.size_bytes
            if taken and taken_bytes > max_bytes:
                break
            taken.append(block)
        return taken

    def removed_of(self, block: Block) -> list[int]:
        """Numbers of a block's records that are removed."""
        gone = self._kept[block.first].gone
        return [block.first + at for at in range(block.count) if gone >> at & 1]

    def dictionaries_of(self, some: Iterable[Block]) -> list[Dictionary]:
        """The dictionaries that blocks are compressed with."""
        return [self._dictionaries[number] for number in {block.dictionary for block in some} if number]

    def drop_of(self, block: Block, reason: str) -> Drop:
        """The loss of a block: of what is left of it, where some was removed."""
        drop = Drop(reason, block.first, block.last, block.count, block.summary)
        kept = self._kept[block.first]
        if not kept.gone:
            return drop
        left: tuple[bytes, ...] = ()
        with contextlib.suppress(DamagedBlockError):
            records = block.records(self._dictionaries.get(block.dictionary))
            left = tuple(record for at, record in enumerate(records) if not kept.gone >> at & 1)
        return replace(drop, count=kept.left, left=left)

    def forget(self, block: Block) -> None:
        """Remove a block."""
        kept = self._kept.pop(block.first)
        del self._firsts[bisect_right(self._firsts, block.first) - 1]
        self.records -= kept.left
        self._bytes -= kept.size_bytes()
        if block.others:
            del self._others[block.first]
            self.others_bytes -= kept.size_bytes()
        if not self._kept:
            # Readings may differ by the next outage.
            self._current = None
            self._dictionaries.clear()

    def _with(self, number: int) -> _Kept | None:
        at = bisect_right(self._firsts, number) - 1
        if at < 0:
            return None
        kept = self._kept[self._firsts[at]]
        return kept if number <= kept.block.last else None

    def _from(self, number: int) -> Iterator[_Kept]:
        """The blocks with records from this number on, oldest first."""
        at = max(bisect_right(self._firsts, number) - 1, 0)
        for first in self._firsts[at:]:
            yield self._kept[first]
