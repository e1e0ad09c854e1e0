"""Damage anywhere in the file or its log: nothing false comes out, nothing is missing in silence."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from buffer.drops import CORRUPT, OUTBOX_FULL, Drop
from buffer.space_limits import Limits
from buffer.sqlite_outbox import SqliteOutbox

UNBOUND = 1 << 30
NAME = "outbox.db"


class Site:
    """An outbox with 60 blocks of 12 records, the first eight gone and the ninth in part, to be damaged."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.appended: dict[int, bytes] = {}
        source = directory / "source"
        outbox = SqliteOutbox(source / NAME)
        for at in range(60):
            records = [b"reading %d %d %s" % (at, n, os.urandom(30).hex().encode()) for n in range(12)]
            self.appended.update(zip(outbox.append(records, b"block %d" % at), records, strict=True))
        outbox.remove(range(1, 100))
        self.removed = set(range(1, 100))
        self.crashed = directory / "crashed"
        shutil.copytree(source, self.crashed)
        (self.crashed / f"{NAME}-shm").unlink()
        outbox.close()
        self.closed = source

    def check(self, damaged: Path) -> list[Drop]:
        """Open, drain and append; everything must be returned or announced. The drops."""
        drops: list[Drop] = []
        outbox = SqliteOutbox(damaged / NAME, on_drop=drops.append)
        found: dict[int, bytes] = {}
        for _ in range(200):
            rows = outbox.peek(0, 100, UNBOUND)
            found.update(rows)
            outbox.remove(number for number, _ in rows)
            if not rows and not len(outbox):
                break
        assert len(outbox) == 0
        for number, record in found.items():
            assert record == self.appended[number]
        announced = {n for drop in drops for n in range(drop.first, min(drop.last, 1000) + 1)}
        assert set(self.appended) - self.removed - set(found) <= announced
        assert {drop.reason for drop in drops} <= {CORRUPT}
        (number,) = outbox.append([b"next"])
        assert number > max(self.appended)
        assert outbox.peek(0, 10, UNBOUND) == [(number, b"next")]
        outbox.close()
        return drops


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("site"))


def _flip(content: bytearray, chance: random.Random, times: int) -> bytearray:
    for _ in range(times):
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    return content


def _truncate(content: bytearray, chance: random.Random) -> bytearray:
    return content[: chance.randrange(len(content))]


def _zeros(content: bytearray, chance: random.Random) -> bytearray:
    at = chance.randrange(len(content))
    content[at : at + 4096] = bytes(len(content[at : at + 4096]))
    return content


DAMAGES: dict[str, Callable[[bytearray, random.Random], bytearray]] = {
    "one flip": lambda content, chance: _flip(content, chance, 1),
    "thirty flips": lambda content, chance: _flip(content, chance, 30),
    "truncated": _truncate,
    "empty": lambda content, chance: bytearray(),
    "a block of zeros": _zeros,
    "all zeros": lambda content, chance: bytearray(len(content)),
    "garbage": lambda content, chance: bytearray(chance.randbytes(len(content))),
    "text": lambda content, chance: bytearray(b"this is no database, but it is long enough to be one" * 200),
}


