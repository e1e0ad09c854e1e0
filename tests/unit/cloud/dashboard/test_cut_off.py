"""A client that takes nothing of its answer, and one that is slow: real sockets to a server of uvicorn's."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest
import uvicorn
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from cloud.dashboard import server
from tests.support.servers import eventually

WITHIN_S = 1.0


class Endless:
    """Answers without end; ``held`` are the requests that are being answered."""

    def __init__(self) -> None:
        self.held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.held += 1
        try:
            await StreamingResponse(iter(lambda: bytes(1 << 16), b""))(scope, receive, send)
        finally:
            self.held -= 1


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Endless, int]]:
    monkeypatch.setattr(server, "TAKEN_WITHIN_S", WITHIN_S)
    app = Endless()
    config = uvicorn.Config(app, port=0, lifespan="off", http=server.CutOff, log_level="error")
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run)
    thread.start()
    try:
        eventually(lambda: running.started)
        yield app, running.servers[0].sockets[0].getsockname()[1]
    finally:
        running.should_exit = running.force_exit = True
        thread.join(20)


def asking(port: int) -> socket.socket:
    client = socket.socket()
    client.settimeout(20)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", port))
    client.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
    return client


def test_who_reads_nothing_is_cut_off_and_who_reads_slowly_is_not(served: tuple[Endless, int]) -> None:
    app, port = served
    with asking(port) as slow:
        eventually(lambda: app.held, until=lambda held: held == 1)
        with asking(port):
            eventually(lambda: app.held, until=lambda held: held == 2)
            begun = time.monotonic()
            eventually(lambda: (slow.recv(4096), app.held)[1], 20, until=lambda held: held == 1)
            assert time.monotonic() - begun > WITHIN_S / 2
        until = time.monotonic() + 2 * WITHIN_S
        eventually(lambda: slow.recv(4096), 20, until=lambda _: time.monotonic() > until)
        assert app.held == 1
