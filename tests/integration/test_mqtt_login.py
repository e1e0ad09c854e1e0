"""A Mosquitto that asks who is there: user and password of [mqtt]."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.demo.mosquitto import LocalMosquitto
from gateway.mqtt import MqttLink


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
    link = MqttLink(
        guarded.host,
        guarded.port,
        "link",
        ["sensors/#"],
        "own/run",
        lambda *_: None,
        ("own/status", b""),
        login=login,
    )
    link.start()
    try:
        assert link.ready.wait(10 if let_in else 0.5) == let_in
    finally:
        link.stop()
