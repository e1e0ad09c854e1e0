"""``fieldgate check`` as its users see it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway import cli

CONFIGS = Path(__file__).parents[3] / "fixtures" / "configs"
EXAMPLES = Path(__file__).parents[4] / "docs" / "examples"


def test_a_good_config_is_summarised(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "-c", str(EXAMPLES / "mast.toml")]) == 0
    assert capsys.readouterr().out == (
        "good: gateway mast-07 on board raspberry-pi: 11 sensors, 12 channels, 9.217 readings/s"
        " to kafka.example.org:9092\n"
    )


def test_a_metered_uplinks_latency_its_cost_and_its_key_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "-c", str(EXAMPLES / "river.toml")]) == 0
    assert capsys.readouterr().out.endswith(
        " to kafka.example.org:9092, in batches of 60 s: until then readings are on the card and raise"
        " no alert (uplink.batch_s)\n"
    )
    assert cli.main(["check", "-c", str(EXAMPLES / "river.toml"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["summary"]["batch_s"] == 60


def test_errors_one_a_line_and_exit_1(capsys: pytest.CaptureFixture[str]) -> None:
    path = CONFIGS / "unknown_keys.toml"
    assert cli.main(["check", "-c", str(path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f'{path}:4: mqqt: is not a known section (did you mean "mqtt"?)'
    assert len(lines) == 5
    assert lines[-1] == "4 errors, 0 warnings"


def test_warnings_are_marked_and_exit_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "-c", str(CONFIGS / "warnings.toml")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.endswith(" [warning]") for line in lines] == [True, True, True, False]
    assert lines[-1].startswith(
        "good: gateway mast-07 on board raspberry-pi: 3 sensors, 3 channels, 3 readings/s"
    )


def test_json_of_a_broken_config(capsys: pytest.CaptureFixture[str]) -> None:
    path = CONFIGS / "board.toml"
    assert cli.main(["check", "-c", str(path), "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    (problem,) = answer.pop("problems")
    assert problem.pop("message").startswith("must be one of")
    assert answer == {"file": str(path), "ok": False, "errors": 1, "warnings": 0, "summary": None}
    assert problem == {
        "file": str(path), "line": 4, "key": "board.kind", "suggestion": "raspberry-pi", "severity": "error",
        "column": 1, "starts": False,
    }  # fmt: skip


def test_the_clouds_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cloud.toml"
    path.write_text('[kafka]\nbootstrap_servers = "kafka:9092"\n[lake]\npath = "/srv/lake"\n')
    assert cli.main(["check", "--cloud", str(path)]) == 0
    good = "good: Kafka at kafka:9092 (PLAINTEXT), lake /srv/lake"
    assert capsys.readouterr().out == f"{good}\n"
    path.write_text(f'{path.read_text()}[[stream]]\nname = "w"\nsql = "SELECT 1"\ntopic = "derived.w"\n')
    assert cli.main(["check", "--cloud", str(path)]) == 0
    more = f"; `fieldgate jobs streams --cloud {path}` checks the SQL of [[stream]]"
    assert capsys.readouterr().out == f"{good}{more}\n"
    path.write_text("[lake]\npth = 1\n")
    assert cli.main(["check", "--cloud", str(path)]) == 1
    assert capsys.readouterr().out == (
        f'{path}:2: lake.pth: is not a known key (did you mean "path"?)\n1 error, 0 warnings\n'
    )
    assert cli.main(["check", "--cloud", str(path), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["problems"][0]["line"] == 2
