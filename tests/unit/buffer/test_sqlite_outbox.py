"""What only the outbox on a disk promises."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from buffer.blocks import DICTIONARY_BYTES
from buffer.errors import Drop, OutboxClosed, OutboxLocked, OutboxUnusable, OutboxVersionError
from buffer.sqlite_outbox import SqliteOutbox
from buffer.tables import APPLICATION_ID, SCHEMA_VERSION

UNBOUND = 1 << 30


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "outbox.db"


def _pragma(path: Path, name: str) -> object:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(f"PRAGMA {name}").fetchone()[0]
    finally:
        connection.close()


def test_the_edges_of_reading_and_removing(path: Path) -> None:
    """All between them is the state machine's."""
    outbox = SqliteOutbox(path)
    assert outbox.append([b"a", b"\x00\xff", b"c"]) == [1, 2, 3]
    assert outbox.peek(0, 0, UNBOUND) == []
    assert outbox.peek(400, 2, UNBOUND) == []
    outbox.remove([1, 1, 1 << 80])
    outbox.remove(number for number, _ in outbox.peek(0, 1, UNBOUND))
    assert outbox.peek(0, 10, UNBOUND) == [(3, b"c")]
    before = outbox.size_bytes()
    outbox.append([os.urandom(100_000)])
    assert outbox.size_bytes() >= before + 100_000 - DICTIONARY_BYTES
    for _ in range(2):
        outbox.close()
    for use in (lambda: outbox.append([b"b"]), lambda: outbox.peek(0, 1, 1), lambda: outbox.remove([1])):
        with pytest.raises(OutboxClosed):
            use()


def test_numbers_of_an_emptied_outbox_are_not_used_again_after_reopening(path: Path) -> None:
    outbox = SqliteOutbox(path)
    outbox.append([b"a", b"b"])
    outbox.remove([1, 2])
    outbox.close()
    drops: list[Drop] = []
    outbox = SqliteOutbox(path, on_drop=drops.append)
    assert outbox.append([b"c"]) == [3]
    # The lock file would have shown that numbers were lost.
    assert drops == []
    outbox.close()


def test_file_has_the_promised_settings(path: Path) -> None:
    outbox = SqliteOutbox(path)
    assert outbox._file.connection.execute("PRAGMA synchronous").fetchone() == (2,)
    outbox.append([b"a"])
    assert _pragma(path, "journal_mode") == "wal"
    assert _pragma(path, "page_size") == 512
    assert _pragma(path, "user_version") == SCHEMA_VERSION
    assert _pragma(path, "application_id") == APPLICATION_ID
    outbox.close()


def test_opening_and_peeking_write_nothing_to_the_database(path: Path) -> None:
    outbox = SqliteOutbox(path)
    outbox.append([b"a"])
    outbox.close()
    before = path.read_bytes()
    outbox = SqliteOutbox(path)
    outbox.peek(0, 10, UNBOUND)
    outbox.append([])
    outbox.remove([77])
    outbox.close()
    assert path.read_bytes() == before


