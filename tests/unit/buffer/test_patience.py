"""An outbox whose disk is in trouble when it starts: it is tried again with each call, and loses nothing."""

from __future__ import annotations

import errno
import os
import sqlite3
import subprocess
from pathlib import Path

import pytest

from buffer import sqlite_outbox
from buffer.errors import (
    Drop,
    OutboxDiskFull,
    OutboxForeign,
    OutboxLocked,
    OutboxUnusable,
    OutboxVersionError,
)
from buffer.outbox_file import Limits, OutboxFile
from buffer.sqlite_outbox import SqliteOutbox
from tests.unit.buffer.test_full_disk import _fill, small_disk
from tests.unit.buffer.trouble import Disk

__all__ = ["small_disk"]

UNBOUND = 1 << 30


def test_a_start_without_a_disk_goes_on_with_what_the_file_holds_when_it_can(tmp_path: Path) -> None:
    path, drops = tmp_path / "outbox.db", list[Drop]()
    before = SqliteOutbox(path)
    before.append([b"a", b"b"])
    before.close()
    disk = Disk()
    disk.opening = False
    outbox = disk.outbox(path, drops.append)
    assert (outbox.problem, len(outbox), outbox.size_bytes()) == ("no directory", 0, path.stat().st_size)
    with pytest.raises(OutboxUnusable):
        outbox.append([b"c"])
    disk.mend()
    assert outbox.peek(0, 10, UNBOUND) == [(1, b"a"), (2, b"b")]
    assert outbox.append([b"c"]) == [3]
    assert len(outbox) == 3
    outbox.close()
    assert drops == []


def test_an_outbox_that_was_never_opened_is_closed(tmp_path: Path) -> None:
    disk = Disk()
    disk.opening = False
    outbox = disk.outbox(tmp_path / "outbox.db", list[Drop]().append)
    outbox.close()
    assert list(tmp_path.iterdir()) == []


def test_who_uses_the_file_or_owns_it_is_no_trouble_of_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "outbox.db"
    first = SqliteOutbox(path, patient=True)
    with pytest.raises(OutboxLocked):
        SqliteOutbox(path, patient=True)
    first.close()
    raw = sqlite3.connect(path, isolation_level=None)
    raw.execute("PRAGMA user_version = 99")
    raw.execute("UPDATE numbering SET version = 99")
    raw.close()
    with pytest.raises(OutboxVersionError):
        SqliteOutbox(path, patient=True)
    raw = sqlite3.connect(tmp_path / "theirs.db")
    raw.execute("CREATE TABLE theirs (x)")
    raw.close()
    with pytest.raises(OutboxForeign):
        SqliteOutbox(tmp_path / "theirs.db", patient=True)


def test_a_start_on_a_read_only_file_system(small_disk: Path) -> None:
    path, drops = small_disk / "outbox.db", list[Drop]()
    before = SqliteOutbox(path)
    before.append([b"a"])
    before.close()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    outbox = SqliteOutbox(path, on_drop=drops.append, patient=True)
    assert outbox.problem is not None
    with pytest.raises(OutboxUnusable):
        outbox.append([b"b"])
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    outbox.probe()
    assert outbox.append([b"b"]) == [2]
    assert outbox.peek(0, 10, UNBOUND) == [(1, b"a"), (2, b"b")]
    outbox.close()
    assert drops == []


def test_a_start_on_a_full_disk(small_disk: Path) -> None:
    filler = _fill(small_disk)
    drops: list[Drop] = []
    outbox = SqliteOutbox(
        small_disk / "outbox.db", Limits().with_ballast(), on_drop=drops.append, patient=True
    )
    for _ in range(2):
        with pytest.raises(OutboxDiskFull):
            outbox.append([b"a"])
    filler.unlink()
    assert outbox.append([b"a"]) == [1]
    outbox.close()
    assert drops == []


@pytest.mark.parametrize(("where", "name"), [(sqlite_outbox, "pending"), (OutboxFile, "restore_ballast")])
def test_an_io_error_at_the_start_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: object, name: str
) -> None:
    def failing(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as broken:
        broken.setattr(where, name, failing)
        outbox = SqliteOutbox(tmp_path / "outbox.db", patient=True)
        assert "Input/output error" in (outbox.problem or "")
    assert outbox.append([b"kept"]) == [1]
    outbox.close()
