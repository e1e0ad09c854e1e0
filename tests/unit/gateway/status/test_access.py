"""Which requests the status page admits: tokens and their times, by a clock that is moved by hand."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gateway.config import StatusConfig
from gateway.status.control_socket import ControlError, send_request
from gateway.status.server import StatusSource, is_local
from gateway.status.service import StatusPage, TemporaryAccess, phone_control
from gateway.status.tokens import MOST_WRONG, WINDOW_S, Access, Gate, new_token
from tests.support import status_page
from tests.support.status import HEALTHY, status
from tests.support.status_page import Client
from tests.unit.gateway.status.conftest import Control

TOKEN = "k7mq2fxa9tpehw3d"  # noqa: S105


class ByHand:
    """A clock moved by hand."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> ByHand:
    return ByHand()


def test_tokens_are_long_random_and_can_be_typed() -> None:
    tokens = {new_token() for _ in range(1000)}
    assert len(tokens) == 1000
    assert {len(token) for token in tokens} == {16}
    letters = set("".join(tokens))
    assert len(letters) == 31
    assert letters.isdisjoint("ilo01")


def test_only_the_token_opens_and_only_in_time(clock: ByHand) -> None:
    gate = Gate(TOKEN, 1060.0, clock)
    assert gate.admit(TOKEN, "phone") is Access.ADMITTED
    for wrong in (TOKEN[:-1], TOKEN + "x", "", "\udcff"):
        assert gate.admit(wrong, "phone") is Access.WRONG
    assert gate.admit(None, "other") is Access.MISSING
    clock.now_s = 1059.9
    assert gate.left_s == pytest.approx(0.1)
    assert gate.admit(TOKEN, "other") is Access.ADMITTED
    clock.now_s = 1060.0
    assert (gate.left_s, gate.is_open) == (0.0, False)
    assert gate.admit(TOKEN, "other") is Access.CLOSED


def test_without_a_token_nothing_is_admitted(clock: ByHand) -> None:
    gate = Gate(None, None, clock)
    assert not gate.is_open
    assert {gate.admit(each, "any") for each in ("", "None")} == {Access.CLOSED}


def test_an_address_that_guesses_waits_and_no_other(clock: ByHand) -> None:
    gate = Gate(TOKEN, None, clock)
    for _ in range(MOST_WRONG):
        assert gate.admit("guess", "guesser") is Access.WRONG
        clock.now_s += 1
    # Not even the right one is compared: else it would be worth going on.
    assert gate.admit(TOKEN, "guesser") is Access.WAIT
    assert gate.admit(TOKEN, "phone") is Access.ADMITTED
    clock.now_s = 1000.0 + WINDOW_S - 0.1
    assert gate.admit(TOKEN, "guesser") is Access.WAIT
    clock.now_s = 1000.0 + WINDOW_S
    assert gate.admit(TOKEN, "guesser") is Access.ADMITTED


@pytest.mark.parametrize(("offered", "access"), [("earlier", Access.EARLIER), (None, Access.MISSING)])
def test_a_page_that_was_left_open_or_has_no_token_is_not_guessing(
    clock: ByHand, offered: str | None, access: Access
) -> None:
    gate = Gate(TOKEN, None, clock, ["earlier"])
    for _ in range(3 * MOST_WRONG):
        assert gate.admit(offered, "phone") is access
    assert gate.admit(TOKEN, "phone") is Access.ADMITTED


@pytest.mark.parametrize(
    ("peer", "own", "local"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("::1", "::1", True),
        ("192.168.1.5", "192.168.1.5", True),
        ("192.168.1.9", "192.168.1.5", False),
        ("fe80::1%eth0", "fe80::2%eth0", False),
        ("10.0.0.1", "127.0.0.1", False),
    ],
)
def test_local_is_this_machine_only(peer: str, own: str, local: bool) -> None:
    assert is_local(peer, own) is local


# Over real HTTP.


def served(gate: Gate, *, free_for_locals: bool = False) -> AbstractContextManager[Client]:
    answers = StatusSource(lambda: status(main_loop_ago_s=20.0))
    return status_page.served(answers, gate, free_for_locals=free_for_locals)


@pytest.mark.parametrize("path", ["/", "/api/status", "/api/events", "/api/pulses", "/metrics", "/nothing"])
def test_without_its_token_nothing_is_shown(path: str) -> None:
    with served(Gate(TOKEN)) as connection:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Cookie": f"fieldgate-{connection.port}=no"}):
            status, _, text = connection.ask("GET", path, **headers)
            assert status == 401
            assert "mast-07" not in text


