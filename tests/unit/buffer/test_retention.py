"""Caps: the oldest goes first, counted and announced; what stays is whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from buffer.errors import DISK_LOW, OUTBOX_FULL, Drop, OutboxDiskFull
from buffer.outbox_file import Limits
from buffer.reader import OutboxReader
from buffer.sqlite_outbox import SqliteOutbox

UNBOUND = 1 << 30
CAP = 2 << 20


def _capped(directory: Path, drops: list[Drop]) -> SqliteOutbox:
    return SqliteOutbox(directory / "outbox.db", Limits(CAP, ballast_bytes=1 << 18), on_drop=drops.append)


def _block() -> list[bytes]:
    return [os.urandom(400) for _ in range(12)]


def test_at_the_cap_the_oldest_blocks_go_and_each_is_announced_once(tmp_path: Path) -> None:
    drops: list[Drop] = []
    outbox = _capped(tmp_path, drops)
    appended: dict[int, bytes] = {}
    for at in range(600):
        block = _block()
        appended.update(zip(outbox.append(block, b"block %d" % at), block, strict=True))
        assert outbox.size_bytes() <= CAP
    kept = outbox.peek(0, UNBOUND, UNBOUND)
    assert kept == sorted(appended.items())[-len(kept) :]
    # Two of the 2.9 MB fit beside log, index and ballast, or nearly.
    assert len(outbox) == len(kept) >= 2000
    dropped = (7200 - len(kept)) // 12
    assert drops == [
        Drop(OUTBOX_FULL, 12 * at + 1, 12 * at + 12, 12, b"block %d" % at) for at in range(dropped)
    ]
    outbox.close()


def test_removed_records_of_a_dropped_block_are_not_counted(tmp_path: Path) -> None:
    drops: list[Drop] = []
    outbox = _capped(tmp_path, drops)
    block = _block()
    outbox.append(block, b"first")
    outbox.remove([1, 2, 3])
    while not drops:
        outbox.append(_block())
    assert drops[0] == Drop(OUTBOX_FULL, 1, 12, 9, b"first", tuple(block[3:]))
    outbox.close()


def test_block_larger_than_the_cap_is_refused_and_drops_nothing(tmp_path: Path) -> None:
    drops: list[Drop] = []
    outbox = _capped(tmp_path, drops)
    outbox.append([b"small"])
    with pytest.raises(OutboxDiskFull):
        outbox.append([os.urandom(CAP)])
    assert outbox.peek(0, 10, UNBOUND) == [(1, b"small")]
    assert drops == []
    assert outbox.append([b"next"]) == [2]
    outbox.close()


def test_low_disk_stops_growth_and_drops_the_oldest(tmp_path: Path) -> None:
    free = [UNBOUND]
    drops: list[Drop] = []
    outbox = SqliteOutbox(
        tmp_path / "outbox.db",
        Limits(min_free_disk=1 << 20, free_bytes=lambda _: free[0]),
        on_drop=drops.append,
    )
    for at in range(100):
        outbox.append(_block(), b"%d" % at)
    size = (tmp_path / "outbox.db").stat().st_size
    free[0] = 1 << 20
    for _ in range(100):
        outbox.append(_block())
    assert {drop.reason for drop in drops} == {DISK_LOW}
    assert [drop.first for drop in drops] == list(range(1, 12 * len(drops), 12))
    assert 100 <= len(drops) <= 103
    assert len(outbox) == 12 * (200 - len(drops))
    assert outbox.peek(0, 1, UNBOUND)[0][0] == 12 * len(drops) + 1
    outbox.close()
    # The log moves into the file at the latest now: what it held was pages the file had.
    assert (tmp_path / "outbox.db").stat().st_size <= max(size, 600_000)
    # Free again: nothing more is dropped.
    free[0] = UNBOUND
    outbox = SqliteOutbox(tmp_path / "outbox.db", Limits(min_free_disk=1 << 20, free_bytes=lambda _: free[0]))
    assert len(outbox) == 12 * (200 - len(drops))
    outbox.append(_block())
    assert len(outbox) == 12 * (201 - len(drops))
    outbox.close()
    with OutboxReader(tmp_path / "outbox.db") as reader:
        assert reader.dropped() == 12 * len(drops)


def _damaged(directory: Path, when: int, size: int) -> Path:
    file = directory / f"outbox.db.damaged-20261122T00000{when}.000000Z-1-9-known"
    file.write_bytes(bytes(size))
    return file


def test_damaged_files_count_into_the_cap_and_go_before_readings_the_oldest_first(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    drops: list[Drop] = []
    oldest, newer = _damaged(tmp_path, 1, 600_000), _damaged(tmp_path, 2, 400_000)
    log = Path(f"{oldest}-wal")
    log.write_bytes(bytes(1000))
    outbox = SqliteOutbox(tmp_path / "outbox.db", Limits(CAP, ballast_bytes=1 << 18), on_drop=drops.append)
    order: list[Path] = []
    while not drops:
        outbox.append(_block())
        order += [file for file in (oldest, log, newer) if file not in order and not file.exists()]
        assert outbox.size_bytes() + sum(file.stat().st_size for file in tmp_path.glob("*ed-*")) <= CAP
        assert len(order) == 3 or not drops
    outbox.close()
    assert order == [oldest, log, newer]
    assert [record.getMessage() for record in caplog.records] == [
        f"event=outbox.damaged_deleted file={oldest.name} bytes=601000",
        f"event=outbox.damaged_deleted file={newer.name} bytes=400000",
    ]


def test_damaged_files_go_before_the_disk_counts_as_low(tmp_path: Path) -> None:
    damaged = _damaged(tmp_path, 1, 100)
    outbox = SqliteOutbox(
        tmp_path / "outbox.db",
        Limits(min_free_disk=1 << 20, free_bytes=lambda _: 1 << 20 if damaged.exists() else UNBOUND),
    )
    while damaged.exists():
        outbox.append(_block(), drop_oldest=False)
    outbox.append(_block(), drop_oldest=False)
    outbox.close()
