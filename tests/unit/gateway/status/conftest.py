"""What tests of the control socket share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from buffer.sqlite_outbox import SqliteOutbox
from gateway.status.control_socket import ControlSocket, Respond

Control = Callable[..., ControlSocket]


@pytest.fixture
def outbox(tmp_path: Path) -> Iterator[Path]:
    """An outbox that this process has."""
    opened = SqliteOutbox(tmp_path / "outbox.db")
    try:
        yield tmp_path / "outbox.db"
    finally:
        opened.close()


@pytest.fixture
def control() -> Iterator[Control]:
    """Starts control sockets, and stops them in the end."""
    started = []

    def start(outbox: Path, respond: Respond, uids: frozenset[int] | None = None) -> ControlSocket:
        started.append(ControlSocket(outbox, respond, uids))
        started[-1].start()
        return started[-1]

    yield start
    for each in started:
        each.stop()