def test_others_get_no_more_than_ok_of_the_health() -> None:
    with served(Gate(TOKEN)) as connection:
        assert connection.ask("GET", "/healthz")[::2] == (503, "not ok\n")
    with served(Gate(None), free_for_locals=True) as connection:
        assert connection.ask("GET", "/healthz")[::2] == (503, "main loop stalled for 20 s\n")


def test_a_token_in_the_address_becomes_a_cookie() -> None:
    with served(Gate(TOKEN)) as connection:
        status, headers, _ = connection.ask("GET", f"/?t={TOKEN}")
        assert (status, headers["Location"]) == (303, "/")
        name = f"fieldgate-{connection.port}"
        assert headers["Set-Cookie"] == f"{name}={TOKEN}; HttpOnly; Path=/; SameSite=Strict"
        status, headers, page = connection.ask("GET", "/", Cookie=f"{name}={TOKEN}")
        assert (status, headers["Referrer-Policy"]) == (200, "no-referrer")
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert TOKEN not in page
        # No redirect leads elsewhere.
        assert connection.ask("GET", f"//example.org/?t={TOKEN}")[1]["Location"] == "/"


def test_the_cookie_lives_as_long_as_the_access(clock: ByHand) -> None:
    with served(Gate(TOKEN, 1090.0, clock)) as connection:
        assert "Max-Age=91" in connection.ask("GET", f"/?t={TOKEN}")[1]["Set-Cookie"]
        cookie = {"Cookie": f"fieldgate-{connection.port}={TOKEN}"}
        assert json.loads(connection.ask("GET", "/api/status", **cookie)[2])["closes_in_s"] == 90
        clock.now_s = 1090.0
        status, _, text = connection.ask("GET", "/", **cookie)
        assert status == 403
        assert "sudo fieldgate phone" in text


def test_prometheus_sends_it_as_a_header_and_nothing_can_be_changed_with_it() -> None:
    with served(Gate(TOKEN)) as connection:
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        status, _, text = connection.ask("GET", "/metrics", **bearer)
        assert (status, "fieldgate_build_info" in text) == (200, True)
        assert connection.ask("POST", "/", **bearer).status == 405


def test_guessing_over_http_is_slowed(caplog: pytest.LogCaptureFixture) -> None:
    with served(Gate(TOKEN)) as connection:
        for number in range(MOST_WRONG):
            status, _, text = connection.ask("GET", f"/?t=guess{number}")
            assert status == 401
            assert "That token is wrong" in text
        status, headers, _ = connection.ask("GET", f"/?t={TOKEN}")
        assert (status, headers["Retry-After"]) == (429, "60")
    assert "event=status.refused peer=127.0.0.1 reason=wrong" in caplog.text
    assert "guess0" not in caplog.text


def test_no_log_line_has_a_token(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    with served(Gate(TOKEN)) as connection:
        connection.ask("GET", f"/?t={TOKEN}")
        connection.ask("GET", f"/nothing?t={TOKEN}")
    assert "event=status.request" in caplog.text
    assert TOKEN not in caplog.text


def test_a_stream_ends_with_its_access(clock: ByHand) -> None:
    with served(Gate(TOKEN, 1060.0, clock)) as connection:
        connection.request("GET", "/api/events", headers={"Cookie": f"fieldgate-{connection.port}={TOKEN}"})
        stream = connection.getresponse()
        assert stream.readline() == b"event: recent\n"
        clock.now_s = 1061.0
        # At its end, not at a time-out.
        assert b"event: status\n" in stream.read()


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"GARBAGE\r\n\r\n", b"400"),
        (b"GET / HTTP/9.9\r\n\r\n", b"505"),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", b"414"),
        (b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n", b"431"),
        (b"GET / HTTP/1.1\r\nCookie: \xff=\xfe;;=\r\n\r\n", b"200"),
        (b"GET /%ff%00 HTTP/1.1\r\n\r\n", b"404"),
        (b"GET /?t=%ff HTTP/1.1\r\n\r\n", b"303"),
        (b"GET /?t=a%0d%0aX:%20y HTTP/1.1\r\n\r\n", b"303"),
        (b"POST /api/clock HTTP/1.1\r\nContent-Length: -5\r\n\r\n", b"405"),
        (b"PUT / HTTP/1.1\r\n\r\n", b"501"),
        (b"GET http://[ HTTP/1.1\r\n\r\n", b"400"),
        (b"POST http://[x]y/api/clock HTTP/1.1\r\n\r\n", b"400"),
    ],
)
def test_a_malformed_request_is_answered_and_logs_no_error(
    sent: bytes, answer: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        served(Gate(None), free_for_locals=True) as connection,
        socket.create_connection(("127.0.0.1", connection.port), timeout=10) as sending,
    ):
        sending.sendall(sent)
        received = b""
        # What it doesn't read of a request may reset the connection behind the answer.
        with contextlib.suppress(ConnectionResetError):
            while more := sending.recv(4096):
                received += more
    # Before the version is known an answer has no head.
    assert received.startswith(b"HTTP/1.0 " + answer) or b"Error code: " + answer in received
    assert b"\nX: y" not in received
    assert "event=server.request_failed" not in caplog.text


