"""A disk that is really full: a small tmpfs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from buffer.errors import DISK_LOW, Drop, OutboxDiskFull, OutboxUnusable
from buffer.outbox_file import Limits
from buffer.sqlite_outbox import SqliteOutbox

UNBOUND = 1 << 30


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(tmp_path)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"mounting a file system is not permitted here: {mounted.stderr.strip()}")
    yield tmp_path
    # Lazily: a failed test leaves its files open.
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


def _fill(directory: Path) -> Path:
    """Take every byte that is left."""
    filler = directory / "filler"
    with filler.open("ab", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue
    assert os.statvfs(directory).f_bavail == 0
    return filler


def _block() -> list[bytes]:
    return [os.urandom(400) for _ in range(12)]


def _open(directory: Path, drops: list[Drop]) -> SqliteOutbox:
    return SqliteOutbox(directory / "outbox.db", Limits().with_ballast(), on_drop=drops.append)


@pytest.mark.parametrize("before", [180, 400], ids="{} blocks before".format)
def test_full_disk_keeps_blocks_readable_and_removable_and_takes_new_ones_for_the_oldest(
    small_disk: Path, before: int
) -> None:
    drops: list[Drop] = []
    outbox = _open(small_disk, drops)
    stored: dict[int, bytes] = {}
    for at in range(before):
        block = _block()
        stored.update(zip(outbox.append(block, b"%d" % at), block, strict=True))
    _fill(small_disk)
    for at in range(before, before + 300):
        block = _block()
        stored.update(zip(outbox.append(block, b"%d" % at), block, strict=True))
    assert drops
    assert {drop.reason for drop in drops} == {DISK_LOW}
    gone = {number for drop in drops for number in range(drop.first, drop.last + 1)}
    assert gone == set(range(1, len(gone) + 1))
    kept = {number: record for number, record in stored.items() if number not in gone}
    assert dict(outbox.peek(0, UNBOUND, UNBOUND)) == kept
    for first in range(1, max(stored), 500):
        outbox.remove(range(first, first + 500))
    assert len(outbox) == 0
    assert outbox.append([b"after"]) == [max(stored) + 1]
    outbox.close()


def test_full_disk_takes_the_room_of_damaged_files_first(small_disk: Path) -> None:
    drops: list[Drop] = []
    outbox = _open(small_disk, drops)
    for _ in range(100):
        outbox.append(_block())
    outbox.close()
    damaged = small_disk / "outbox.db.damaged-20261122T000000.000000Z-1-9-known"
    damaged.write_bytes(bytes(1 << 20))
    outbox = _open(small_disk, drops)
    _fill(small_disk)
    while damaged.exists():
        outbox.append(_block(), drop_oldest=False)
    outbox.append(_block(), drop_oldest=False)
    assert drops == []
    outbox.close()


def test_full_disk_with_nothing_to_drop_is_reported_and_passes(small_disk: Path) -> None:
    drops: list[Drop] = []
    outbox = _open(small_disk, drops)
    filler = _fill(small_disk)
    appended = 0
    refused = False
    while not refused:
        try:
            outbox.append([os.urandom(400_000)])
            appended += 1
        except OutboxDiskFull:
            refused = True
        assert appended < 20
    left = len(outbox)
    assert left + len(drops) == appended
    filler.unlink()
    assert outbox.append([b"again"]) == [appended + 1]
    outbox.close()


def test_full_disk_can_be_opened_and_drained(small_disk: Path) -> None:
    drops: list[Drop] = []
    outbox = _open(small_disk, drops)
    outbox.append([b"a", b"b"])
    outbox.close()
    filler = _fill(small_disk)
    outbox = _open(small_disk, drops)
    assert outbox.peek(0, 10, UNBOUND) == [(1, b"a"), (2, b"b")]
    outbox.remove([1, 2])
    assert len(outbox) == 0
    outbox.close()
    outbox = _open(small_disk, drops)
    assert len(outbox) == 0
    filler.unlink()
    # With room again the next transaction makes the ballast again.
    outbox.append([b"c"])
    outbox.close()
    outbox = _open(small_disk, drops)
    assert (small_disk / "outbox.db.ballast").stat().st_size == Limits().log_bytes
    assert outbox.peek(0, 10, UNBOUND) == [(3, b"c")]
    assert drops == []
    outbox.close()


def test_opening_a_new_outbox_on_a_full_disk_is_reported(small_disk: Path) -> None:
    _fill(small_disk)
    with pytest.raises(OutboxDiskFull):
        _open(small_disk, [])


def test_read_only_disk_is_no_damage_and_passes(small_disk: Path) -> None:
    drops: list[Drop] = []
    outbox = _open(small_disk, drops)
    outbox.append([b"a", b"b"])
    outbox.close()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(OutboxUnusable):
        _open(small_disk, drops)
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    outbox = _open(small_disk, drops)
    assert outbox.peek(0, 10, UNBOUND) == [(1, b"a"), (2, b"b")]
    assert drops == []
    assert [file.name for file in small_disk.iterdir() if "damaged" in file.name] == []
    outbox.close()
