"""What an outbox promises, also one that is opened late."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from buffer import errors
from buffer.blocks import DICTIONARY_BYTES
from buffer.errors import OutboxClosed
from buffer.sqlite_outbox import SqliteOutbox
from tests.unit.buffer.trouble import Disk

UNBOUND = 1 << 30


def _sqlite(directory: Path) -> SqliteOutbox:
    return SqliteOutbox(directory / "outbox.db")


def _opened_late(directory: Path) -> SqliteOutbox:
    disk = Disk()
    disk.opening = False
    outbox = disk.outbox(directory / "outbox.db", errors.ignore)
    disk.mend()
    return outbox


_MAKERS = {"sqlite": _sqlite, "opened-late": _opened_late}


@pytest.fixture(params=list(_MAKERS.values()), ids=list(_MAKERS))
def outbox(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqliteOutbox]:
    make: Callable[[Path], SqliteOutbox] = request.param
    outbox = make(tmp_path)
    yield outbox
    outbox.close()


def test_new_outbox_is_empty(outbox: SqliteOutbox) -> None:
    assert len(outbox) == 0
    assert outbox.peek(0, 10, UNBOUND) == []


def test_append_numbers_from_one_and_peek_gives_the_same_bytes_in_order(outbox: SqliteOutbox) -> None:
    assert outbox.append([b"a", b"", b"\x00\xff"]) == [1, 2, 3]
    assert outbox.append([b"d"]) == [4]
    assert outbox.peek(0, 10, UNBOUND) == [(1, b"a"), (2, b""), (3, b"\x00\xff"), (4, b"d")]
    assert len(outbox) == 4


def test_append_of_nothing_is_nothing(outbox: SqliteOutbox) -> None:
    assert outbox.append([]) == []
    assert outbox.append([b"a"]) == [1]


def test_equal_records_are_two_records(outbox: SqliteOutbox) -> None:
    outbox.append([b"same", b"same"])
    outbox.remove([1])
    assert outbox.peek(0, 10, UNBOUND) == [(2, b"same")]


def test_peek_starts_after_a_number_and_stops_at_the_limit(outbox: SqliteOutbox) -> None:
    outbox.append([b"a", b"b", b"c", b"d"])
    assert outbox.peek(1, 2, UNBOUND) == [(2, b"b"), (3, b"c")]
    assert outbox.peek(4, 2, UNBOUND) == []
    assert outbox.peek(400, 2, UNBOUND) == []
    assert outbox.peek(-1, 1, UNBOUND) == [(1, b"a")]
    assert outbox.peek(0, 0, UNBOUND) == []


def test_peek_stops_at_max_bytes_inclusive(outbox: SqliteOutbox) -> None:
    outbox.append([b"12345", b"12345", b"1"])
    assert [number for number, _ in outbox.peek(0, 10, 10)] == [1, 2]
    assert [number for number, _ in outbox.peek(0, 10, 9)] == [1]
    assert [number for number, _ in outbox.peek(0, 10, 11)] == [1, 2, 3]


def test_peek_gives_one_record_however_large(outbox: SqliteOutbox) -> None:
    outbox.append([b"x" * 1000, b"y"])
    assert outbox.peek(0, 10, 1) == [(1, b"x" * 1000)]


def test_peek_changes_nothing(outbox: SqliteOutbox) -> None:
    outbox.append([b"a", b"b"])
    assert outbox.peek(0, 10, UNBOUND) == outbox.peek(0, 10, UNBOUND)
    assert len(outbox) == 2


def test_remove_from_the_middle_leaves_the_rest(outbox: SqliteOutbox) -> None:
    outbox.append([b"a", b"b", b"c", b"d", b"e"])
    outbox.remove([4, 2])
    assert outbox.peek(0, 10, UNBOUND) == [(1, b"a"), (3, b"c"), (5, b"e")]
    assert len(outbox) == 3


def test_remove_ignores_unknown_and_repeated_numbers(outbox: SqliteOutbox) -> None:
    outbox.append([b"a", b"b"])
    outbox.remove([2, 2, 0, -5, 3, 1 << 80])
    outbox.remove([2])
    outbox.remove([])
    assert outbox.peek(0, 10, UNBOUND) == [(1, b"a")]
    assert len(outbox) == 1


def test_remove_takes_an_iterator(outbox: SqliteOutbox) -> None:
    outbox.append([b"a", b"b", b"c"])
    outbox.remove(number for number, _ in outbox.peek(0, 2, UNBOUND))
    assert outbox.peek(0, 10, UNBOUND) == [(3, b"c")]


def test_numbers_are_not_used_again_after_the_newest_is_removed(outbox: SqliteOutbox) -> None:
    outbox.append([b"a", b"b"])
    outbox.remove([2])
    assert outbox.append([b"c"]) == [3]
    outbox.remove([1, 3])
    assert outbox.append([b"d"]) == [4]


def test_append_while_a_batch_is_out(outbox: SqliteOutbox) -> None:
    outbox.append([b"a", b"b"])
    batch = outbox.peek(0, 2, UNBOUND)
    outbox.append([b"c"])
    outbox.remove(number for number, _ in batch)
    assert outbox.peek(0, 10, UNBOUND) == [(3, b"c")]


def test_size_grows_with_what_is_stored(outbox: SqliteOutbox) -> None:
    empty = outbox.size_bytes()
    outbox.append([os.urandom(100_000)])
    assert outbox.size_bytes() >= empty + 100_000 - DICTIONARY_BYTES


def test_closed_outbox_refuses_use(outbox: SqliteOutbox) -> None:
    outbox.append([b"a"])
    outbox.close()
    outbox.close()
    with pytest.raises(OutboxClosed):
        outbox.append([b"b"])
    with pytest.raises(OutboxClosed):
        outbox.peek(0, 1, 1)
    with pytest.raises(OutboxClosed):
        outbox.remove([1])
