"""Other devices' records and dead letters make room for the owner's, beyond their share."""

from __future__ import annotations

import os
import shutil
import tempfile
from itertools import count
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from buffer.blocks import ROW_BYTES
from buffer.errors import DISK_LOW, OTHERS_SHARE, OUTBOX_FULL, Drop, OutboxDiskFull
from buffer.outbox_file import Limits
from buffer.sqlite_outbox import SqliteOutbox

UNBOUND = 1 << 30
CAP = 2 << 20
NAME = "outbox.db"


def _reading(second: int, channel: int) -> bytes:
    value = (second * 7919 + channel * 104729) % 25000 / 1000
    return (
        b'{"gateway":"mast-07","channel":"cup-%d.wind_speed","seq":%d,"value":%.3f,"raw":%.1f,"quality":1}'
        % (channel, second + 1, value, value * 3)
    )


def _seconds_until_a_reading_is_dropped(path: Path, malformed_a_second: int) -> int:
    """Twelve channels at 1 Hz, beside them messages that nothing makes smaller."""
    drops: list[Drop] = []
    outbox = SqliteOutbox(path, Limits(1 << 20), on_drop=drops.append)
    # An hour of fsyncs takes minutes, and shows nothing here.
    outbox._file.connection.execute("PRAGMA synchronous = OFF")
    for second in count():
        outbox.append([_reading(second, channel) for channel in range(12)], b"own" + os.urandom(120))
        if malformed_a_second:
            outbox.append([os.urandom(800) for _ in range(malformed_a_second)], b"others", others=True)
        lost = next((drop for drop in drops if drop.summary != b"others"), None)
        if lost is not None:
            outbox.close()
            assert (lost.reason, lost.first) == (OUTBOX_FULL, 1)
            assert {drop.reason for drop in drops if drop.summary == b"others"} <= {OTHERS_SHARE}
            return second
    raise AssertionError("nothing was dropped")


def test_fifty_malformed_messages_a_second_cost_readings_a_quarter_of_their_time(tmp_path: Path) -> None:
    alone_s = _seconds_until_a_reading_is_dropped(tmp_path / "alone.db", 0)
    beside_s = _seconds_until_a_reading_is_dropped(tmp_path / "beside.db", 50)
    assert alone_s > 500
    assert 0.7 * alone_s < beside_s < 0.8 * alone_s


def test_others_may_hold_all_that_nobody_else_needs(tmp_path: Path) -> None:
    drops: list[Drop] = []
    outbox = SqliteOutbox(tmp_path / NAME, Limits(CAP), on_drop=drops.append)
    while not drops:
        outbox.append([os.urandom(5000)], others=True)
    assert outbox._blocks.numbering.others_bytes > CAP * 0.65
    assert (drops[0].reason, drops[0].first) == (OTHERS_SHARE, 1)
    outbox.close()


def test_below_min_free_disk_they_go_first_too(tmp_path: Path) -> None:
    free, drops = [UNBOUND], list[Drop]()
    outbox = SqliteOutbox(
        tmp_path / NAME, Limits(min_free_disk=1, free_bytes=lambda _: free[0]), on_drop=drops.append
    )
    for number in range(40):
        outbox.append([os.urandom(5000)], others=number % 2 == 1)
    free[0] = 0
    with pytest.raises(OutboxDiskFull):
        outbox.append([os.urandom(60_000)], drop_oldest=False)
    outbox.append([os.urandom(60_000)])
    outbox.append([os.urandom(60_000)])
    # Half of the file is theirs: it goes down to a quarter, then the oldest of all.
    theirs = [drop.first for drop in drops if drop.reason == OTHERS_SHARE]
    assert theirs == list(range(2, 2 * len(theirs) + 1, 2))
    assert theirs[-1] > 10
    by_reason = [drop.reason for drop in drops]
    assert by_reason == sorted(by_reason, key=(OTHERS_SHARE, DISK_LOW).index)
    assert by_reason[-1] == DISK_LOW
    outbox.close()


_size = st.integers(1, 60).map(lambda tenths: tenths * 1000)


class SharesMachine(RuleBasedStateMachine):
    """Both classes in an outbox of 1 MiB, against a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        # Random bytes without a dictionary: a block's size is known.
        self.learning = mock.patch("buffer.tables.learn", return_value=None)
        self.learning.start()
        self.drops: list[Drop] = []
        self.stored: dict[int, tuple[bytes, bool]] = {}
        self.blocks: dict[int, tuple[int, bool, int]] = {}
        self.outbox = self.open()

    def open(self) -> SqliteOutbox:
        return SqliteOutbox(self.directory / NAME, Limits(1 << 20), on_drop=self.drops.append)

    @rule(size=_size, records=st.integers(1, 3), others=st.booleans(), times=st.integers(3, 12))
    def append(self, size: int, records: int, others: bool, times: int) -> None:
        for _ in range(times):
            share = self.outbox._file.share_of_others()
            made = [os.urandom(size // records) for _ in range(records)]
            theirs = sum(taken for _, of_others, taken in self._sizes().values() if of_others)
            numbers = self.outbox.append(made, others=others)
            self.stored.update(
                (number, (record, others)) for number, record in zip(numbers, made, strict=True)
            )
            self.blocks[numbers[0]] = (records, others, sum(map(len, made)) + 4 * records + ROW_BYTES)
            self._check_drops(theirs + (self.blocks[numbers[0]][2] if others else 0), share)

    def _sizes(self) -> dict[int, tuple[int, bool, int]]:
        return {
            first: block
            for first, block in self.blocks.items()
            if any(number in self.stored for number in range(first, first + block[0]))
        }

    def _check_drops(self, theirs: int, share: int) -> None:
        held = self._sizes()
        for drop in self.drops:
            _, of_others, taken = held[drop.first]
            oldest = min(first for first in held if not theirs > share or held[first][1])
            assert drop.first == oldest
            assert (drop.reason == OTHERS_SHARE) == (theirs > share)
            theirs -= taken if of_others else 0
            left = [number for number in range(drop.first, drop.last + 1) if number in self.stored]
            assert drop.count == len(left)
            for number in left:
                del self.stored[number]
            del held[drop.first]
        self.drops.clear()

    @rule(places=st.lists(st.integers(0, 30), max_size=8))
    def remove(self, places: list[int]) -> None:
        held = sorted(self.stored)
        numbers = [held[place] for place in places if place < len(held)]
        self.outbox.remove(numbers)
        for number in numbers:
            self.stored.pop(number, None)

    @rule()
    def reopen(self) -> None:
        self.outbox.close()
        self.outbox = self.open()

    @invariant()
    def what_others_hold_is_known(self) -> None:
        theirs = sum(taken for _, of_others, taken in self._sizes().values() if of_others)
        assert self.outbox._blocks.numbering.others_bytes == theirs

    @invariant()
    def holds_what_was_appended_and_neither_removed_nor_dropped(self) -> None:
        assert len(self.outbox) == len(self.stored)
        expected = [(number, record) for number, (record, _) in sorted(self.stored.items())]
        assert self.outbox.peek(0, UNBOUND, UNBOUND) == expected

    def teardown(self) -> None:
        self.learning.stop()
        self.outbox.close()
        shutil.rmtree(self.directory)


TestSharesMachine = SharesMachine.TestCase
TestSharesMachine.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
