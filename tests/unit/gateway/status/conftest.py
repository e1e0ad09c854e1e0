"""What tests of the control socket share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from buffer.sqlite_outbox import SqliteOutbox


@pytest.fixture
def outbox(tmp_path: Path) -> Iterator[Path]:
    """An outbox that this process has."""
    opened = SqliteOutbox(tmp_path / "outbox.db")
    try:
        yield tmp_path / "outbox.db"
    finally:
        opened.close()
