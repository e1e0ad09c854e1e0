"""Records that are stored again: in place of the old ones, all or nothing, and nothing else goes for them."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from buffer.blocks import Group
from buffer.drops import Drop
from buffer.errors import OutboxDiskFull, OutboxUnusable
from buffer.space_limits import Limits
from buffer.sqlite_outbox import SqliteOutbox
from tests.unit.buffer.trouble import Disk

UNBOUND = 1 << 30
CAP = 2 << 20


def mixed_blocks(outbox: SqliteOutbox, blocks: int, size: int = 300) -> list[int]:
    """Blocks of four records, of which the first three were removed; the numbers of those left."""
    for _ in range(blocks):
        numbers = outbox.append([os.urandom(size) for _ in range(4)])
        outbox.remove(numbers[:3])
    return list(range(4, 4 * blocks + 1, 4))


def again(rows: Sequence[tuple[int, bytes]]) -> Group:
    """These rows, to be stored again."""
    return Group([number for number, _ in rows], [record for _, record in rows], b"")


def test_the_last_records_of_blocks_become_one_block_and_memory_forgets_theirs(tmp_path: Path) -> None:
    outbox = SqliteOutbox(tmp_path / "outbox.db")
    left = mixed_blocks(outbox, 100)
    records = [record for _, record in outbox.peek(0, UNBOUND, UNBOUND)]
    assert len(outbox._blocks._removed) == 100
    assert outbox.refile([Group(left, records, b"summary")]) == [range(401, 501)]
    assert outbox.peek(0, UNBOUND, UNBOUND) == list(zip(range(401, 501), records, strict=True))
    assert (len(outbox), len(outbox._blocks._removed)) == (100, 0)
    assert outbox.append([b"next"]) == [501]
    outbox.close()
    again = SqliteOutbox(tmp_path / "outbox.db")
    assert [number for number, _ in again.peek(0, UNBOUND, UNBOUND)] == list(range(401, 502))
    again.close()


def test_a_crash_finds_them_either_there_or_here(tmp_path: Path) -> None:
    outbox = SqliteOutbox(tmp_path / "outbox.db")
    mixed_blocks(outbox, 3)
    held = outbox.peek(0, UNBOUND, UNBOUND)
    copies = [tmp_path / "before", tmp_path / "after"]
    for copy in copies:
        copy.mkdir()
        for file in tmp_path.glob("outbox.db*"):
            shutil.copy(file, copy)
        if copy.name == "before":
            outbox.refile([again(held)])
    outbox.close()
    found = []
    for copy in copies:
        crashed = SqliteOutbox(copy / "outbox.db")
        found.append({record for _, record in crashed.peek(0, UNBOUND, UNBOUND)})
        crashed.close()
    # Of the blocks as they were, what was removed comes again; of those that are gone, nothing.
    assert found[0] > {record for _, record in held}
    assert found[1] == {record for _, record in held}


def test_at_the_cap_they_take_the_room_they_leave_and_nothing_is_dropped(tmp_path: Path) -> None:
    drops: list[Drop] = []
    outbox = SqliteOutbox(tmp_path / "outbox.db", Limits(CAP), on_drop=drops.append)
    while not drops:
        mixed_blocks(outbox, 20)
    drops.clear()
    held = outbox.peek(0, UNBOUND, UNBOUND)
    # All that is left of 200 blocks, each of which goes.
    oldest = [(number, record) for number, record in held if number % 4 == 0][:200]
    outbox.refile([again(oldest)])
    assert {record for _, record in outbox.peek(0, UNBOUND, UNBOUND)} == {record for _, record in held}
    assert drops == []
    outbox.close()


def test_at_the_cap_groups_take_the_room_of_blocks_that_only_all_of_them_empty(tmp_path: Path) -> None:
    drops: list[Drop] = []
    outbox = SqliteOutbox(tmp_path / "outbox.db", Limits(CAP), on_drop=drops.append)
    while not drops:
        outbox.append([os.urandom(300) for _ in range(4)])
    drops.clear()
    held = outbox.peek(0, UNBOUND, UNBOUND)
    begin = -held[0][0] % 4 + 1
    groups = [again(held[begin + at : begin + 400 : 4]) for at in range(4)]
    for group in groups:
        with pytest.raises(OutboxDiskFull):
            outbox.refile([group])
    issued = outbox.issued
    numbers = outbox.refile(groups)
    assert numbers == [range(issued + 1 + 100 * at, issued + 101 + 100 * at) for at in range(4)]
    found = dict(outbox.peek(0, UNBOUND, UNBOUND))
    for group, those in zip(groups, numbers, strict=True):
        assert [found[number] for number in those] == group.records
    assert Counter(found.values()) == Counter(record for _, record in held)
    assert drops == []
    outbox.close()


def test_where_they_leave_no_room_nothing_changes(tmp_path: Path) -> None:
    drops: list[Drop] = []
    outbox = SqliteOutbox(tmp_path / "outbox.db", Limits(CAP), on_drop=drops.append)
    while not drops:
        outbox.append([os.urandom(1000) for _ in range(4)])
    drops.clear()
    held = outbox.peek(0, UNBOUND, UNBOUND)
    one_of_each = [(number, record) for number, record in held if number % 4 == 0]
    with pytest.raises(OutboxDiskFull):
        outbox.refile([again(one_of_each)])
    assert outbox.peek(0, UNBOUND, UNBOUND) == held
    assert drops == []
    outbox.close()


def test_records_that_were_dropped_meanwhile_do_not_come_back(tmp_path: Path) -> None:
    drops: list[Drop] = []
    outbox = SqliteOutbox(tmp_path / "outbox.db", Limits(CAP), on_drop=drops.append)
    while not drops:
        outbox.append([os.urandom(1000) for _ in range(4)])
    with pytest.raises(OutboxUnusable, match="were dropped"):
        outbox.refile([again([(4, b"old"), (8, b"older")])])
    outbox.close()


@pytest.mark.parametrize("trouble", [Disk.fill, Disk.make_read_only])
def test_while_the_disk_fails_nothing_is_stored_again(tmp_path: Path, trouble: object) -> None:
    assert callable(trouble)
    disk = Disk()
    outbox = disk.outbox(tmp_path / "outbox.db", lambda drop: None)
    mixed_blocks(outbox, 2)
    held = outbox.peek(0, UNBOUND, UNBOUND)
    trouble(disk)
    for _ in range(2):
        with pytest.raises((OutboxDiskFull, OutboxUnusable)):
            outbox.refile([again(held)])
        assert outbox.peek(0, 2, UNBOUND) == held
    disk.mend()
    assert outbox.refile([again(held)]) == [range(9, 11)]
    outbox.close()
