"""The status server of a gateway, and how to ask it, or to post to it as a phone does."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from gateway.status.server import StatusServer, StatusSource
from gateway.status.service import StatusPage
from gateway.status.tokens import Gate


class Answer(NamedTuple):
    """A response."""

    status: int
    headers: http.client.HTTPMessage
    text: str


class Client(http.client.HTTPConnection):
    """Of a port of this machine; with a token each request has it."""

    def __init__(self, port: int, token: str | None = None) -> None:
        super().__init__("127.0.0.1", port, timeout=30)
        self.token = token

    def ask(self, method: str, path: str, body: bytes = b"", /, **headers: str | bytes) -> Answer:
        """One request; an underscore in a header's name stands for a hyphen."""
        given: dict[str, Any] = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            self.request(method, path, body, given)
            answer = self.getresponse()
            return Answer(answer.status, answer.headers, answer.read().decode())
        finally:
            # It may have answered before it had read everything.
            self.close()

    def post(self, path: str, value: object, /, **headers: str) -> tuple[int, str]:
        """Post JSON; code and text of the response."""
        given = {"Content_Type": "application/json", **headers}
        answer = self.ask("POST", path, json.dumps(value).encode(), **given)
        return answer.status, answer.text.strip()


@contextmanager
def served(source: StatusSource, gate: Gate, *, free_for_locals: bool = False) -> Iterator[Client]:
    """A server, and a client of it."""
    server = StatusServer("127.0.0.1", 0, source, gate, free_for_locals=free_for_locals)
    server.start()
    client = Client(server.server_port)
    try:
        yield client
    finally:
        client.close()
        server.stop()


def phone(page: StatusPage, minutes: float = 60.0) -> Client:
    """A phone that has the page open for so long."""
    opened = page.phone.open("127.0.0.1", 0, minutes)
    return Client(int(opened.url.rstrip("/").rpartition(":")[2]), opened.token)
