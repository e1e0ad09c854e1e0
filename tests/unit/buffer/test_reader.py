"""Reading an outbox beside the program that uses it."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from buffer.errors import OutboxUnusable, OutboxVersionError
from buffer.outbox_file import Limits
from buffer.reader import OutboxReader, files_of, user_of
from buffer.sqlite_outbox import SqliteOutbox

BATCH = [b"record %d " % number * 20 for number in range(12)]


def filled(path: Path, batches: int = 3) -> SqliteOutbox:
    outbox = SqliteOutbox(path, Limits(ballast_bytes=4096))
    for number in range(batches):
        outbox.append(BATCH, b"summary %d" % number)
    return outbox


def test_reads_beside_the_one_who_writes(tmp_path: Path) -> None:
    path = tmp_path / "outbox.db"
    outbox = filled(path)
    with OutboxReader(path) as reader:
        records = reader.records()
        assert next(records) == (1, BATCH[0])
        outbox.append([b"new"])
        outbox.remove(range(1, 13))
        read = [record for _, record in records]
        # No snapshot is open between two reads: what was written meanwhile is seen at the next one.
        assert read == [*BATCH[1:], *BATCH, *BATCH, b"new"]
        assert [number for number, _ in reader.records()] == list(range(13, 38))
        assert [block.summary for block in reader.blocks()] == [b"summary 1", b"summary 2", b""]
        newest = reader.newest()
        assert newest is not None
        assert reader.records_of(newest) == [(37, b"new")]
        assert reader.dropped() == 0
    assert user_of(path) == os.getpid()
    assert files_of(path).total == outbox.size_bytes()
    assert files_of(path).ballast == 4096
    outbox.append([b"it can still write"])
    outbox.close()
    assert user_of(path) is None


def test_the_log_can_be_given_back_beside_an_open_reader(tmp_path: Path) -> None:
    outbox = filled(tmp_path / "outbox.db")
    with OutboxReader(tmp_path / "outbox.db") as reader:
        list(reader.records())
        with sqlite3.connect(tmp_path / "outbox.db") as other:
            busy, _, _ = other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        other.close()
    outbox.close()
    assert busy == 0


def test_what_was_removed_before_a_close_is_not_there(tmp_path: Path) -> None:
    outbox = filled(tmp_path / "outbox.db", batches=1)
    outbox.remove([1, 2, 5])
    outbox.close()
    with OutboxReader(tmp_path / "outbox.db") as reader:
        assert [number for number, _ in reader.records()] == [3, 4, 6, 7, 8, 9, 10, 11, 12]


def test_reads_what_a_killed_writer_left_in_its_log(tmp_path: Path) -> None:
    outbox = filled(tmp_path / "outbox.db")
    for suffix in ("", "-wal"):
        source = tmp_path / f"outbox.db{suffix}"
        (tmp_path / f"copy.db{suffix}").write_bytes(source.read_bytes())
    outbox.close()
    with OutboxReader(tmp_path / "copy.db") as reader:
        assert len(list(reader.records())) == 36


def test_a_copy_is_one_snapshot_while_another_program_writes(tmp_path: Path) -> None:
    path, copy = tmp_path / "outbox.db", tmp_path / "copy.db"
    outbox = filled(path, batches=10)
    # Blocks that don't compress: the copy takes several steps.
    for _ in range(100):
        outbox.append([os.urandom(20_000)])
    with OutboxReader(path) as reader:
        records, steps = list(reader.records()), []

        def write(done: int, total: int) -> None:
            steps.append(total)
            if len(steps) <= 2:
                outbox.append([b"written meanwhile"])

        reader.copy_to(copy, write)
        # It goes on reading what is new.
        assert len(list(reader.records())) == len(records) + 2
    outbox.close()
    assert len(steps) > 1
    assert len(set(steps)) == 1
    assert [each.name for each in tmp_path.glob("copy.db*")] == ["copy.db"]
    copy.chmod(0o400)
    with OutboxReader(copy) as reader:
        assert list(reader.records()) == records
    assert [each.name for each in tmp_path.glob("copy.db*")] == ["copy.db"]


def test_passes_damage_over_and_counts_it(tmp_path: Path) -> None:
    path = tmp_path / "outbox.db"
    filled(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE blocks SET payload_checksum = x'0000000000000000' WHERE first = 13")
        connection.execute("UPDATE blocks SET head_checksum = x'0000000000000000' WHERE first = 1")
    connection.close()
    with OutboxReader(path) as reader:
        assert [number for number, _ in reader.records()] == list(range(25, 37))
        assert reader.damaged == 2
    (tmp_path / "outbox.db.damaged-x").write_bytes(b"12345")
    assert files_of(path).aside == {"outbox.db.damaged-x": 5}


def test_reports_that_it_is_no_outbox(tmp_path: Path) -> None:
    path = tmp_path / "outbox.db"
    with pytest.raises(OutboxUnusable, match="there is no outbox"):
        OutboxReader(path)
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (x)")
    with pytest.raises(OutboxUnusable, match="is not an outbox"):
        OutboxReader(path)
    connection.close()
    path.unlink()
    filled(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(OutboxVersionError, match="version 99"):
        OutboxReader(path)


@pytest.mark.parametrize(
    "view",
    [
        "SELECT 1 AS first, 2 AS last, zeroblob(700000000) AS payload",
        "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n) SELECT i AS first FROM n",
    ],
)
def test_a_file_with_a_view_in_a_tables_place_is_refused(tmp_path: Path, view: str) -> None:
    path = tmp_path / "outbox.db"
    filled(path).close()
    with sqlite3.connect(path) as database:
        database.executescript(f"DROP TABLE blocks; CREATE VIEW blocks AS {view}")
    database.close()
    with pytest.raises(OutboxUnusable, match="has a view"):
        OutboxReader(path)
