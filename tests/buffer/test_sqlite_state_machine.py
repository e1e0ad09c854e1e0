"""Random appends, peeks, removals and reopenings against a plain dict."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from buffer.sqlite_outbox import SqliteOutbox

_numbers = st.integers(min_value=-2, max_value=60)


class OutboxMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.outbox = SqliteOutbox(self.directory / "outbox.db")
        self.stored: dict[int, bytes] = {}
        self.issued = 0

    @rule(records=st.lists(st.binary(max_size=40), max_size=5))
    def append(self, records: list[bytes]) -> None:
        expected = list(range(self.issued + 1, self.issued + len(records) + 1))
        assert self.outbox.append(records) == expected
        self.issued += len(records)
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
        self.outbox = SqliteOutbox(self.directory / "outbox.db")

    @invariant()
    def holds_what_was_appended_and_not_removed(self) -> None:
        assert len(self.outbox) == len(self.stored)
        assert self.outbox.peek(0, 1 << 30, 1 << 30) == sorted(self.stored.items())

    def teardown(self) -> None:
        self.outbox.close()
        shutil.rmtree(self.directory)


TestOutboxMachine = OutboxMachine.TestCase
TestOutboxMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