@pytest.mark.parametrize("state", ["closed", "crashed"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_nothing_false_comes_out_and_nothing_is_missing_in_silence(
    site: Site, tmp_path: Path, damage: str, state: str
) -> None:
    chance = random.Random(f"{damage} {state}")
    files = [NAME] if state == "closed" else [f"{NAME}-wal", f"{NAME}-wal", NAME]
    for trial in range(40 if "flip" in damage else 6):
        work = tmp_path / str(trial)
        shutil.copytree(site.closed if state == "closed" else site.crashed, work)
        target = work / files[trial % len(files)]
        target.write_bytes(DAMAGES[damage](bytearray(target.read_bytes()), chance))
        site.check(work)
        shutil.rmtree(work)


def test_undamaged_copies_announce_nothing(site: Site, tmp_path: Path) -> None:
    for source in (site.closed, site.crashed):
        assert site.check(Path(shutil.copytree(source, tmp_path / source.name))) == []


def _damage_payload(path: Path, first: int) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    (payload,) = connection.execute("SELECT payload FROM blocks WHERE first = ?", (first,)).fetchone()
    connection.execute(
        "UPDATE blocks SET payload = ? WHERE first = ?",
        (payload[:-5] + bytes([payload[-5] ^ 1]) + payload[-4:], first),
    )
    connection.close()


def test_damaged_payload_costs_its_block_and_keeps_its_summary(site: Site, tmp_path: Path) -> None:
    work = Path(shutil.copytree(site.closed, tmp_path / "work"))
    _damage_payload(work / NAME, 241)
    assert site.check(work) == [Drop(CORRUPT, 241, 252, 12, b"block 20")]
    (aside,) = [file for file in work.iterdir() if "-block-241" in file.name]
    assert aside.stat().st_size > 100


def test_damaged_head_costs_its_block_and_the_file_is_set_aside(site: Site, tmp_path: Path) -> None:
    work = Path(shutil.copytree(site.closed, tmp_path / "work"))
    connection = sqlite3.connect(work / NAME, isolation_level=None)
    connection.execute("UPDATE blocks SET count = 13 WHERE first = 241")
    connection.close()
    assert site.check(work) == [Drop(CORRUPT, 241, 252, 12, b"")]
    assert [file.name for file in work.iterdir() if ".damaged-" in file.name] != []


def test_damaged_first_page_costs_nothing(site: Site, tmp_path: Path) -> None:
    work = Path(shutil.copytree(site.closed, tmp_path / "work"))
    with (work / NAME).open("r+b") as file:
        file.write(os.urandom(512))
    # Records 97 to 99 had been removed from the block 97 to 108, in memory: they come again.
    assert site.check(work) == []


def test_damaged_frame_in_the_log_does_not_cost_what_follows(site: Site, tmp_path: Path) -> None:
    work = Path(shutil.copytree(site.crashed, tmp_path / "work"))
    log = work / f"{NAME}-wal"
    content = bytearray(log.read_bytes())
    frames = (len(content) - 32) // 536
    content[32 + 536 * (frames // 2) + 300] ^= 1
    log.write_bytes(content)
    lost = sum(drop.count or 0 for drop in site.check(work))
    assert lost <= 24
    assert [file.name for file in work.iterdir() if file.name.endswith("-wal") and "damaged" in file.name]


def test_vanished_file_is_announced(site: Site, tmp_path: Path) -> None:
    work = Path(shutil.copytree(site.closed, tmp_path / "work"))
    (work / NAME).unlink()
    assert site.check(work) == [Drop(CORRUPT, 97, 720, 624, b"")]


def test_salvage_interrupted_by_a_crash_begins_again(site: Site, tmp_path: Path) -> None:
    work = Path(shutil.copytree(site.closed, tmp_path / "work"))
    connection = sqlite3.connect(work / NAME, isolation_level=None)
    connection.execute("UPDATE numbering SET issued = 3")
    connection.close()
    outbox = SqliteOutbox(work / NAME)
    assert outbox.append([b"not kept waiting"]) == [721]
    site.appended[721] = b"not kept waiting"
    copy = Path(shutil.copytree(work, tmp_path / "copy"))
    (copy / f"{NAME}-shm").unlink()
    outbox.close()
    assert site.check(copy) == []
    del site.appended[721]


def test_without_lock_file_numbers_leap_and_the_loss_has_no_count(site: Site, tmp_path: Path) -> None:
    work = Path(shutil.copytree(site.closed, tmp_path / "work"))
    (work / f"{NAME}.lock").unlink()
    (work / NAME).write_bytes(b"\xff" * 20_000)
    assert site.check(work) == [Drop(CORRUPT, 1, 1 << 40, None, b"")]


def test_salvage_into_a_smaller_cap_drops_the_oldest_and_announces_them(tmp_path: Path) -> None:
    drops: list[Drop] = []
    path = tmp_path / NAME
    outbox = SqliteOutbox(path)
    stored: dict[int, bytes] = {}
    for at in range(500):
        records = [os.urandom(400) for _ in range(12)]
        stored.update(zip(outbox.append(records, b"%d" % at), records, strict=True))
    outbox.close()
    with path.open("r+b") as file:
        file.write(os.urandom(512))
    outbox = SqliteOutbox(path, Limits(2 << 20), on_drop=drops.append)
    for _ in range(2000):
        if not outbox._salvages:
            break
        outbox.peek(0, 1, 1)
    kept = dict(outbox.peek(0, UNBOUND, UNBOUND))
    assert len(kept) == len(outbox) > 2000
    assert outbox.size_bytes() < 2 << 20
    assert kept == {number: stored[number] for number in range(min(kept), 6001)}
    assert [(drop.reason, drop.first, drop.count) for drop in drops] == [
        (OUTBOX_FULL, first, 12) for first in range(1, min(kept), 12)
    ]
    outbox.close()


def test_what_was_salvaged_at_run_time_outlives_the_next_start(tmp_path: Path) -> None:
    """The fresh file needs a copy of the dictionary that the salvaged blocks are compressed with."""
    drops: list[Drop] = []
    outbox = SqliteOutbox(tmp_path / NAME, on_drop=drops.append)
    appended: dict[int, bytes] = {}
    for at in range(20):
        records = [b"reading %d %d %s" % (at, n, os.urandom(90).hex().encode()) for n in range(12)]
        appended.update(zip(outbox.append(records), records, strict=True))
    outbox._file.connection.execute("UPDATE blocks SET head_checksum = x'00' WHERE first = 13")
    while True:
        found = dict(outbox.peek(0, UNBOUND, UNBOUND))
        if len(found) == len(appended) - 12:
            break
    outbox.close()
    assert [(drop.reason, drop.first, drop.last) for drop in drops] == [(CORRUPT, 13, 24)]
    outbox = SqliteOutbox(tmp_path / NAME, on_drop=drops.append)
    assert dict(outbox.peek(0, UNBOUND, UNBOUND)) == found
    assert len(drops) == 1
    outbox.close()


def test_what_was_removed_from_a_lost_block_does_not_hide_others(tmp_path: Path) -> None:
    outbox = SqliteOutbox(tmp_path / NAME)
    outbox.append([b"a" * 50] * 3)
    outbox.append([b"b" * 50] * 3)
    outbox.append([b"c" * 50] * 3)
    outbox.remove([1, 2, 7])
    outbox._file.connection.execute("UPDATE blocks SET head_checksum = x'00' WHERE first = 1")
    for _ in range(100):
        found = [number for number, _ in outbox.peek(0, UNBOUND, UNBOUND)]
        if not outbox._salvages:
            break
    assert found == [4, 5, 6, 8, 9]
    assert len(outbox) == 5
    outbox.close()
