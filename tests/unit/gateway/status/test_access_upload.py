"""An access file by phone: from the page's request to the files that init would write."""

from __future__ import annotations

import json
import logging
import stat
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gateway.commands.arguments import CommandError
from gateway.commands.phone import take_access
from gateway.commands.provision.access_file import Access
from gateway.status import StatusPage, StatusSource, access_upload, phone_control
from gateway.status.control_socket import ControlSocket
from tests.support.servers import eventually
from tests.support.status_page import Client, phone

LOGIN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "mast-07"}
PASSWORDS = ["".join((word, '-se"sam\\e')) for word in ("old", "new")]


def post(client: Client, access: object, **headers: str) -> tuple[int, str]:
    return client.post("/api/access", {"access": access}, **headers)


def shown(client: Client) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(client.ask("GET", "/api/status").text)
    return found


@pytest.fixture
def page(outbox: Path) -> Iterator[StatusPage]:
    page = StatusPage(StatusSource(lambda: {"channels": {}}))
    control = ControlSocket(outbox, partial(phone_control, page))
    control.start()
    try:
        yield page
    finally:
        control.stop()
        page.stop()


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Of a mast that has its login already."""
    place = tmp_path / "etc"
    place.mkdir()
    first = access(PASSWORDS[0])
    first.install(place)
    path = place / "gateway.toml"
    path.write_text(f'[gateway]\nid = "mast-07"\n\n{first.section(place)}')
    return path


def access(password: str, gateway: str = "mast-07") -> Access:
    return Access(gateway, "kafka.example.org:9093", LOGIN, {"sasl.password": password})


def text(made: Access, place: Path) -> str:
    path = place / "handed-out"
    path.unlink(missing_ok=True)
    made.write(path)
    return path.read_text()


def test_a_file_from_the_phone_replaces_the_password_and_is_shown_nowhere(
    page: StatusPage,
    outbox: Path,
    config: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    client, new = phone(page), text(access(PASSWORDS[1]), tmp_path)
    assert shown(client)["takes_access"] is False
    assert post(client, new) == (409, access_upload.NOBODY)
    taking = threading.Thread(target=take_access, args=(config, outbox, 0.02))
    taking.start()
    eventually(lambda: shown(client)["takes_access"], 20)
    # Another mast's, what is none, what is too long: with the reason, and nothing is written.
    for wrong, problem in (
        (text(access(PASSWORDS[1], "mast-08"), tmp_path), "mast-07's, the access mast-08's: nothing written"),
        (PASSWORDS[1], "what the phone has sent is no file of `fieldgate provision gateway`"),
        ("x" * (50 << 10), "too long"),
        ("\0" * 10_000, "too long"),
        (7, "this must be JSON with a text: access"),
    ):
        status, answer = post(client, wrong)
        assert (status, problem in answer) == (409, True), answer
        assert PASSWORDS[1] not in answer
    assert (config.parent / "kafka.password").read_text() == f"{PASSWORDS[0]}\n"
    assert post(client, new) == (200, "taken")
    taking.join(20)
    written = config.parent / "kafka.password"
    assert written.read_text() == f"{PASSWORDS[1]}\n"
    assert stat.S_IMODE(written.stat().st_mode) in (0o600, 0o640)
    # It was wanted once.
    assert post(client, new) == (409, access_upload.NOBODY)
    seen = caplog.text + capsys.readouterr().out + json.dumps(shown(client)) + client.ask("GET", "/").text
    assert PASSWORDS[1] not in seen
    assert json.dumps(PASSWORDS[1])[1:-1] not in seen


def test_only_the_page_that_has_the_token_may_post(
    page: StatusPage, outbox: Path, config: Path, tmp_path: Path
) -> None:
    client, new = phone(page), text(access(PASSWORDS[1]), tmp_path)
    page.access.take()
    assert post(client, new, Authorization="Bearer another")[0] == 401
    assert post(client, new, Origin="http://example.org") == (403, "another page's request")
    # What a form of another site's page can send without being asked for.
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        assert post(client, new, Content_Type=kind) == (409, "this must be JSON")
    assert page.access.take() is None
    # Never on the mast's own listener, which needs no token from this machine.
    with_own = StatusPage(StatusSource(lambda: {"channels": {}}))
    try:
        own = phone(with_own)
        server = with_own.phone._server
        assert server is not None
        server.free_for_locals = True
        assert post(own, new)[0] == 405
    finally:
        with_own.stop()


def test_the_command_ends_with_the_page(page: StatusPage, outbox: Path, config: Path) -> None:
    with pytest.raises(CommandError, match="the page was closed: nothing was taken"):
        take_access(config, outbox, 0.02)


def test_a_phone_gets_an_answer_though_the_command_has_gone(
    page: StatusPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_upload, "_ANSWER_S", 0.05)
    client = phone(page)
    page.access.take()
    assert post(client, "a") == (409, "no answer from `fieldgate phone --access`: look there")
    # What was posted isn't kept for whoever asks later.
    assert page.access.take() is None


def test_an_answer_that_comes_too_late_is_not_the_next_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_upload, "_ANSWER_S", 0.1)
    upload = access_upload.AccessUpload()
    upload.take()
    outcomes: list[str] = []

    def put(text: str) -> threading.Thread:
        def post() -> None:
            try:
                upload.put(text)
            except ValueError as error:
                outcomes.append(str(error))
            else:
                outcomes.append("taken")

        thread = threading.Thread(target=post)
        thread.start()
        return thread

    first = put("first")
    eventually(upload.take, until=lambda text: text == "first")
    first.join()
    monkeypatch.setattr(access_upload, "_ANSWER_S", 0.5)
    second = put("second")
    eventually(lambda: upload._posted)
    upload.answer(None)
    second.join()
    assert all(each.startswith("no answer from") for each in outcomes), outcomes