# Temporary access.


def test_temporary_access_ends_by_itself(clock: ByHand) -> None:
    access = TemporaryAccess(StatusSource(lambda: HEALTHY), clock)
    opened = access.open("127.0.0.1", 0, 60.0)
    port = int(opened.url.rstrip("/").rpartition(":")[2])
    assert opened.seconds == 3600.0
    assert Client(port, opened.token).ask("GET", "/api/status").status == 200
    # It is for phones: from this machine, too, it needs its token.
    assert Client(port).ask("GET", "/api/status").status == 401
    clock.now_s += 3599.0
    access.check()
    socket.create_connection(("127.0.0.1", port), timeout=10).close()
    clock.now_s += 1.0
    access.check()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=10)
    assert access.close() is False


def test_opening_again_makes_a_new_token_and_ends_the_old_one(clock: ByHand) -> None:
    access = TemporaryAccess(StatusSource(lambda: HEALTHY), clock)
    try:
        first = access.open("127.0.0.1", 0, 60.0)
        second = access.open("127.0.0.1", 0, 1.0)
        assert first.token != second.token
        port = int(second.url.rstrip("/").rpartition(":")[2])
        status, _, text = Client(port, first.token).ask("GET", "/api/status")
        assert (status, "Scan the newest code" in text) == (401, True)
    finally:
        assert access.close() is True


def test_a_taken_port_is_passed_over(free_port: int) -> None:
    page = StatusPage(StatusSource(lambda: HEALTHY))
    page.listen(StatusConfig(f"127.0.0.1:{free_port}"))
    try:
        opened = page.phone.open("127.0.0.1", page.port, 1.0)
        assert opened.url != f"http://127.0.0.1:{free_port}/"
    finally:
        page.stop()


# Requests of the command.


def test_the_command_reaches_the_daemon_that_uses_the_outbox(outbox: Path, control: Control) -> None:
    page = StatusPage(StatusSource(lambda: HEALTHY))
    listening = control(outbox, partial(phone_control, page))
    try:
        opened = send_request(outbox, {"do": "phone-open", "address": "127.0.0.1", "minutes": 5})
        assert opened["seconds"] == 300.0
        assert send_request(outbox, {"do": "phone-close"}) == {"was_open": True}
        assert send_request(outbox, {"do": "phone-close"}) == {"was_open": False}
        for wrong, message in (
            ({"do": "reboot"}, "requests are phone-open and phone-close"),
            ({"do": "phone-open", "address": "no", "minutes": 5}, "'no' does not appear to be"),
            ({"do": "phone-open", "address": "127.0.0.1", "minutes": 0}, "above 0 and at most 1440"),
            ({"do": "phone-open", "address": "127.0.0.1", "minutes": True}, "above 0 and at most 1440"),
            ({"do": "phone-open", "address": "192.0.2.1", "minutes": 5}, "Cannot assign requested address"),
        ):
            with pytest.raises(ControlError, match=message):
                send_request(outbox, wrong)
    finally:
        listening.stop()
        page.stop()
    with pytest.raises(ControlError, match="can't be reached"):
        send_request(outbox, {"do": "phone-close"})


def test_other_users_are_refused(outbox: Path, control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[Any] = []

    def answer(request: Mapping[str, Any]) -> Mapping[str, Any]:
        requests.append(request)
        return {}

    def another_user(connected: socket.socket) -> tuple[int, int, int]:
        if threading.current_thread() is threading.main_thread():
            # Requests when the access is shut already: the reason is behind it.
            shut = select.poll()
            shut.register(connected, select.POLLRDHUP)
            assert shut.poll(20_000)
        return os.getpid(), 12345, 12345

    control(outbox, answer, frozenset())
    monkeypatch.setattr("gateway.status.control_socket._other_side", another_user)
    with pytest.raises(ControlError, match="only root and the daemon's own user"):
        send_request(outbox, {"do": "phone-close"})
    assert requests == []


def test_a_response_of_another_process_is_refused(
    tmp_path: Path, control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "outbox.db"
    with pytest.raises(ControlError, match="no daemon runs"):
        send_request(path, {"do": "phone-close"})
    control(path, lambda _: {"token": "mine"})
    # The outbox is used by another process than the one that answers.
    monkeypatch.setattr("gateway.status.control_socket.user_of", lambda _: os.getpid() + 1)
    with pytest.raises(ControlError, match="in the place of the daemon"):
        send_request(path, {"do": "phone-close"})
