"""Which rows a fetch passes over: never one that can be sent, and none twice that waits."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gateway.forwarding.backlog import SkippedRows
from tests.support.examples import examples

BATCH = 3


class SkippedRowsMachine(RuleBasedStateMachine):
    """An outbox of rows that wait and others, and passes over it."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[int, bool] = {}
        self.last = 0
        self.held = SkippedRows()
        self.after = 0
        self.sent_since_begin = True
        self.seen: set[int] = set()

    @rule(waits=st.lists(st.booleans(), min_size=1, max_size=4), skip=st.integers(0, 3))
    def store(self, waits: Sequence[bool], skip: int) -> None:
        self.last += skip
        for each in waits:
            self.last += 1
            self.rows[self.last] = each
            self.held.stored(self.last, waits=each)
            if each:
                self.seen.add(self.last)

    @rule(waits=st.booleans())
    def there_before(self, waits: bool) -> None:
        """A row that an earlier run has left: it is unknown yet."""
        if not self.seen and not self.held.only:
            self.last += 1
            self.rows[self.last] = waits

    @rule()
    def fetch(self) -> None:
        begin = self.held.begin(self.after)
        passed = [number for number in self.rows if self.after < number <= begin]
        assert all(self.rows[number] for number in passed), "a row that can be sent was passed over"
        fetched = sorted(number for number in self.rows if number > begin)[:BATCH]
        self.held.fetched(fetched)
        for number in fetched:
            if self.rows[number]:
                self.held.held(number)
                self.seen.add(number)
            else:
                self.held.other()
        self.after = fetched[-1] if fetched else 0

    @rule(at=st.integers(0, 50))
    def send(self, at: int) -> None:
        others = sorted(number for number, waits in self.rows.items() if not waits)
        if others:
            gone = others[at % len(others)]
            del self.rows[gone]
            self.held.gone([gone])

    @rule(at=st.integers(0, 50))
    def drop_oldest(self, at: int) -> None:
        """The outbox was full."""
        if self.rows and at > 45:
            del self.rows[min(self.rows)]

    @rule()
    def release(self) -> None:
        self.rows = dict.fromkeys(self.rows, False)
        self.seen.clear()
        self.held.release()

    @invariant()
    def nothing_sendable_is_hidden(self) -> None:
        if self.held.only:
            assert all(self.rows.values())
        assert self.held.count >= sum(self.rows[number] for number in self.seen & self.rows.keys())


TestSkippedRowsMachine = SkippedRowsMachine.TestCase
TestSkippedRowsMachine.settings = settings(max_examples=examples(200), stateful_step_count=40, deadline=None)


def test_a_pass_over_a_million_rows_that_wait_reads_none_of_them() -> None:
    held = SkippedRows()
    for number in range(1, 1_000_001):
        held.held(number)
    assert held.begin(0) == 1_000_000
    assert held.begin(700) == 1_000_000
    held.fetched([])
    assert (held.only, held.count) == (True, 1_000_000)


def test_only_is_known_after_a_pass_that_found_nothing_else() -> None:
    held = SkippedRows()
    held.begin(0)
    held.fetched([1, 2])
    held.held(1)
    held.other()
    held.begin(2)
    held.fetched([])
    seen = [held.only]
    held.gone([2])
    held.begin(0)
    held.fetched([])
    seen.append(held.only)
    held.stored(3, waits=False)
    seen.append(held.only)
    assert seen == [False, True, False]
