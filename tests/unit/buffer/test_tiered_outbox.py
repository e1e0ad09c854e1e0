"""What an outbox keeps in memory while its disk can't be used: how much, for how long, in which order."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import subprocess
import tracemalloc
from pathlib import Path

import pytest

from buffer import recovery
from buffer.drops import CORRUPT, DISK_LOW, MEMORY_FULL, NOT_STORED, OUTBOX_FULL, Drop
from buffer.errors import OutboxForeign, OutboxLocked, OutboxUnusable, OutboxVersionError
from buffer.outbox_file import OutboxFile
from buffer.space_limits import BALLAST_BYTES, Limits
from buffer.sqlite_outbox import SqliteOutbox
from buffer.tiered_outbox import MEMORY_BYTES, TieredOutbox
from tests.unit.buffer.test_full_disk import _fill, small_disk
from tests.unit.buffer.trouble import Disk

__all__ = ["small_disk"]

UNBOUND = 1 << 30


def _block() -> list[bytes]:
    return [os.urandom(400) for _ in range(12)]


def _reading(second: int, channel: int) -> bytes:
    """About what a mast stores each second for each of twelve channels."""
    return json.dumps(
        {
            "v": 1,
            "gateway": "mast-07",
            "channel": f"cup-{channel}m-a.wind_speed",
            "quantity": "wind_speed",
            "unit": "m/s",
            "time": f"2026-11-21T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}.000Z",
            "period_ms": 1000,
            "value": (second * 7919 + channel * 104729) % 25000 / 1000,
            "raw": float((second * 7919 + channel) % 40),
            "raw_unit": "Hz",
            "quality": 1,
            "reasons": [],
            "run": "9f3c21ab04de",
            "seq": second + 1,
            "clock": "synced",
            "cal": "5d1c0a7e",
        }
    ).encode()


def test_memory_is_bounded_in_bytes_and_holds_half_a_day_of_a_mast(tmp_path: Path) -> None:
    disk, drops = Disk(), list[Drop]()
    disk.make_read_only()
    bound = 2 << 20
    outbox = disk.outbox(tmp_path / "outbox.db", drops.append, memory_bytes=bound)
    outbox.append([_reading(0, channel) for channel in range(12)], bytes(144))
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    second = 0
    while not drops:
        second += 1
        outbox.append([_reading(second, channel) for channel in range(12)], os.urandom(144))
    held = outbox.in_memory()
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    # What Python has really given, and what is counted: the bound holds for the first.
    assert 0.7 * held.size_bytes < taken < held.size_bytes <= bound
    # A sixteenth of what a gateway has, and it keeps a sixteenth of ten hours.
    assert second / 3600 * MEMORY_BYTES / bound > 10
    assert [(drop.reason, drop.first, drop.count) for drop in drops] == [(MEMORY_FULL, 1, 12)]
    outbox.close()


def test_removing_makes_memory_smaller_never_larger(tmp_path: Path) -> None:
    disk = Disk()
    disk.fill()
    outbox = disk.outbox(tmp_path / "outbox.db", list[Drop]().append)
    numbers = [number for _ in range(50) for number in outbox.append(_block())]
    full = outbox.in_memory().size_bytes
    tracemalloc.start()
    outbox.remove(number for number in numbers if number % 12 != 1)
    assert tracemalloc.get_traced_memory()[0] < 50 * 12 * 4
    tracemalloc.stop()
    assert outbox.in_memory().size_bytes == full
    outbox.remove(numbers)
    assert outbox.in_memory().size_bytes == 0
    outbox.close()


def test_while_memory_has_room_a_full_disk_drops_nothing(tmp_path: Path) -> None:
    free, drops = [UNBOUND], list[Drop]()
    outbox = TieredOutbox(
        tmp_path / "outbox.db",
        Limits(min_free_disk=1 << 20, free_bytes=lambda _: free[0]),
        on_drop=drops.append,
    )
    kept: dict[int, bytes] = {}
    for at in range(60):
        if at == 30:
            free[0] = 1 << 20
        block = _block()
        kept.update(zip(outbox.append(block), block, strict=True))
    held = outbox.in_memory()
    # A page or two of the file were still free.
    assert 25 * 12 <= held.records <= 30 * 12
    assert held.problem is not None
    assert "less room than it must keep" in held.problem
    assert dict(outbox.peek(0, UNBOUND, UNBOUND)) == kept
    free[0] = UNBOUND
    outbox.tend(at_once=True)
    assert outbox.in_memory().records == 0
    outbox.close()
    assert drops == []
    reopened = SqliteOutbox(tmp_path / "outbox.db")
    assert dict(reopened.peek(0, UNBOUND, UNBOUND)) == kept
    reopened.close()


def test_when_memory_is_full_too_the_oldest_of_all_go(small_disk: Path) -> None:
    """A really full disk: it takes what memory has no room for, in the place of its oldest blocks."""
    drops: list[Drop] = []
    outbox = TieredOutbox(
        small_disk / "outbox.db",
        Limits(ballast_bytes=BALLAST_BYTES),
        on_drop=drops.append,
        memory_bytes=200_000,
    )
    kept: dict[int, bytes] = {}
    for at in range(300):
        if at == 100:
            filler = _fill(small_disk)
        block = _block()
        kept.update(zip(outbox.append(block), block, strict=True))
        assert outbox.in_memory().size_bytes <= 200_000
        if 100 < at < 120:
            assert drops == []
    assert outbox.in_memory().records > 12 * 30
    assert {drop.reason for drop in drops} == {DISK_LOW}
    gone = {number for drop in drops for number in range(drop.first, drop.last + 1)}
    assert gone == set(range(1, len(gone) + 1))
    left = {number: record for number, record in kept.items() if number not in gone}
    assert dict(outbox.peek(0, UNBOUND, UNBOUND)) == left
    filler.unlink()
    outbox.tend(at_once=True)
    assert outbox.in_memory() == type(outbox.in_memory())(0, 0, None, None)
    assert dict(outbox.peek(0, UNBOUND, UNBOUND)) == left
    outbox.close()


def test_at_the_operators_cap_the_oldest_go_and_memory_is_not_used(tmp_path: Path) -> None:
    drops: list[Drop] = []
    outbox = TieredOutbox(
        tmp_path / "outbox.db", Limits(2 << 20, ballast_bytes=1 << 18), on_drop=drops.append
    )
    for _ in range(600):
        outbox.append(_block())
        assert outbox.in_memory().records == 0
    assert {drop.reason for drop in drops} == {OUTBOX_FULL}
    outbox.close()


def test_a_disk_that_fails_is_tried_seldom(tmp_path: Path) -> None:
    disk = Disk()
    outbox = disk.outbox(tmp_path / "outbox.db", list[Drop]().append)
    disk.make_read_only()
    for second in range(100):
        disk.now_s = second
        outbox.append([b"one a second"])
    # After 0, 1, 3, 7, 15, 31, 47, … s.
    assert disk.tried == 10
    assert outbox.in_memory().records == 100
    disk.mend()
    outbox.append([b"next"])
    assert outbox.in_memory().records == 0
    assert len(outbox) == 101
    # Soon after, it fails again: it is not tried each second.
    disk.make_read_only()
    disk.tried = 0
    for _ in range(10):
        disk.now_s += 1
        outbox.append([b"again"])
    assert disk.tried == 1
    outbox.close()


def test_what_the_disk_cannot_read_does_not_keep_memory_from_kafka(tmp_path: Path) -> None:
    disk = Disk()
    outbox = disk.outbox(tmp_path / "outbox.db", list[Drop]().append)
    outbox.append([b"disk"])
    disk.make_read_only()
    outbox.append([b"memory"])
    disk.reading = False
    assert outbox.peek(0, 10, UNBOUND) == [(2, b"memory")]
    outbox.remove([2])
    with pytest.raises(OutboxUnusable):
        outbox.peek(0, 10, UNBOUND)
    disk.reading = True
    assert outbox.peek(0, 10, UNBOUND) == [(1, b"disk")]
    outbox.close()


def test_start_without_a_disk_goes_on_with_what_the_file_holds_when_it_can(tmp_path: Path) -> None:
    path, drops = tmp_path / "outbox.db", list[Drop]()
    before = SqliteOutbox(path)
    before.append([b"a", b"b"])
    before.close()
    disk = Disk()
    disk.opening = False
    outbox = disk.outbox(path, drops.append)
    assert outbox.in_memory().problem == "no directory"
    assert len(outbox) == 0
    (number,) = outbox.append([b"c"])
    # The lock file has the reservation: no record of the file is above it.
    assert number == (1 << 20) + 1
    disk.mend()
    assert outbox.peek(0, 10, UNBOUND) == [(1, b"a"), (2, b"b"), (number, b"c")]
    assert outbox.in_memory().records == 0
    assert outbox.append([b"d"]) == [number + 1]
    outbox.remove([1, 2])
    assert len(outbox) == 2
    outbox.close()
    assert drops == []
    after = SqliteOutbox(path, on_drop=drops.append)
    assert [record for _, record in after.peek(0, 10, UNBOUND)] == [b"c", b"d"]
    after.close()
    assert drops == []


def test_numbers_of_a_start_without_any_file_are_above_every_other(tmp_path: Path) -> None:
    path = tmp_path / "outbox.db"
    disk, drops = Disk(), list[Drop]()
    for _ in range(2):
        disk.opening = False
        outbox = disk.outbox(path, drops.append)
        (path.parent / "outbox.db.lock").unlink(missing_ok=True)
        (number,) = outbox.append([b"x"])
        assert number > 1 << 50
        disk.mend()
        outbox.tend()
        assert outbox.in_memory().records == 0
        outbox.close()
        (path.parent / "outbox.db.lock").unlink()
    reopened = SqliteOutbox(path, on_drop=drops.append)
    assert [record for _, record in reopened.peek(0, 10, UNBOUND)] == [b"x", b"x"]
    assert drops == []
    reopened.close()


def test_a_file_that_has_given_the_same_numbers_waits_until_memory_is_empty(tmp_path: Path) -> None:
    path, drops = tmp_path / "outbox.db", list[Drop]()
    disk = Disk()
    disk.opening = False
    (tmp_path / "outbox.db.lock").write_text(f"{0:020d} {0:020d} {1:020d} closed\n")
    outbox = disk.outbox(path, drops.append)
    assert outbox.append([b"memory"]) == [1]
    other = SqliteOutbox(path)
    other.append([b"file", b"file"])
    other.close()
    disk.mend()
    assert outbox.peek(0, 10, UNBOUND) == [(1, b"memory")]
    outbox.remove([1])
    disk.mend()
    outbox.tend()
    assert outbox.peek(0, 10, UNBOUND) == [(1, b"file"), (2, b"file")]
    assert outbox.append([b"next"]) == [3]
    outbox.close()
    assert drops == []


def test_what_is_left_in_memory_at_the_end_is_announced(tmp_path: Path) -> None:
    disk, drops = Disk(), list[Drop]()
    outbox = disk.outbox(tmp_path / "outbox.db", drops.append)
    outbox.append([b"stored"])
    disk.make_read_only()
    outbox.append([b"a", b"b", b"c"], b"summary")
    outbox.remove([3])
    outbox.close()
    assert drops == [Drop(NOT_STORED, 2, 4, 2, b"summary", (b"a", b"c"))]


def test_a_bit_that_memory_lost_is_announced(tmp_path: Path) -> None:
    disk, drops = Disk(), list[Drop]()
    disk.fill()
    outbox = disk.outbox(tmp_path / "outbox.db", drops.append)
    outbox.append([b"a"], b"first")
    outbox.append([b"b"], b"second")
    block = outbox._memory.block(1)
    object.__setattr__(block, "payload", bytes(len(block.payload)))
    assert outbox.peek(0, 10, UNBOUND) == [(2, b"b")]
    assert drops == [Drop(CORRUPT, 1, 1, 1, b"first")]
    outbox.close()


def test_damage_after_a_time_in_memory_announces_only_what_was_on_the_disk(tmp_path: Path) -> None:
    path, disk, drops = tmp_path / "outbox.db", Disk(), list[Drop]()
    outbox = disk.outbox(path, drops.append)
    outbox.append([b"one"])
    disk.fill()
    delivered = outbox.append([b"two", b"three"])
    outbox.remove(delivered)
    disk.mend()
    assert outbox.append([b"four"]) == [4]
    outbox._disk._file.close()  # type: ignore[union-attr]
    for file in tmp_path.iterdir():
        if file.name in ("outbox.db", "outbox.db-wal"):
            file.unlink()
    for _ in range(3):
        assert outbox.peek(0, 10, UNBOUND) == []
    assert {number for drop in drops for number in range(drop.first, drop.last + 1)} >= {1, 4}
    outbox.close()


def test_who_uses_the_file_or_owns_it_is_no_trouble_of_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "outbox.db"
    first = TieredOutbox(path)
    with pytest.raises(OutboxLocked):
        TieredOutbox(path)
    first.close()
    raw = sqlite3.connect(path, isolation_level=None)
    raw.execute("PRAGMA user_version = 99")
    raw.execute("UPDATE numbering SET version = 99")
    raw.close()
    with pytest.raises(OutboxVersionError):
        TieredOutbox(path)
    raw = sqlite3.connect(tmp_path / "theirs.db")
    raw.execute("CREATE TABLE theirs (x)")
    raw.close()
    with pytest.raises(OutboxForeign):
        TieredOutbox(tmp_path / "theirs.db")


def test_start_on_a_read_only_file_system(small_disk: Path) -> None:
    path, drops = small_disk / "outbox.db", list[Drop]()
    before = SqliteOutbox(path)
    before.append([b"a"])
    before.close()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    outbox = TieredOutbox(path, on_drop=drops.append, monotonic=lambda: 0.0)
    assert outbox.in_memory().problem is not None
    (number,) = outbox.append([b"b"])
    assert outbox.peek(0, 10, UNBOUND) == [(number, b"b")]
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    outbox.tend(at_once=True)
    assert outbox.peek(0, 10, UNBOUND) == [(1, b"a"), (number, b"b")]
    assert outbox.in_memory().records == 0
    outbox.close()
    assert drops == []


def test_start_on_a_full_disk(small_disk: Path) -> None:
    filler = _fill(small_disk)
    drops: list[Drop] = []
    outbox = TieredOutbox(small_disk / "outbox.db", Limits(ballast_bytes=1 << 20), on_drop=drops.append)
    numbers = outbox.append([b"a"]) + outbox.append([b"b"])
    assert outbox.in_memory().records == 2
    filler.unlink()
    outbox.tend(at_once=True)
    assert outbox.peek(0, 10, UNBOUND) == [(numbers[0], b"a"), (numbers[1], b"b")]
    assert outbox.in_memory().problem is None
    outbox.close()
    assert drops == []


@pytest.mark.parametrize(("where", "name"), [(recovery, "pending"), (OutboxFile, "restore_ballast")])
def test_an_io_error_at_the_start_is_waited_for_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: object, name: str
) -> None:
    def failing(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as broken:
        broken.setattr(where, name, failing)
        outbox = TieredOutbox(tmp_path / "outbox.db")
        assert "Input/output error" in (outbox.in_memory().problem or "")
        outbox.append([b"kept"])
    outbox.tend(at_once=True)
    assert outbox.in_memory().problem is None
    assert [record for _, record in outbox.peek(0, 10, UNBOUND)] == [b"kept"]
    outbox.close()
