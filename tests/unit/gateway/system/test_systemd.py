"""What systemd receives, on a socket of the test's own."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.system import watchdog as sending
from gateway.system.watchdog import has_room, notify
from tests.support.servers import unique_name

pytest.importorskip("systemd.daemon")


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


def test_room_is_the_receivers(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiving:
        receiving.bind(path)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as filling:
            filling.setblocking(False)
            while has_room(path):
                filling.sendto(b"x", path)
            with pytest.raises(BlockingIOError):
                filling.sendto(b"x", path)
        receiving.recv(1)
        assert has_room(path, 10)
    with pytest.raises(ConnectionRefusedError):
        has_room(path)


def test_without_the_library_the_log_has_it_once(
    systemd: socket.socket, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sending, "_daemon", None)
    sending._report_missing_library.cache_clear()
    notify("READY=1")
    notify("READY=1")
    assert caplog.text.count("event=systemd.no_library package=python3-systemd") == 1
    systemd.setblocking(False)
    with pytest.raises(BlockingIOError):
        systemd.recv(1)
