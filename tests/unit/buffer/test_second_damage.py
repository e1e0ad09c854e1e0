"""Damage to a file that holds what was kept of another: nothing is missing in silence or reported twice."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from buffer import sqlite_outbox
from buffer.errors import CORRUPT, Drop
from buffer.files import move_database
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


def _numbers(outbox: SqliteOutbox) -> set[int]:
    rows = outbox.peek(0, UNBOUND, UNBOUND)
    for number, record in rows:
        _, block, place = record.split()
        assert number == 12 * int(block) + int(place) + 1
    return {number for number, _ in rows}


def _losses(drops: list[Drop]) -> list[tuple[int, int, int | None]]:
    assert {drop.reason for drop in drops} <= {CORRUPT}
    return [(drop.first, drop.last, drop.count) for drop in drops]


def test_a_second_damage_is_announced_with_what_it_cost_alone(tmp_path: Path) -> None:
    drops: list[Drop] = []
    outbox = _filled(tmp_path / NAME, drops)
    outbox.remove(range(1, 25))
    _damage_head(outbox, 61)
    assert _numbers(outbox) == {*range(25, 61), *range(73, 241)}
    assert _losses(drops) == [(61, 72, 12)]
    outbox.remove(range(25, 37))
    _damage_head(outbox, 97)
    assert _numbers(outbox) == {*range(37, 61), *range(73, 97), *range(109, 241)}
    # Twelve, of which it isn't known where between the oldest and the newest they were.
    assert _losses(drops) == [(61, 72, 12), (61, 108, 12)]
    assert outbox.append([b"reading 20 0"]) == [241]
    outbox.close()


def test_damage_to_the_new_file_before_the_pass_has_ended_costs_nothing_twice(tmp_path: Path) -> None:
    drops: list[Drop] = []
    _filled(tmp_path / NAME, drops).close()
    sqlite_outbox.set_aside(tmp_path / NAME, 1, 240, last_is_known=True)
    (tmp_path / "other").mkdir()
    other = _filled(tmp_path / "other" / NAME, drops)
    other._file.connection.execute("DELETE FROM blocks WHERE first > 100")
    other.close()
    move_database(tmp_path / "other" / NAME, tmp_path / NAME)
    sqlite_outbox.set_aside(tmp_path / NAME, 1, 240, last_is_known=True)
    outbox = SqliteOutbox(tmp_path / NAME, on_drop=drops.append)
    assert _numbers(outbox) == set(range(1, 241))
    assert drops == []
    outbox.close()


def test_what_was_kept_is_announced_when_lost_by_the_next_start(tmp_path: Path) -> None:
    drops: list[Drop] = []
    outbox = _filled(tmp_path / NAME, drops)
    _damage_head(outbox, 61)
    outbox.peek(0, UNBOUND, UNBOUND)
    outbox.close()
    (tmp_path / NAME).write_bytes(b"no database" * 1000)
    drops.clear()
    outbox = SqliteOutbox(tmp_path / NAME, on_drop=drops.append)
    assert _numbers(outbox) == set()
    # At most: what was lost before is among these numbers.
    assert _losses(drops) == [(1, 240, 240)]
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
    outbox.remove(range(1, 13))
    drops.clear()
    _damage_head(outbox, 97)
    assert _numbers(outbox) == {*range(13, 97), *range(109, 229)}
    assert [count for *_, count in _losses(drops)] == [12]
    outbox.close()