def test_second_process_is_refused_and_a_killed_one_releases_the_file(path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-m", "tests.unit.buffer.appender", str(path), "1"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() != ""
        with pytest.raises(OutboxLocked, match=r"in use by another fieldgate.*outbox\.path"):
            SqliteOutbox(path)
    finally:
        holder.kill()
        holder.communicate()
    outbox = SqliteOutbox(path)
    assert len(outbox) >= 1
    outbox.close()


def test_no_acknowledged_record_is_lost_by_kill_9(path: Path) -> None:
    acknowledged = 0
    for acknowledgements in (1, 40, 150):
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.unit.buffer.appender", str(path), "7"],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert child.stdout is not None
            for _ in range(acknowledgements):
                acknowledged = int(child.stdout.readline())
        finally:
            child.kill()
            rest, _ = child.communicate()
        # What it still printed before it died was acknowledged, too; a torn last line wasn't.
        complete = rest[: rest.rfind("\n") + 1].split()
        acknowledged = int(complete[-1]) if complete else acknowledged
        outbox = SqliteOutbox(path)
        found = outbox.peek(0, UNBOUND, UNBOUND)
        assert [number for number, _ in found] == list(range(1, len(found) + 1))
        assert all(record == b"record %d" % number for number, record in found)
        assert len(found) >= acknowledged
        # Each append was of seven records: all of them or none.
        assert len(found) % 7 == 0
        outbox.close()


def test_write_error_is_the_disks_fault_and_passes(path: Path) -> None:
    script = f"""
import os, resource, signal
from pathlib import Path
from buffer.errors import OutboxUnusable
from buffer.sqlite_outbox import SqliteOutbox
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
outbox = SqliteOutbox(Path({str(path)!r}))
outbox.append([b"a"])
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
try:
    outbox.append([os.urandom(100_000)])
except OutboxUnusable:
    pass
else:
    raise SystemExit("nothing was raised")
assert len(outbox) == 1
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
assert outbox.append([b"b"]) == [2]
assert outbox.peek(0, 10, 100) == [(1, b"a"), (2, b"b")]
outbox.close()
"""
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize("version", [SCHEMA_VERSION - 1, SCHEMA_VERSION + 1])
def test_a_file_of_another_version_is_refused(path: Path, version: int) -> None:
    SqliteOutbox(path).close()
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.execute("UPDATE numbering SET version = ?", (version,))
    connection.close()
    content = path.read_bytes()
    with pytest.raises(OutboxVersionError, match=f"version {version}, this program uses 3: drain it with"):
        SqliteOutbox(path)
    assert path.read_bytes() == content


def test_power_cut_between_schema_and_log_mode_is_made_good(path: Path) -> None:
    SqliteOutbox(path).close()
    assert _pragma(path, "journal_mode = DELETE") == "delete"
    outbox = SqliteOutbox(path)
    assert _pragma(path, "journal_mode") == "wal"
    outbox.close()


def test_directory_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutboxUnusable, match=r"cannot make the outbox's directory .*file.*outbox\.path"):
        SqliteOutbox(tmp_path / "file" / "outbox.db")


def test_file_that_could_not_be_opened_again_is_opened_when_it_can_be(path: Path) -> None:
    drops: list[Drop] = []
    outbox = SqliteOutbox(path, on_drop=drops.append)
    outbox.append([b"a"])
    outbox._file.close()
    away = path.rename(path.with_name("away"))
    path.mkdir()
    for _ in range(2):
        with pytest.raises(OutboxUnusable):
            outbox.append([b"b"])
    path.rmdir()
    away.rename(path)
    assert outbox.append([b"b"]) == [2]
    assert outbox.peek(0, 10, UNBOUND) == [(1, b"a"), (2, b"b")]
    assert drops == []
    outbox.close()


def test_space_is_given_back_when_the_outbox_is_empty(path: Path) -> None:
    outbox = SqliteOutbox(path)
    numbers = [number for _ in range(20) for number in outbox.append([os.urandom(1000) for _ in range(500)])]
    assert outbox.size_bytes() > 10_000_000
    for start in range(0, len(numbers), 500):
        outbox.remove(numbers[start : start + 500])
    assert len(outbox) == 0
    # A few pages of database, no log, the log's index (32 KiB for each 4,096 frames).
    assert outbox.size_bytes() <= 16 * 512 + 3 * 32_768
    assert outbox.append([b"next"]) == [len(numbers) + 1]
    outbox.close()


def test_log_stays_bounded_while_records_pass_through(path: Path) -> None:
    outbox = SqliteOutbox(path)
    for _ in range(60):
        numbers = outbox.append([os.urandom(1000) for _ in range(200)])
        outbox.peek(0, 100, UNBOUND)
        outbox.remove(numbers)
    # 12 MB went through; SQLite checkpoints at 4 MiB.
    assert Path(f"{path}-wal").stat().st_size < 6_000_000
    outbox.close()
