"""What the outbox has stored is on the disk when it returns: checked in the kernel, not in the settings."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path
from typing import Final

import pytest

from buffer.sqlite_outbox import SqliteOutbox

_CACHESTAT: Final = 451
"""cachestat(2), Linux 6.5 and later: the same number on every architecture."""


class _Range(ctypes.Structure):
    _fields_ = (("offset", ctypes.c_uint64), ("length", ctypes.c_uint64))


class _Pages(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in ("cached", "dirty", "under_writeback", "evicted", "recently_evicted")
    )


def unwritten_pages(path: Path) -> int:
    """Pages of a file that are in memory and not yet on the disk."""
    libc = ctypes.CDLL(None, use_errno=True)
    everything, pages = _Range(0, 0), _Pages()
    with path.open("rb") as file:
        if libc.syscall(_CACHESTAT, file.fileno(), ctypes.byref(everything), ctypes.byref(pages), 0):
            code = ctypes.get_errno()
            if code in (errno.ENOSYS, errno.EPERM, errno.EOPNOTSUPP):
                pytest.skip(f"cachestat: {os.strerror(code)}")
            raise OSError(code, os.strerror(code))
    return int(pages.dirty) + int(pages.under_writeback)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory on a filesystem where a write without fsync differs from one with it."""
    probe = tmp_path / "probe"
    probe.write_bytes(bytes(1 << 16))
    if not unwritten_pages(probe):
        pytest.skip(f"{tmp_path} is on a filesystem without delayed writes")
    return tmp_path


def test_what_is_appended_or_removed_is_on_the_disk_before_the_call_returns(directory: Path) -> None:
    path = directory / "outbox.db"
    log = directory / "outbox.db-wal"
    outbox = SqliteOutbox(path)
    for batch in range(5):
        numbers = outbox.append([os.urandom(300) for _ in range(50)])
        assert log.stat().st_size > 300 * 50 * (batch + 1)
        assert (unwritten_pages(path), unwritten_pages(log)) == (0, 0)
    outbox.remove(numbers[:20])
    assert (unwritten_pages(path), unwritten_pages(log)) == (0, 0)
    outbox.close()
    assert unwritten_pages(path) == 0
