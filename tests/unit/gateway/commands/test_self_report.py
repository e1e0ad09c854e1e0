"""The daily report, from statuses as the daemon gives them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gateway.cli import main
from gateway.commands.self_report import Totals, make_report, report
from gateway.config import load
from gateway.status.client import NoStatus
from gateway.status.status import Finding, OwnChannel, ParkedStatus, Status
from tests.support.config import config_text, cup
from tests.support.status import channel, status

CONFIG = config_text(cup())


def counted(seq: int, valid: int, forwarded: int, dropped: int, period_ms: int = 1000) -> OwnChannel:
    return channel(seq=seq, valid=valid, forwarded=forwarded, dropped=dropped, period_ms=period_ms)


def running(run: str, uptime_s: int, *, changes: Mapping[str, Any] = {}, **channels: OwnChannel) -> Status:
    named = {name.replace("_", ".", 1): each for name, each in channels.items()}
    return status(run=run, uptime_s=uptime_s, troubles={"baro": "no answer"}, channels=named, **changes)


def test_since_the_runs_beginning() -> None:
    fields = report(
        running("a", 1000, cup_wind=counted(1000, 990, 980, 5), dht_t=counted(480, 500, 480, 0, 2000))
    )
    assert fields["since_s"] == 1000
    assert fields["channels"] == {
        "cup.wind": {"sampled": 1000, "forwarded": 980, "dropped": 5, "recovery": 0.99},
        "dht.t": {"sampled": 480, "forwarded": 480, "dropped": 0, "recovery": 1.0},
    }
    assert fields["versions"]["fieldgate"] == "0.1.0"
    assert set(fields["versions"]) == {"fieldgate", "python", "kernel", "system"}
    assert fields["troubles"] == {"baro": "no answer"}


def test_a_weak_supply_is_counted_since_the_report_before() -> None:
    before = Totals("a", 1000, {}, under_voltage=3, throttled=0)
    fields = report(running("a", 3000, changes={"under_voltage": 5, "throttled": 0}), before)
    assert (fields["under_voltage"], fields["throttled"]) == (2, 0)
    assert report(running("a", 3000), before)["under_voltage"] is None


def test_bytes_are_counted_since_the_report_before_and_of_another_run_from_its_beginning() -> None:
    before = Totals("a", 1000, {}, bytes_sent=3_000_000)
    sent = [report(running(run, 3000, changes={"bytes_sent": 5_000_000}), before) for run in "ab"]
    assert [each["bytes_sent"] for each in sent] == [2_000_000, 5_000_000]
    # The daemon hasn't counted yet.
    assert report(running("b", 30, changes={"bytes_sent": None}), before)["bytes_sent"] is None


def test_since_the_report_before_and_another_run_starts_from_zero(tmp_path: Path) -> None:
    (tmp_path / "gateway.toml").write_text(CONFIG)
    statuses = iter([
        running("a", 1000, cup_wind=counted(1000, 1000, 900, 0)),
        running("a", 3000, cup_wind=counted(2990, 2000, 2990, 7), new_one=counted(10, 10, 10, 0)),
        running("b", 500, cup_wind=counted(500, 500, 500, 0)),
    ])  # fmt: skip
    for _ in range(3):
        assert make_report(load(tmp_path / "gateway.toml"), lambda listen: next(statuses)) == 0
    fields = [json.loads(path.read_text()) for path in sorted((tmp_path / "outbox.db.notices").iterdir())]
    assert [each["event"] for each in fields] == ["report"] * 3
    assert [each["since_s"] for each in fields] == [1000, 2000, 500]
    assert fields[1]["channels"] == {
        "cup.wind": {"sampled": 1990, "forwarded": 2090, "dropped": 7, "recovery": 0.5},
        "new.one": {"sampled": 10, "forwarded": 10, "dropped": 0, "recovery": 0.005},
    }
    assert fields[2]["channels"]["cup.wind"]["sampled"] == 500


def test_what_is_wrong_is_reported_with_its_words() -> None:
    found = Finding("kafka", "error", "rejects records", "provision it")
    changes = {
        "parked": {"mqtt.co2": ParkedStatus(7200, "TOPIC_AUTHORIZATION_FAILED: …")},
        "site_moved_m": 1200,
        "findings": (Finding("clock", "ok", "synchronised"), found),
    }
    fields = report(running("a", 7200, cup_wind=counted(7200, 7200, 7100, 0), changes=changes))
    assert (fields["parked"], fields["site_moved_m"]) == (changes["parked"], 1200)
    assert fields["findings"] == (found,)


def test_a_daemon_that_does_not_answer_is_what_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gateway.toml").write_text(CONFIG)

    def silent(listen: str) -> Status:
        raise NoStatus("no daemon answers")

    assert make_report(load(tmp_path / "gateway.toml"), silent) == 0
    printed = json.loads(capsys.readouterr().out)
    (fields,) = [json.loads(path.read_text()) for path in (tmp_path / "outbox.db.notices").iterdir()]
    assert fields["daemon"] == printed["daemon"] == "no daemon answers"
    assert not (tmp_path / "outbox.db.report").exists()


def test_another_config_has_another_hash_and_another_secret_the_same(tmp_path: Path) -> None:
    login = {"username": "mast", "password": "first"}
    texts = {
        "one": config_text(cup(), mqtt=login),
        "secret": config_text(cup(), mqtt=login | {"password": "other"}),
        "slope": config_text(cup(slope=0.8), mqtt=login),
    }

    def silent(listen: str) -> Status:
        raise NoStatus("no daemon answers")

    hashes = {}
    for name, text in texts.items():
        (tmp_path / "gateway.toml").write_text(text)
        (tmp_path / "gateway.toml").chmod(0o600)
        assert make_report(load(tmp_path / "gateway.toml"), silent) == 0
        (path,) = (tmp_path / "outbox.db.notices").iterdir()
        hashes[name] = json.loads(path.read_text())["config_hash"]
        path.unlink()
    assert hashes["one"] == hashes["secret"] != hashes["slope"]


@pytest.mark.parametrize("text", ["", "[]", '{"run": "a", "uptime_s": -1, "channels": {}}', '{"run": 1}'])
def test_totals_that_can_not_be_read(text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "gateway.toml").write_text(CONFIG)
    (tmp_path / "outbox.db.report").write_text(text)
    assert (
        make_report(
            load(tmp_path / "gateway.toml"), lambda listen: running("a", 100, cup_wind=counted(9, 9, 9, 0))
        )
        == 0
    )
    assert "event=state.unreadable" in caplog.text


def test_what_became_of_an_upgrade(tmp_path: Path) -> None:
    config = tmp_path / "gateway.toml"
    config.write_text(CONFIG)
    words = ["service", "report", "-c", str(config), "--upgrade", "1.0+deb13.trixie", "1.1+deb13.trixie"]
    assert main([*words, "--gap-s", "8.25"]) == 0
    assert main([*words, "--reverted", "crashes"]) == 0
    events = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("outbox.db.notices/*.json"))]
    for event in events:
        del event["id"], event["at"]
    both = {"from": "1.0+deb13.trixie", "to": "1.1+deb13.trixie"}
    assert events == [
        {"event": "upgraded", **both, "gap_s": 8.25},
        {"event": "upgrade-reverted", **both, "reason": "crashes"},
    ]
