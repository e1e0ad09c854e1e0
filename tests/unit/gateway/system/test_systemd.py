"""What systemd receives, on a socket of the test's own."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.system.systemd import notify
from tests.support.servers import unique_name


@pytest.fixture(params=["path", "abstract"])
def systemd(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[socket.socket]:
    name = str(tmp_path / "notify") if request.param == "path" else "@" + unique_name("notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(name.replace("@", "\0"))
        listening.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        yield listening


def test_each_state_is_one_datagram(systemd: socket.socket) -> None:
    notify("READY=1")
    notify("STATUS=spilling, 3 readings in the outbox")
    assert systemd.recv(100) == b"READY=1"
    assert systemd.recv(100) == b"STATUS=spilling, 3 readings in the outbox"


@pytest.mark.parametrize("address", ["", "/nobody/listens/here", "vsock:2:1234"])
def test_no_receiver_is_no_error(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    notify("READY=1")
    monkeypatch.delenv("NOTIFY_SOCKET")
    notify("READY=1")


def test_a_full_socket_does_not_block(systemd: socket.socket) -> None:
    for _ in range(10_000):
        notify("WATCHDOG=1")
    assert systemd.recv(100) == b"WATCHDOG=1"
