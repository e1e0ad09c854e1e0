"""A password that Kafka may have taken, though its answer did not come."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cloud.config import load
from cloud.errors import CloudError
from cloud.kafka.roles import Permission
from cloud.operate.users import Difference, Users, _wanted
from gateway.cli import main


@pytest.fixture
def answerless(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The passwords that Kafka takes; the answer to each is lost."""
    taken: list[str] = []

    def set_password(_: Users, _user: str, password: str) -> None:
        taken.append(password)
        raise CloudError("no answer within 1 s")

    monkeypatch.setattr(Users, "__init__", lambda *_: None)
    monkeypatch.setattr(Users, "compare", lambda *_: Difference((), (), True))
    monkeypatch.setattr(Users, "allow", lambda *_: None)
    monkeypatch.setattr(Users, "set_password", set_password)
    monkeypatch.chdir(tmp_path)
    kafka = '[kafka]\nbootstrap_servers = "127.0.0.1:1"\n'
    Path("cloud.toml").write_text(f'{kafka}[users]\noperators = ["olga"]\n')
    return taken


def test_a_gateways_file_stays(answerless: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["provision", "gateway", "mast-07", "--rotate", "--cloud", "cloud.toml"]) == 1

    assert f'"sasl.password" = "{answerless[0]}"' in Path("mast-07.access.toml").read_text()
    said = capsys.readouterr().err
    assert said.startswith("fieldgate: no answer within 1 s: whether Kafka has mast-07's new password")
    assert "-o another file" in said


def test_an_operators_is_shown(answerless: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["provision", "users", "--rotate", "olga", "--cloud", "cloud.toml"]) == 1
    assert re.search(rf"^olga {answerless[0]}$", capsys.readouterr().out, re.MULTILINE)


def test_jobs_write_the_topics_of_streams_and_analysts_read_them(tmp_path: Path) -> None:
    path = tmp_path / "cloud.toml"
    users = '[kafka]\nprefix = "acme."\n[users]\noperators = ["olga"]\njobs = ["jobs"]\nanalysts = ["anna"]\n'
    path.write_text(users)
    before = _wanted(load(path))
    path.write_text(f'{users}[[stream]]\nname = "w"\nsql = "SELECT 1"\ntopic = "derived.w"\n')
    more = {user: given - before[user] for user, given in _wanted(load(path)).items()}
    write, read = (Permission("topic", "acme.derived.w", each) for each in ("WRITE", "READ"))
    assert more == {"olga": frozenset(), "jobs": {write}, "anna": {read}}
