"""``[mqtt_proxy]``: who may be let in, and files of Mosquitto's form."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from gateway.config import check
from gateway.config.bridges.access_files import read_access, read_users
from tests.support.config import config_text, write_config

FORWARD = [{"filter": "devices/#"}]
FILES = {"passwords": "users", "access": "access"}
TLS = {"certificate": "c.pem", "key": "k.pem"}
PASSWORD = "".join(("wet", "-and-windy"))


@pytest.mark.parametrize(
    ("section", "forward", "problems"),
    [
        ({"listen": "127.0.0.1:1883"}, FORWARD, []),
        ({"listen": "127.0.0.1:1883"}, None, ["there is no [[forward]]"]),
        ({"listen": "0.0.0.0:1883"}, FORWARD, ["lets other machines in", "in the clear"]),
        ({"listen": "0.0.0.0:1883", **FILES}, FORWARD, ["in the clear"]),
        ({"listen": "0.0.0.0:1883", **FILES, "plain": True}, FORWARD, []),
        ({"listen": "0.0.0.0:8883", **FILES, **TLS}, FORWARD, []),
        ({"listen": "0.0.0.0:8883", **TLS}, FORWARD, ["lets other machines in"]),
        ({"listen": "127.0.0.1:1883", "passwords": "users"}, FORWARD, ["passwords and access go together"]),
        ({"certificate": "c.pem"}, FORWARD, ["certificate and key go together"]),
        ({"listen": "[::1]:1883", **FILES, "access": "nowhere"}, FORWARD, ["nowhere: "]),
        ({"listen": "[::1]:1883", **FILES, "access": "wrong"}, FORWARD, ["wrong:2: must be"]),
        ({"listen": "127.0.0.1:1883", "max_clients": 0}, FORWARD, ["must be at least"]),
    ],
)
def test_what_would_let_others_in_is_refused(
    tmp_path: Path, section: dict[str, Any], forward: list[dict[str, str]] | None, problems: list[str]
) -> None:
    for name in ("users", "access", "c.pem", "k.pem"):
        (tmp_path / name).touch()
    (tmp_path / "wrong").write_text("user a\npattern write devices/%u/#\n")
    text = config_text(gateway={"id": "mast"}, mqtt_proxy=section, forward=forward)
    found = check(write_config(tmp_path, text), at_work=True)[1]
    assert [text in each.message for text, each in zip(problems, found, strict=True)] == [True] * len(
        problems
    )


def test_passwords_are_those_of_mosquittos_own_program(tmp_path: Path) -> None:
    path = tmp_path / "users"
    subprocess.run(["mosquitto_passwd", "-c", "-b", str(path), "rain", PASSWORD], check=True)
    subprocess.run(["mosquitto_passwd", "-H", "sha512", "-b", str(path), "soil", PASSWORD], check=True)
    users = read_users(path)
    assert [users["rain"].rounds, users["soil"].rounds] == [101, None]
    for user in users.values():
        assert user.matches(PASSWORD.encode())
        assert not user.matches(PASSWORD.encode() + b"x")
        assert not user.matches(b"")


@pytest.mark.parametrize(
    "line",
    [
        "rain",
        "rain:plain",
        ":$7$101$AA==$AA==",
        "a:$7$0$AA==$AA==",
        "a:$7$99999$AA==$AA==",
        "a:$6$1$AA==$AA==",
        "a:$7$101$?$AA==",
        "a:$argon2id$v=19$AA==$AA==",
    ],
)
def test_a_password_file_that_is_wrong_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "users"
    path.write_text(f"# rain\n\n{line}\n")
    with pytest.raises(ValueError, match="users:3: must be"):
        read_users(path)


def test_topics_are_those_that_may_be_written(tmp_path: Path) -> None:
    path = tmp_path / "access"
    path.write_text(
        "# a\n\nuser rain\ntopic write a/#\ntopic read b/#\ntopic readwrite c d\n  topic e\nuser soil\n"
    )
    assert read_access(path) == {"rain": ("a/#", "c d", "e"), "soil": ()}


@pytest.mark.parametrize("text", ["topic write a", "user ", "user a\ntopic write a#", "user a\ntopic write "])
def test_a_file_of_topics_that_is_wrong_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "access"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"access:\d: "):
        read_access(path)


@given(st.binary(max_size=200) | st.text("user topicwrea\n#$:+/7=", max_size=100).map(str.encode))
def test_no_bytes_are_more_than_wrong(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_bytes(content)
    for read in (read_users, read_access):
        try:
            read(path)
        except ValueError:
            continue
