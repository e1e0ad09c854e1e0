"""Whatever comes by the control socket, or to the phone's page: an answer, and no defect."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from gateway.clock.given_time import ManualTime
from gateway.status import control_socket
from gateway.status.control_socket import send_request
from gateway.status.server import StatusSource
from gateway.status.service import StatusPage, phone_control
from tests.support.any_json import VALUES
from tests.support.examples import examples
from tests.support.status import HEALTHY
from tests.support.status_page import phone
from tests.unit.gateway.status.conftest import Control

_MANY = {"deadline": None, "suppress_health_check": [HealthCheck.function_scoped_fixture]}

_requests = st.fixed_dictionaries(
    {},
    optional={
        "do": st.sampled_from(["phone-open", "phone-close", "phone-take", "phone-taken", "reload", ""])
        | VALUES,
        "address": st.sampled_from(["127.0.0.1", "::1", "192.0.2.1", "nowhere", "127.0.0.1\0"]) | VALUES,
        "minutes": st.sampled_from([1, 0.5, 1e300, -1, True]) | VALUES,
        "problem": VALUES,
        "config": VALUES,
    },
).map(lambda each: json.dumps(each).encode() + b"\n")
_lines = st.binary(max_size=80) | _requests | st.sampled_from(
    [b"[" * 60_000 + b"\n", b"x" * 70_000, b"{}\n{}\n", b'{"do":"\\ud800"}\n']
)  # fmt: skip


@pytest.fixture
def page() -> Iterator[StatusPage]:
    page = StatusPage(StatusSource(lambda: HEALTHY, clock=ManualTime(lambda: 1)))
    try:
        yield page
    finally:
        page.stop()


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelname in ("ERROR", "CRITICAL")]


def test_the_control_socket_answers_whatever_comes(
    page: StatusPage, outbox: Path, control: Control, caplog: pytest.LogCaptureFixture
) -> None:
    control(outbox, partial(phone_control, page))
    name = control_socket._name(outbox)

    @settings(max_examples=examples(150), **_MANY)  # type: ignore[arg-type]
    @given(_lines)
    def attempt(line: bytes) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(20)
            client.connect(name)
            try:
                client.sendall(line)
                client.shutdown(socket.SHUT_WR)
                answer = client.makefile("rb").readline()
            except (BrokenPipeError, ConnectionResetError):
                # It answered before all of it was read.
                answer = b"{}"
        assert isinstance(json.loads(answer), dict)

    attempt()
    assert "was_open" in send_request(outbox, {"do": "phone-close"})
    assert errors(caplog) == []


_heads = st.sampled_from(["application/json", "application/json; charset=x", "text/plain", "", "\u00e9"])
_fields = st.fixed_dictionaries({}, optional=dict.fromkeys(("time_ms", "asked_boot_ms"), VALUES))
_json = (VALUES | _fields).map(lambda each: json.dumps(each).encode())
_bodies = st.binary(max_size=60) | _json | st.just(b"[" * 900)


def test_the_phones_page_answers_whatever_is_posted(
    page: StatusPage, caplog: pytest.LogCaptureFixture
) -> None:
    client = phone(page)

    @settings(max_examples=examples(100), **_MANY)  # type: ignore[arg-type]
    @given(st.sampled_from(["/api/clock", "/"]), _bodies, _heads, st.integers(0, 3))
    def attempt(path: str, body: bytes, kind: str, short: int) -> None:
        length = str(max(len(body) - short, 0))
        answer = client.ask("POST", path, body, Content_Type=kind.encode(), Content_Length=length)
        assert answer.status in (405, 409)

    attempt()
    assert errors(caplog) == []
