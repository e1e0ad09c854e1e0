"""Damage anywhere in the file or its log: nothing false comes out, nothing is missing in silence."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from collections.abc import Callable, Generator
from itertools import islice
from pathlib import Path

import pytest

from buffer import sqlite_outbox, tables
from buffer.blocks import Block
from buffer.errors import CORRUPT, Drop
from buffer.outbox_file import Limits
from buffer.sqlite_outbox import SqliteOutbox

UNBOUND = 1 << 30
NAME = "outbox.db"


class Site:
    """60 blocks of 12 records of both classes, the first eight gone and the ninth in part, to be damaged."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.appended: dict[int, bytes] = {}
        source = directory / "source"
        outbox = SqliteOutbox(source / NAME)
        for at in range(60):
            records = [b"reading %d %d %s" % (at, n, os.urandom(30).hex().encode()) for n in range(12)]
            numbers = outbox.append(records, b"block %d" % at, others=at % 3 == 2)
            self.appended.update(zip(numbers, records, strict=True))
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
        numbers = {record: number for number, record in self.appended.items()}
        found: set[int] = set()
        repeated = 0
        for _ in range(200):
            rows = outbox.peek(0, 100, UNBOUND)
            # It comes once, but for what was being removed.
            taken = {numbers[record] for _, record in rows}
            assert len(taken) == len(rows)
            repeated += len(taken & found)
            found |= taken
            outbox.remove(number for number, _ in rows)
            if not rows and not len(outbox):
                break
        assert len(outbox) == 0
        assert repeated <= 112
        announced = {n for drop in drops for n in range(drop.first, min(drop.last, 1000) + 1)}
        assert set(self.appended) - self.removed - found <= announced
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
    assert [file.name for file in work.iterdir() if ".damaged-" in file.name] == []


def test_of_a_damaged_payload_what_had_been_removed_does_not_count(tmp_path: Path) -> None:
    drops: list[Drop] = []
    outbox = SqliteOutbox(tmp_path / NAME, on_drop=drops.append)
    outbox.append([b"a" * 50] * 3, b"summary")
    outbox.remove([2])
    _damage_payload(tmp_path / NAME, 1)
    assert outbox.peek(0, 10, UNBOUND) == []
    # Which ones are left can't be read.
    assert drops == [Drop(CORRUPT, 1, 3, 2, b"summary")]
    outbox.close()


def test_damaged_head_costs_its_block_and_the_file_is_set_aside(site: Site, tmp_path: Path) -> None:
    work = Path(shutil.copytree(site.closed, tmp_path / "work"))
    connection = sqlite3.connect(work / NAME, isolation_level=None)
    connection.execute("UPDATE blocks SET count = 13 WHERE first = 241")
    connection.close()
    assert site.check(work) == [Drop(CORRUPT, 241, 252, 12, b"")]
    assert [file.name for file in work.iterdir() if ".damaged-" in file.name] != []


def test_damaged_first_page_costs_what_is_in_the_file_and_is_announced(site: Site, tmp_path: Path) -> None:
    work = Path(shutil.copytree(site.closed, tmp_path / "work"))
    with (work / NAME).open("r+b") as file:
        file.write(os.urandom(512))
    assert site.check(work) == [Drop(CORRUPT, 97, 720, 624, b"")]
    (aside,) = [file for file in work.iterdir() if ".damaged-" in file.name]
    assert aside.stat().st_size > 512


