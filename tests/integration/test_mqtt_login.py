"""A Mosquitto that wants a login: user and password of [mqtt]."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.commands.demo.mosquitto import LocalMosquitto
from gateway.commands.doctor.command import broker
from gateway.config import load
from tests.support.config import config_text, write_config
from tests.support.forwarding import Link


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[LocalMosquitto]:
    users = tmp_path / "users"
    subprocess.run(["mosquitto_passwd", "-b", "-c", str(users), "mast", "sesame"], check=True)
    settings = f"allow_anonymous false\npassword_file {users}\n"
    with LocalMosquitto(tmp_path / "mosquitto", settings=settings) as broker:
        yield broker


@pytest.mark.parametrize(
    ("login", "let_in"), [(("mast", "sesame"), True), (("mast", "simsalabim"), False), (None, False)]
)
def test_who_is_let_in(guarded: LocalMosquitto, login: tuple[str, str | None] | None, let_in: bool) -> None:
    link = Link(guarded.host, guarded.port, login=login)
    link.start()
    try:
        assert link.ready.wait(60 if let_in else 0.5) == let_in
    finally:
        link.stop()


def test_a_renewed_password_needs_no_restart(guarded: LocalMosquitto) -> None:
    link = Link(guarded.host, guarded.port, login=("mast", "simsalabim"))
    link.start()
    try:
        assert not link.ready.wait(0.5)
        link.do(lambda: link.session.log_in(("mast", "sesame")))
        assert link.ready.wait(60)
    finally:
        link.stop()


def test_doctor_goes_in_as_the_daemon_does(guarded: LocalMosquitto, tmp_path: Path) -> None:
    login = {"username": "mast", "password": {"file": "mqtt.password"}}
    text = config_text(board=None, mqtt={"host": guarded.host, "port": guarded.port, **login})
    path = write_config(tmp_path, text)
    secret = tmp_path / "mqtt.password"
    secret.write_text("sesame\n")
    assert broker(load(path)).severity == "ok"
    secret.write_text("simsalabim\n")
    refused = broker(load(path))
    assert (refused.severity, "refuses" in refused.what) == ("error", True)
