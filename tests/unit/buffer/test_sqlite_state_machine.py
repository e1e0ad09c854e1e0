"""Random appends, peeks, removals, reopenings and crashes against a plain dict."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from buffer.errors import Drop
from buffer.sqlite_outbox import SqliteOutbox

_numbers = st.integers(min_value=-2, max_value=60)


class OutboxMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.outbox = SqliteOutbox(self.directory / "outbox.db")
        self.drops: list[Drop] = []
        self.stored: dict[int, bytes] = {}
        self.ever: dict[int, bytes] = {}
        self.blocks: list[tuple[int, int]] = []
        self.issued = 0

    @rule(records=st.lists(st.binary(max_size=40), max_size=5))
    def append(self, records: list[bytes]) -> None:
        expected = list(range(self.issued + 1, self.issued + len(records) + 1))
        assert self.outbox.append(records) == expected
        self.issued += len(records)
        self.ever.update(zip(expected, records, strict=True))
        if records:
            self.blocks.append((expected[0], expected[-1]))
        self.stored.update(zip(expected, records, strict=True))

    @rule(numbers=st.lists(_numbers, max_size=8))
    def remove(self, numbers: list[int]) -> None:
        self.outbox.remove(numbers)
        for number in numbers:
            self.stored.pop(number, None)

    @rule()
    def remove_everything(self) -> None:
        self.outbox.remove(list(self.stored))
        self.stored.clear()

    @rule()
    def remove_the_newest(self) -> None:
        if self.stored:
            newest = max(self.stored)
            self.outbox.remove([newest])
            del self.stored[newest]

    @rule(after=_numbers, limit=st.integers(1, 6), max_bytes=st.integers(0, 100))
    def peek(self, after: int, limit: int, max_bytes: int) -> None:
        expected: list[tuple[int, bytes]] = []
        for number in sorted(number for number in self.stored if number > after)[:limit]:
            record = self.stored[number]
            if expected and sum(len(taken) for _, taken in expected) + len(record) > max_bytes:
                break
            expected.append((number, record))
        assert self.outbox.peek(after, limit, max_bytes) == expected

    @rule()
    def reopen(self) -> None:
        self.outbox.close()
        self.outbox = SqliteOutbox(self.directory / "outbox.db", on_drop=self.drops.append)

    @rule(damage_index=st.booleans())
    def crash(self, damage_index: bool) -> None:
        """Go on from a copy of what is on the disk, without a close; the log's index may be anything."""
        crashed = Path(tempfile.mkdtemp())
        for file in self.directory.iterdir():
            shutil.copy(file, crashed)
        index = crashed / "outbox.db-shm"
        if index.exists():
            if damage_index:
                index.write_bytes(b"\xa5" * index.stat().st_size)
            else:
                index.unlink()
        # Closing may write, but to the directory that is left behind.
        self.outbox.close()
        shutil.rmtree(self.directory)
        self.directory = crashed
        self.outbox = SqliteOutbox(self.directory / "outbox.db", on_drop=self.drops.append)
        found = dict(self.outbox.peek(0, 1 << 30, 1 << 30))
        assert found.items() >= self.stored.items()
        # What else there is was removed in part of its block, since the last clean close.
        for number in found.keys() - self.stored.keys():
            first, last = next(block for block in self.blocks if block[0] <= number <= block[1])
            assert any(other in self.stored for other in range(first, last + 1))
            assert found[number] == self.ever[number]
        self.stored = found

    @invariant()
    def nothing_is_dropped(self) -> None:
        assert self.drops == []

    @invariant()
    def holds_what_was_appended_and_not_removed(self) -> None:
        assert len(self.outbox) == len(self.stored)
        assert self.outbox.peek(0, 1 << 30, 1 << 30) == sorted(self.stored.items())

    def teardown(self) -> None:
        self.outbox.close()
        shutil.rmtree(self.directory)


TestOutboxMachine = OutboxMachine.TestCase
TestOutboxMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
