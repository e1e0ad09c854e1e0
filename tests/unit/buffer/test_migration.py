"""Files of version 1: a row per record."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from buffer.drops import Drop
from buffer.sqlite_outbox import APPLICATION_ID, SCHEMA_VERSION, SqliteOutbox

UNBOUND = 1 << 30


def _version_1(path: Path, records: dict[int, bytes], issued: int) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("CREATE TABLE [records] ([number] INTEGER PRIMARY KEY, [record] BLOB NOT NULL)")
    connection.execute("CREATE TABLE [numbering] ([id] INTEGER PRIMARY KEY, [issued] INTEGER NOT NULL)")
    connection.execute("INSERT INTO numbering (id, issued) VALUES (1, ?)", (issued,))
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute("PRAGMA user_version = 1")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.executemany("INSERT INTO records VALUES (?, ?)", records.items())
    return connection


@pytest.mark.parametrize("clean", [True, False])
def test_records_and_numbers_are_kept(tmp_path: Path, clean: bool) -> None:
    path = tmp_path / "outbox.db"
    records = {number: b"record %d" % number * 40 for number in range(5, 1205) if number % 100}
    connection = _version_1(path, records, 3)
    if clean:
        connection.close()
    drops: list[Drop] = []
    outbox = SqliteOutbox(path, on_drop=drops.append)
    connection.close()
    assert len(outbox) == len(records)
    assert dict(outbox.peek(0, UNBOUND, UNBOUND)) == records
    assert outbox.append([b"next"]) == [1205]
    outbox.remove([*records])
    outbox.close()
    outbox = SqliteOutbox(path, on_drop=drops.append)
    assert outbox.peek(0, 10, UNBOUND) == [(1205, b"next")]
    assert drops == []
    outbox.close()
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
    connection.close()


def test_empty_outbox_keeps_its_numbering(tmp_path: Path) -> None:
    path = tmp_path / "outbox.db"
    _version_1(path, {}, 41).close()
    outbox = SqliteOutbox(path)
    assert len(outbox) == 0
    assert outbox.append([b"next"]) == [42]
    outbox.close()


def test_migration_that_was_cut_off_begins_again(tmp_path: Path) -> None:
    path = tmp_path / "outbox.db"
    _version_1(path, {1: b"a"}, 0).close()
    (tmp_path / "outbox.db.migrating").write_bytes(b"half a file")
    (tmp_path / "outbox.db.migrating-journal").write_bytes(b"its journal")
    outbox = SqliteOutbox(path)
    assert outbox.peek(0, 10, UNBOUND) == [(1, b"a")]
    outbox.close()
    left = sorted(file.name for file in tmp_path.iterdir())
    assert left == ["outbox.db", "outbox.db.lock"]
