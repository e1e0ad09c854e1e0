"""Stopping while the broker can't be reached: the connect under way must not keep the daemon from ending."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.support.forwarding import Link
from tests.support.servers import eventually

STOP_TIMEOUT_S = 5.0


@pytest.fixture
def mute() -> Iterator[socket.socket]:
    """A listener that takes connections and never answers."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        listener.settimeout(10)
        yield listener


@pytest.fixture
def crowded() -> Iterator[int]:
    """The port of a listener whose queue is full: the kernel lets a connect there wait."""
    with closing(socket.create_server(("127.0.0.1", 0), backlog=0)) as listener:
        port = listener.getsockname()[1]
        waiting = []
        for _ in range(8):
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
            waiting.append(one)
        yield port
        for one in waiting:
            one.close()


def stopped_after_s(link: Link) -> float:
    begin_s = time.monotonic()
    link.stop(last={"own/status": b"offline"})
    return time.monotonic() - begin_s


def test_stop_while_the_broker_never_answers_a_connect(mute: socket.socket) -> None:
    link = Link("127.0.0.1", mute.getsockname()[1])
    link.start()
    taken, _ = mute.accept()
    with taken:
        taken.settimeout(10)
        # CONNECT has come: its CONNACK is what the link waits for.
        assert taken.recv(1)[0] >> 4 == 1
        assert stopped_after_s(link) < STOP_TIMEOUT_S


@pytest.mark.parametrize(
    "host", ["no-such-host.invalid", "a" * 64 + ".example"], ids=["unknown", "not encodable"]
)
def test_stop_while_the_host_has_no_address(host: str, caplog: pytest.LogCaptureFixture) -> None:
    link = Link(host, 1883)
    link.start()
    eventually(lambda: "event=mqtt.unreachable" in caplog.text)
    assert stopped_after_s(link) < STOP_TIMEOUT_S


def test_stop_while_tcp_itself_waits(crowded: int) -> None:
    link = Link("127.0.0.1", crowded)
    link.start()
    assert stopped_after_s(link) < STOP_TIMEOUT_S
