"""What every outbox promises (gateway.ports.Outbox), on each implementation."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from buffer import drops
from buffer.blocks import DICTIONARY_BYTES
from buffer.drops import InMemory
from buffer.errors import OutboxClosed
from buffer.sqlite_outbox import SqliteOutbox
from buffer.tiered_outbox import TieredOutbox
from gateway.ports import Outbox
from tests.support.memory_outbox import MemoryOutbox
from tests.unit.buffer.trouble import Disk

UNBOUND = 1 << 30


def _sqlite(directory: Path) -> Outbox:
    return _OnDisk(directory / "outbox.db")


class _OnDisk(SqliteOutbox):
    """All of it is on the disk, and nothing is due between calls."""

    def in_memory(self) -> InMemory:
        return InMemory(0, 0, None, None)

    def tend(self, *, at_once: bool = False) -> None: ...


def _memory(directory: Path) -> Outbox:
    return MemoryOutbox()


def _tiered(directory: Path) -> Outbox:
    return TieredOutbox(directory / "outbox.db")


def _tiered_full(directory: Path) -> Outbox:
    disk = Disk()
    disk.fill()
    return disk.outbox(directory / "outbox.db", drops.ignore)


def _tiered_unopened(directory: Path) -> Outbox:
    # Its numbers go on after the last one reserved.
    (directory / "outbox.db.lock").write_text(f"{0:020d} {0:020d} {1:020d} closed\n")
    disk = Disk()
    disk.opening = False
    return disk.outbox(directory / "outbox.db", drops.ignore)


def _tiered_half(directory: Path) -> Outbox:
    return _FillsUp(directory)


class _FillsUp(TieredOutbox):
    """Its disk is full after the first append and has room again from the third on."""

    def __init__(self, directory: Path) -> None:
        self._trouble = Disk()
        other = self._trouble.outbox(directory / "outbox.db", drops.ignore)
        self.__dict__.update(other.__dict__)
        self._appends = 0

    def append(self, records: Sequence[bytes], summary: bytes = b"", *, others: bool = False) -> list[int]:
        self._appends += 1
        if self._appends == 2:
            self._trouble.fill()
        elif self._appends == 3:
            self._trouble.mend()
        return super().append(records, summary)


_MAKERS = {
    "sqlite": _sqlite,
    "memory": _memory,
    "tiered": _tiered,
    "tiered-full": _tiered_full,
    "tiered-unopened": _tiered_unopened,
    "tiered-half": _tiered_half,
}


@pytest.fixture(params=list(_MAKERS.values()), ids=list(_MAKERS))
def outbox(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Outbox]:
    make: Callable[[Path], Outbox] = request.param
    outbox = make(tmp_path)
    yield outbox
    outbox.close()


def test_new_outbox_is_empty(outbox: Outbox) -> None:
    assert len(outbox) == 0
    assert outbox.peek(0, 10, UNBOUND) == []


def test_append_numbers_from_one_and_peek_gives_the_same_bytes_in_order(outbox: Outbox) -> None:
    assert outbox.append([b"a", b"", b"\x00\xff"]) == [1, 2, 3]
    assert outbox.append([b"d"]) == [4]
    assert outbox.peek(0, 10, UNBOUND) == [(1, b"a"), (2, b""), (3, b"\x00\xff"), (4, b"d")]
    assert len(outbox) == 4


def test_append_of_nothing_is_nothing(outbox: Outbox) -> None:
    assert outbox.append([]) == []
    assert outbox.append([b"a"]) == [1]


def test_equal_records_are_two_records(outbox: Outbox) -> None:
    outbox.append([b"same", b"same"])
    outbox.remove([1])
    assert outbox.peek(0, 10, UNBOUND) == [(2, b"same")]


def test_peek_starts_after_a_number_and_stops_at_the_limit(outbox: Outbox) -> None:
    outbox.append([b"a", b"b", b"c", b"d"])
    assert outbox.peek(1, 2, UNBOUND) == [(2, b"b"), (3, b"c")]
    assert outbox.peek(4, 2, UNBOUND) == []
    assert outbox.peek(400, 2, UNBOUND) == []
    assert outbox.peek(-1, 1, UNBOUND) == [(1, b"a")]
    assert outbox.peek(0, 0, UNBOUND) == []


def test_peek_stops_at_max_bytes_inclusive(outbox: Outbox) -> None:
    outbox.append([b"12345", b"12345", b"1"])
    assert [number for number, _ in outbox.peek(0, 10, 10)] == [1, 2]
    assert [number for number, _ in outbox.peek(0, 10, 9)] == [1]
    assert [number for number, _ in outbox.peek(0, 10, 11)] == [1, 2, 3]


def test_peek_gives_one_record_however_large(outbox: Outbox) -> None:
    outbox.append([b"x" * 1000, b"y"])
    assert outbox.peek(0, 10, 1) == [(1, b"x" * 1000)]


def test_peek_changes_nothing(outbox: Outbox) -> None:
    outbox.append([b"a", b"b"])
    assert outbox.peek(0, 10, UNBOUND) == outbox.peek(0, 10, UNBOUND)
    assert len(outbox) == 2


def test_remove_from_the_middle_leaves_the_rest(outbox: Outbox) -> None:
    outbox.append([b"a", b"b", b"c", b"d", b"e"])
    outbox.remove([4, 2])
    assert outbox.peek(0, 10, UNBOUND) == [(1, b"a"), (3, b"c"), (5, b"e")]
    assert len(outbox) == 3


def test_remove_ignores_unknown_and_repeated_numbers(outbox: Outbox) -> None:
    outbox.append([b"a", b"b"])
    outbox.remove([2, 2, 0, -5, 3, 1 << 80])
    outbox.remove([2])
    outbox.remove([])
    assert outbox.peek(0, 10, UNBOUND) == [(1, b"a")]
    assert len(outbox) == 1


def test_remove_takes_an_iterator(outbox: Outbox) -> None:
    outbox.append([b"a", b"b", b"c"])
    outbox.remove(number for number, _ in outbox.peek(0, 2, UNBOUND))
    assert outbox.peek(0, 10, UNBOUND) == [(3, b"c")]


def test_numbers_are_not_used_again_after_the_newest_is_removed(outbox: Outbox) -> None:
    outbox.append([b"a", b"b"])
    outbox.remove([2])
    assert outbox.append([b"c"]) == [3]
    outbox.remove([1, 3])
    assert outbox.append([b"d"]) == [4]


def test_append_while_a_batch_is_out(outbox: Outbox) -> None:
    outbox.append([b"a", b"b"])
    batch = outbox.peek(0, 2, UNBOUND)
    outbox.append([b"c"])
    outbox.remove(number for number, _ in batch)
    assert outbox.peek(0, 10, UNBOUND) == [(3, b"c")]


def test_size_grows_with_what_is_stored(outbox: Outbox) -> None:
    empty = outbox.size_bytes() + outbox.in_memory().size_bytes
    outbox.append([os.urandom(100_000)])
    assert outbox.size_bytes() + outbox.in_memory().size_bytes >= empty + 100_000 - DICTIONARY_BYTES


def test_closed_outbox_refuses_use(outbox: Outbox) -> None:
    outbox.append([b"a"])
    outbox.close()
    outbox.close()
    with pytest.raises(OutboxClosed):
        outbox.append([b"b"])
    with pytest.raises(OutboxClosed):
        outbox.peek(0, 1, 1)
    with pytest.raises(OutboxClosed):
        outbox.remove([1])
