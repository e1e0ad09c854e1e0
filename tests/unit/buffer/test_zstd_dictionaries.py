"""The dictionary of a file: learned from its first records, however few a commit has."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from buffer.blocks import DICTIONARY_BYTES
from buffer.errors import Drop, OutboxDiskFull
from buffer.outbox_file import Limits
from buffer.reader import OutboxReader
from buffer.sqlite_outbox import SqliteOutbox

UNBOUND = 1 << 30
# Half a kilobyte that is the same in every reading, as names and units are, and a value that isn't.
SAME = os.urandom(225).hex().encode()


def reading(seq: int, value: bytes | None = None) -> bytes:
    return b'%s "seq":%d "value":%s' % (SAME, seq, value or os.urandom(8).hex().encode())


READINGS_TO_LEARN = DICTIONARY_BYTES // len(reading(0)) + 1


@pytest.fixture
def outbox(tmp_path: Path) -> Iterator[SqliteOutbox]:
    outbox = SqliteOutbox(tmp_path / "outbox.db")
    yield outbox
    outbox.close()


def dictionaries(path: Path) -> list[int]:
    """The dictionary of each block, 0 for none."""
    with OutboxReader(path) as reader:
        assert list(reader.records())
        assert reader.damaged == 0
        return [block.dictionary for block in reader.blocks()]


def size_of(path: Path) -> int:
    with OutboxReader(path) as reader:
        return reader.database_bytes()


def test_one_reading_a_commit_is_stored_by_its_difference_to_others(
    outbox: SqliteOutbox, tmp_path: Path
) -> None:
    for seq in range(READINGS_TO_LEARN):
        outbox.append([reading(seq)], b"s" * 60)
    before = size_of(tmp_path / "outbox.db")
    for seq in range(100):
        outbox.append([reading(seq)], b"s" * 60)
    assert size_of(tmp_path / "outbox.db") - before < 100 * 200


def test_what_a_start_stores_first_is_not_all_that_is_learned_from(
    outbox: SqliteOutbox, tmp_path: Path
) -> None:
    outbox.append([b"channel %d: %s" % (at, os.urandom(300).hex().encode()) for at in range(12)])
    for seq in range(4):
        outbox.append([reading(seq) for _ in range(12)])
    assert [bool(each) for each in dictionaries(tmp_path / "outbox.db")] == [False, False, True, True, True]
    with OutboxReader(tmp_path / "outbox.db") as reader:
        (*_, newest) = reader.blocks()
    assert len(newest.payload) / newest.count < 60


def test_a_crash_at_any_commit_finds_all_that_was_stored(outbox: SqliteOutbox, tmp_path: Path) -> None:
    stored: list[bytes] = []
    for seq in range(READINGS_TO_LEARN + 2):
        stored.append(reading(seq))
        outbox.append(stored[-1:])
        if seq < READINGS_TO_LEARN - 3:
            continue
        crashed = tmp_path / f"crashed-{seq}"
        crashed.mkdir()
        for file in tmp_path.glob("outbox.db*"):
            shutil.copy(file, crashed)
        again = SqliteOutbox(crashed / "outbox.db")
        assert [record for _, record in again.peek(0, UNBOUND, UNBOUND)] == stored
        # The next is compressed as before the crash, where there is a dictionary already.
        again.append([reading(seq + 1)])
        again.close()
        assert len(set(dictionaries(crashed / "outbox.db")) - {0}) == (seq >= READINGS_TO_LEARN - 1)
    numbers = dictionaries(tmp_path / "outbox.db")
    assert [bool(each) for each in numbers] == [False] * (READINGS_TO_LEARN - 1) + [True] * 3


def test_what_could_not_be_stored_is_learned_from_once(outbox: SqliteOutbox, tmp_path: Path) -> None:
    with mock.patch.object(outbox._blocks, "_insert", side_effect=OutboxDiskFull("full")):
        for _ in range(2 * READINGS_TO_LEARN):
            with pytest.raises(OutboxDiskFull):
                outbox.append([reading(0, b"0" * 16)], drop_oldest=False)
    outbox.append([reading(1)])
    assert dictionaries(tmp_path / "outbox.db") == [0]


def test_a_dictionary_that_could_not_be_stored_is_with_the_next_block(
    outbox: SqliteOutbox, tmp_path: Path
) -> None:
    records = [reading(seq) for seq in range(READINGS_TO_LEARN)]
    with (
        mock.patch.object(outbox._blocks, "_insert", side_effect=OutboxDiskFull("full")),
        pytest.raises(OutboxDiskFull),
    ):
        outbox.append(records, drop_oldest=False)
    outbox.append([reading(0)])
    (number,) = dictionaries(tmp_path / "outbox.db")
    assert number


def test_at_the_cap_a_dictionary_takes_the_room_of_the_oldest(tmp_path: Path) -> None:
    """A full file of a program that learned nothing from small commits."""
    path, drops = tmp_path / "outbox.db", list[Drop]()
    outbox = SqliteOutbox(path, Limits(1 << 20), on_drop=drops.append)
    with mock.patch("buffer.tables.learn", return_value=None):
        for size in (*[1000] * 60, 300_000, 300_000):
            outbox.append([os.urandom(size)])
        while not drops:
            outbox.append([os.urandom(1000)])
    outbox.close()
    full = size_of(path)
    outbox = SqliteOutbox(path, Limits(1 << 20), on_drop=drops.append)
    outbox.append([os.urandom(1000) for _ in range(17)])
    assert dictionaries(path)[-1]
    assert size_of(path) <= full
    outbox.close()
