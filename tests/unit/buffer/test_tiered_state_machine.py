"""Random appends, removals, disk troubles, recoveries and crashes against a plain dict.

In a crash exactly what was in memory is lost, and memory is used only while the disk fails.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from buffer.blocks import Group
from buffer.drops import NOT_STORED, Drop
from buffer.errors import OutboxError
from buffer.tiered_outbox import TieredOutbox
from tests.unit.buffer.trouble import Disk

_numbers = st.integers(min_value=-2, max_value=60)
NAME = "outbox.db"


class TieredMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.disk = Disk()
        self.drops: list[Drop] = []
        self.outbox = self.open()
        self.stored: dict[int, bytes] = {}
        self.blocks: dict[int, range] = {}
        self.issued = self.issued_on_disk = 0

    def open(self) -> TieredOutbox:
        return self.disk.outbox(self.directory / NAME, self.drops.append)

    @property
    def in_memory(self) -> set[int]:
        oldest = self.outbox.in_memory().oldest
        return set() if oldest is None else {number for number in self.stored if number >= oldest}

    @rule(records=st.lists(st.binary(max_size=300), min_size=1, max_size=5))
    def append(self, records: list[bytes]) -> None:
        numbers = self.outbox.append(records)
        assert numbers == list(range(numbers[0], numbers[0] + len(records)))
        assert numbers[0] > self.issued
        self.issued = numbers[-1]
        self.stored.update(zip(numbers, records, strict=True))
        self.blocks.update(dict.fromkeys(numbers, range(numbers[0], numbers[-1] + 1)))

    @rule(places=st.lists(st.integers(0, 30), max_size=8))
    def remove(self, places: list[int]) -> None:
        held = sorted(self.stored)
        numbers = [held[place] for place in places if place < len(held)]
        if self.disk.writing is not None and not self.disk.is_full:
            # A disk that can't be written forgets nothing; memory does.
            numbers = [number for number in numbers if number in self.in_memory]
        self.outbox.remove(numbers)
        for number in numbers:
            self.stored.pop(number, None)

    @rule(places=st.sets(st.integers(0, 30), min_size=1, max_size=6))
    def refile(self, places: set[int]) -> None:
        held = sorted(self.stored)
        numbers = [held[place] for place in sorted(places) if place < len(held)]
        if not numbers:
            return
        parts = [part for part in (numbers[::2], numbers[1::2]) if part]
        groups = [Group(part, [self.stored[number] for number in part], b"") for part in parts]
        works = self.disk.writing is None and self.outbox.in_memory().problem is None
        if not works or self.in_memory:
            with pytest.raises(OutboxError):
                self.outbox.refile(groups)
            return
        for number in numbers:
            del self.stored[number]
        for group, stored in zip(groups, self.outbox.refile(groups), strict=True):
            assert stored[0] > self.issued
            self.issued = stored[-1]
            self.stored.update(zip(stored, group.records, strict=True))
            self.blocks.update(dict.fromkeys(stored, stored))

    @rule(after=st.integers(-1, 40), limit=st.integers(1, 6), max_bytes=st.integers(0, 700))
    def peek(self, after: int, limit: int, max_bytes: int) -> None:
        expected: list[tuple[int, bytes]] = []
        for number in sorted(number for number in self.stored if number > after)[:limit]:
            record = self.stored[number]
            if expected and sum(len(taken) for _, taken in expected) + len(record) > max_bytes:
                break
            expected.append((number, record))
        assert self.outbox.peek(after, limit, max_bytes) == expected

    @rule()
    def disk_full(self) -> None:
        self.disk.fill()

    @rule()
    def disk_read_only(self) -> None:
        self.disk.make_read_only()

    @rule()
    def disk_mended(self) -> None:
        self.disk.mend()
        self.outbox.tend()
        assert self.outbox.in_memory().records == 0
        assert self.outbox.in_memory().problem is None

    @precondition(lambda self: self.outbox.in_memory().records == 0)
    @rule(works=st.booleans())
    def reopen(self, works: bool) -> None:
        """A start with a disk that can't be opened gives what is there when it can be."""
        self.disk.writing = None
        self.outbox.close()
        self.disk.opening = works
        self.outbox = self.open()
        if not works:
            assert (len(self.outbox), self.outbox.peek(0, 100, 1 << 30)) == (0, [])
            (number,) = self.outbox.append([b"meanwhile"])
            assert number > self.issued
            self.issued = number
            self.stored[number] = b"meanwhile"
            self.blocks[number] = range(number, number + 1)
            self.disk.mend()
            self.outbox.tend()
            assert self.outbox.in_memory().records == 0

    @rule()
    def close_and_reopen(self) -> None:
        """Closed with the disk failing, what is in memory is announced, each record once."""
        lost = self.in_memory if self.disk.writing is not None else set()
        self.outbox.close()
        reported = {number for drop in self.drops for number in range(drop.first, drop.last + 1)}
        assert {drop.reason for drop in self.drops} <= {NOT_STORED}
        assert sum(drop.count or 0 for drop in self.drops) == len(lost)
        assert reported >= lost
        assert not reported & (self.stored.keys() - lost)
        self.drops.clear()
        for number in lost:
            del self.stored[number]
        if self.disk.writing is not None:
            # Numbers that only memory knew may be given again by the next outbox.
            self.issued = self.issued_on_disk
        self.disk.mend()
        self.outbox = self.open()

    @rule()
    def crash(self) -> None:
        """Go on from a copy of what is on the disk, without a close."""
        lost = self.in_memory
        self.issued = self.issued_on_disk
        crashed = Path(tempfile.mkdtemp())
        for file in self.directory.iterdir():
            shutil.copy(file, crashed)
        (crashed / f"{NAME}-shm").unlink(missing_ok=True)
        self.disk.mend()
        self.outbox.close()
        shutil.rmtree(self.directory)
        self.directory = crashed
        self.drops.clear()
        self.outbox = self.open()
        found = dict(self.outbox.peek(0, 1 << 30, 1 << 30))
        kept = self.stored.keys() - lost
        assert found.keys() >= kept
        assert not found.keys() & lost
        # What else there is was removed in part of its block, since the last clean close.
        for number in found.keys() - kept:
            assert any(other in kept for other in self.blocks[number])
        self.stored = found

    @invariant()
    def nothing_is_dropped(self) -> None:
        assert self.drops == []

    @invariant()
    def note_what_is_on_the_disk(self) -> None:
        self.issued_on_disk = max([self.issued_on_disk, *(self.stored.keys() - self.in_memory)])

    @invariant()
    def memory_is_for_troubles_only(self) -> None:
        memory = self.outbox.in_memory()
        assert memory.records == len(self.in_memory)
        assert memory.problem is not None or not memory.records

    @invariant()
    def holds_what_was_appended_and_not_removed(self) -> None:
        assert len(self.outbox) == len(self.stored)
        assert self.outbox.peek(0, 1 << 30, 1 << 30) == sorted(self.stored.items())

    def teardown(self) -> None:
        self.outbox.close()
        shutil.rmtree(self.directory)


TestTieredMachine = TieredMachine.TestCase
TestTieredMachine.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