def test_of_a_damaged_log_what_sqlite_reads_is_kept_and_the_rest_is_announced(
    site: Site, tmp_path: Path
) -> None:
    work = Path(shutil.copytree(site.crashed, tmp_path / "work"))
    log = work / f"{NAME}-wal"
    content = bytearray(log.read_bytes())
    frames = (len(content) - 32) // 536
    content[32 + 536 * (frames // 2) + 300] ^= 1
    log.write_bytes(content)
    kept = _readable(Path(shutil.copytree(work, tmp_path / "readable")) / NAME)
    assert 0 < kept < 60
    assert site.check(work) == [Drop(CORRUPT, 12 * kept + 1, 720, 720 - 12 * kept, b"")]


def _readable(path: Path) -> int:
    """How many blocks SQLite finds, with the log that there is."""
    connection = sqlite3.connect(path)
    (count,) = connection.execute("SELECT count(*) FROM blocks").fetchone()
    connection.close()
    return int(count)


def test_a_message_that_quotes_a_damaged_name_is_damage(site: Site, tmp_path: Path) -> None:
    work = Path(shutil.copytree(site.closed, tmp_path / "work"))
    content = (work / NAME).read_bytes()
    broken = content.replace(b"indexothersblocks", b"indexoth\xf2rsblocks")
    broken = broken.replace(b"CREATE INDEX others", b"CREATE XNDEX others")
    assert broken != content
    (work / NAME).write_bytes(broken)
    with pytest.raises(UnicodeDecodeError):
        _readable(work / NAME)
    assert site.check(work) == [Drop(CORRUPT, 97, 720, 624, b"")]


def test_vanished_file_is_announced(site: Site, tmp_path: Path) -> None:
    work = Path(shutil.copytree(site.closed, tmp_path / "work"))
    (work / NAME).unlink()
    assert site.check(work) == [Drop(CORRUPT, 97, 720, 624, b"")]


def test_a_crash_within_the_pass_repeats_it(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = Path(shutil.copytree(site.closed, tmp_path / "work"))
    connection = sqlite3.connect(work / NAME, isolation_level=None)
    connection.execute("UPDATE numbering SET issued = 3")
    connection.close()
    copy = tmp_path / "copy"

    def crash(*_: object) -> Generator[Drop, None, None]:
        shutil.copytree(work, copy)
        yield from ()

    with monkeypatch.context() as patched:
        patched.setattr(sqlite_outbox, "losses", crash)
        SqliteOutbox(work / NAME).close()
    (copy / f"{NAME}-shm").unlink()
    assert site.check(copy) == []


def test_crash_between_setting_aside_and_the_new_file_announces_nothing(site: Site, tmp_path: Path) -> None:
    work = Path(shutil.copytree(site.closed, tmp_path / "work"))
    sqlite_outbox.set_aside(work / NAME, 97, 720, last_is_known=True)
    assert site.check(work) == []


def test_what_the_card_cannot_read_of_a_damaged_file_is_announced(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = Path(shutil.copytree(site.closed, tmp_path / "work"))
    sqlite_outbox.set_aside(work / NAME, 97, 720, last_is_known=True)
    oldest, newest = tables.blocks_after, tables.blocks_down_to

    def failing(connection: sqlite3.Connection, number: int) -> Generator[Block, None, None]:
        yield from islice(oldest(connection, number), 20)
        raise _io_error()

    monkeypatch.setattr(tables, "blocks_after", failing)
    monkeypatch.setattr(tables, "blocks_down_to", lambda *place: islice(newest(*place), 10))
    drops: list[Drop] = []
    outbox = SqliteOutbox(work / NAME, on_drop=drops.append)
    assert (len(outbox), drops) == (30 * 12, [Drop(CORRUPT, 337, 600, 264, b"")])
    outbox.close()


def _io_error() -> sqlite3.Error:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR
    return error


def test_without_lock_file_numbers_skip_and_the_loss_has_no_count(site: Site, tmp_path: Path) -> None:
    work = Path(shutil.copytree(site.closed, tmp_path / "work"))
    (work / f"{NAME}.lock").unlink()
    (work / NAME).write_bytes(b"\xff" * 20_000)
    assert site.check(work) == [Drop(CORRUPT, 1, 1 << 20, None, b"")]


def test_a_damaged_file_larger_than_the_cap_is_kept_until_room_is_wanted(tmp_path: Path) -> None:
    drops: list[Drop] = []
    path = tmp_path / NAME
    outbox = SqliteOutbox(path)
    for at in range(500):
        outbox.append([os.urandom(400) for _ in range(12)], b"%d" % at)
    outbox.close()
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("UPDATE numbering SET issued = 3")
    connection.close()
    outbox = SqliteOutbox(path, Limits(2 << 20), on_drop=drops.append)
    assert (len(outbox), drops) == (6000, [])
    assert [*tmp_path.glob("*.damaged-*")] != []
    outbox.append([b"fresh"])
    assert [*tmp_path.glob("*.damaged-*")] == []
    assert outbox.peek(6000, 10, UNBOUND) == [(6001, b"fresh")]
    outbox.close()


def test_what_was_kept_at_run_time_outlives_the_next_start(tmp_path: Path) -> None:
    """The new file needs a copy of the dictionary that the blocks are compressed with."""
    drops: list[Drop] = []
    outbox = SqliteOutbox(tmp_path / NAME, on_drop=drops.append)
    appended: dict[int, bytes] = {}
    for at in range(20):
        records = [b"reading %d %d %s" % (at, n, os.urandom(90).hex().encode()) for n in range(12)]
        appended.update(zip(outbox.append(records), records, strict=True))
    outbox._file.connection.execute("UPDATE blocks SET head_checksum = x'00' WHERE first = 13")
    found = dict(outbox.peek(0, UNBOUND, UNBOUND))
    assert len(found) == len(appended) - 12
    outbox.close()
    assert [(drop.reason, drop.first, drop.last) for drop in drops] == [(CORRUPT, 13, 24)]
    outbox = SqliteOutbox(tmp_path / NAME, on_drop=drops.append)
    assert dict(outbox.peek(0, UNBOUND, UNBOUND)) == found
    assert len(drops) == 1
    outbox.close()


def test_what_was_removed_from_a_part_of_a_block_comes_again_after_damage(tmp_path: Path) -> None:
    outbox = SqliteOutbox(tmp_path / NAME)
    outbox.append([b"a" * 50] * 3)
    outbox.append([b"b" * 50] * 3)
    outbox.append([b"c" * 50] * 3)
    outbox.remove([1, 2, 7])
    outbox._file.connection.execute("UPDATE blocks SET head_checksum = x'00' WHERE first = 1")
    assert [number for number, _ in outbox.peek(0, UNBOUND, UNBOUND)] == [4, 5, 6, 7, 8, 9]
    assert len(outbox) == 6
    outbox.close()
