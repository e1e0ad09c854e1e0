"""Tokens of programs: made, listed and revoked by the command, whose file has no token in it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from cloud.errors import CloudError
from cloud.operate.tokens import user_of
from gateway.cli import main

CONFIG = f"""[dashboard]
tokens = "tokens.db"
[dashboard.users.anna]
password = "scrypt:{"A" * 22}:{"A" * 43}"
"""


@pytest.fixture
def cloud(tmp_path: Path) -> Path:
    path = tmp_path / "cloud.toml"
    path.write_text(CONFIG)
    return path


def test_a_token_is_its_users_until_it_is_revoked(
    cloud: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = cloud.with_name("tokens.db")
    assert user_of(file, "x") is None
    assert main(["token", "add", "anna", "--cloud", str(cloud), "--days", "2", "--note", "a notebook"]) == 0
    made = capsys.readouterr().out.strip()
    assert made.startswith("fieldgate_")
    assert len(made) == len("fieldgate_") + 43
    assert made.encode() not in file.read_bytes()
    assert user_of(file, made) == "anna"
    assert user_of(file, made[:-1]) is None
    assert main(["token", "list", "--cloud", str(cloud)]) == 0
    line = capsys.readouterr().out
    name = line.split()[0]
    assert line.startswith(f"{name}  anna  until 20")
    assert line.endswith("Z  a notebook\n")
    then_s = time.time() + 2 * 86_400 + 1
    with monkeypatch.context() as later:
        later.setattr("time.time", lambda: then_s)
        assert user_of(file, made) is None
        assert main(["token", "list", "--cloud", str(cloud)]) == 0
        assert "  expired 20" in capsys.readouterr().out
    assert main(["token", "revoke", name, "--cloud", str(cloud)]) == 0
    assert capsys.readouterr().out == f"{name} is revoked\n"
    assert user_of(file, made) is None


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["add", "olga"], 1, "has no [dashboard.users.olga]; its users: anna"),
        (["revoke", "x"], 1, "there is no token x; `fieldgate token list` has them all"),
        (["add", "anna", "--days", "0"], 2, "'0' is not a whole number above 0"),
    ],
)
def test_what_is_wrong_is_said(
    cloud: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, words: str
) -> None:
    try:
        found = main(["token", *arguments, "--cloud", str(cloud)])
    except SystemExit as stopped:
        found = int(stopped.code or 0)
    assert found == code
    assert words in capsys.readouterr().err


def test_a_config_without_a_file_of_tokens_and_a_file_that_is_another_are_named(
    cloud: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cloud.with_name("tokens.db").write_text("no database, but long enough to be taken for one" * 100)
    assert main(["token", "list", "--cloud", str(cloud)]) == 1
    assert "tokens.db: file is not a database: is it the file of `fieldgate token`" in capsys.readouterr().err
    with pytest.raises(CloudError, match="not a database"):
        user_of(cloud.with_name("tokens.db"), "x")
    cloud.write_text(CONFIG.replace('tokens = "tokens.db"', ""))
    assert main(["token", "list", "--cloud", str(cloud)]) == 1
    assert '[dashboard] names no file of tokens: add tokens = "tokens.db"' in capsys.readouterr().err
