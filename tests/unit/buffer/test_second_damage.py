"""Damage to the file that salvaged blocks are stored in: nothing is missing in silence or reported twice."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from buffer.drops import CORRUPT, Drop
from buffer.sqlite_outbox import SqliteOutbox

UNBOUND = 1 << 30
NAME = "outbox.db"


def _filled(path: Path, drops: list[Drop]) -> SqliteOutbox:
    """20 blocks of 12 records, 1 to 240."""
    outbox = SqliteOutbox(path, on_drop=drops.append)
    for at in range(20):
        outbox.append([b"reading %d %d" % (at, n) for n in range(12)])
    return outbox


def _damage_head(outbox: SqliteOutbox, first: int) -> None:
    outbox._file.connection.execute("UPDATE blocks SET head_checksum = x'00' WHERE first = ?", (first,))


def _rows(outbox: SqliteOutbox) -> dict[int, int]:
    """What is there when all is salvaged: its numbers now, by those it had first. What came later had 241."""
    for _ in range(100):
        rows = outbox.peek(0, UNBOUND, UNBOUND)
        if not outbox._salvages:
            words = [(number, record.split()) for number, record in rows]
            return {12 * int(each[1]) + int(each[2]) + 1 if each[1:] else 241: now for now, each in words}
    raise AssertionError(f"still salvaging: {outbox._salvages}")


def _numbers(outbox: SqliteOutbox) -> set[int]:
    return set(_rows(outbox))


def _losses(drops: list[Drop]) -> list[tuple[int, int, int | None]]:
    assert {drop.reason for drop in drops} <= {CORRUPT}
    return [(drop.first, drop.last, drop.count) for drop in drops]


def test_damage_found_while_storing_what_is_salvaged_stops_nothing(tmp_path: Path) -> None:
    drops: list[Drop] = []
    outbox = _filled(tmp_path / NAME, drops)
    outbox.remove(range(1, 25))
    _damage_head(outbox, 61)
    outbox.peek(0, UNBOUND, UNBOUND)
    assert outbox.append([b"fresh"]) == [241]
    (salvage,) = outbox._salvages
    for _ in range(5):
        assert salvage.step(outbox._store_salvaged)
    outbox._file.connection.execute("DELETE FROM blocks")
    found = _numbers(outbox)
    # The first file has all that was copied from it, and was lost with the second under other numbers.
    assert found == {*range(25, 61), *range(73, 241)}
    # The block at hand comes twice.
    assert len(outbox) == len(found) + 12
    assert _losses(drops) == [(61, 72, 12), (241, 301, 61)]
    assert len(list(tmp_path.glob("*.damaged-*[!l]"))) == 2
    outbox.close()


def test_damage_found_at_the_next_start_while_a_salvage_waits(tmp_path: Path) -> None:
    drops: list[Drop] = []
    outbox = _filled(tmp_path / NAME, drops)
    _damage_head(outbox, 61)
    outbox.peek(0, UNBOUND, UNBOUND)
    outbox.append([b"fresh"])
    for _ in range(5):
        assert outbox._salvages[0].step(outbox._store_salvaged)
    outbox.close()
    connection = sqlite3.connect(tmp_path / NAME, isolation_level=None)
    connection.execute("UPDATE numbering SET issued = 3")
    connection.close()
    outbox = SqliteOutbox(tmp_path / NAME, on_drop=drops.append)
    assert _numbers(outbox) == {*range(1, 61), *range(73, 242)}
    assert _losses(drops) == [(61, 72, 12)]
    outbox.close()


def test_what_was_salvaged_is_announced_when_lost(tmp_path: Path) -> None:
    drops: list[Drop] = []
    outbox = _filled(tmp_path / NAME, drops)
    outbox.remove(range(1, 25))
    _damage_head(outbox, 61)
    outbox.peek(0, UNBOUND, UNBOUND)
    outbox.append([b"fresh"])
    now = _rows(outbox)
    assert _losses(drops) == [(61, 72, 12)]
    outbox.remove(now[number] for number in range(25, 37))
    _damage_head(outbox, now[97])
    assert _numbers(outbox) == {*range(37, 61), *range(73, 97), *range(109, 242)}
    # Twelve, of which it isn't known where between the oldest and the newest they were.
    assert _losses(drops) == [(61, 72, 12), (242, now[97] + 11, 12)]
    outbox.close()


def test_what_was_salvaged_is_announced_when_lost_by_the_next_start(tmp_path: Path) -> None:
    drops: list[Drop] = []
    outbox = _filled(tmp_path / NAME, drops)
    _damage_head(outbox, 61)
    outbox.peek(0, UNBOUND, UNBOUND)
    outbox.append([b"fresh"])
    _numbers(outbox)
    outbox.close()
    (tmp_path / NAME).write_bytes(b"no database" * 1000)
    drops.clear()
    outbox = SqliteOutbox(tmp_path / NAME, on_drop=drops.append)
    assert _numbers(outbox) == set()
    assert _losses(drops) == [(241, 469, 229)]
    outbox.close()


def test_numbers_skipped_after_a_power_cut_are_announced_once(tmp_path: Path) -> None:
    drops: list[Drop] = []
    _filled(tmp_path / NAME, drops).close()
    lock = tmp_path / f"{NAME}.lock"
    lock.write_text(lock.read_text()[:63] + f"{'of the boot before':36}\n".replace(" ", "-"))
    connection = sqlite3.connect(tmp_path / NAME, isolation_level=None)
    connection.execute("DELETE FROM blocks WHERE first = 229")
    connection.execute("UPDATE numbering SET issued = 3")
    connection.close()
    outbox = SqliteOutbox(tmp_path / NAME, on_drop=drops.append)
    assert _numbers(outbox) == set(range(1, 229))
    (loss,) = _losses(drops)
    assert loss == (229, 240 + (1 << 20), None)
    now = _rows(outbox)
    outbox.remove(now[number] for number in range(1, 13))
    outbox.append([b"fresh"])
    drops.clear()
    _damage_head(outbox, now[97])
    assert _numbers(outbox) == {*range(13, 97), *range(109, 229), 241}
    assert _losses(drops) == [(now[97], now[108], 12)]
    outbox.close()
