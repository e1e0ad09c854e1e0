"""``fieldgate commission swap`` without a daemon: what it changes, what it refuses, what it leaves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway import cli
from gateway.commands.commissioning.swap import CannotSwap, Swap, plan
from gateway.reporting.event_spool import spool_directory

CONFIG = """\
# Mast 7, south ridge.
[gateway]
id = "mast-07"

[outbox]
path = "outbox.db"

[board]
kind = "simulated"

[[sensor]]
name = "cup"        # the south boom
driver = "hall-anemometer"
pin = 17
model = "NRG 40H"
serial = "179500123456"
calibrated = 2026-03-12   # tunnel
certificate = "26-0312"
slope = 0.765
offset = 0.35

[[sensor]]
name = "dht"
driver = "dht11"
pin = 4
interval_s = 2
"""
NEW = ("--serial", "179500123499", "--slope", "0.761", "--offset", "0.37")
PAPERS = ("--date", "2026-10-02", "--certificate", "26-1002")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "gateway.toml"
    path.write_text(CONFIG)
    return path


def swap(config: Path, *arguments: str) -> int:
    try:
        return cli.main(["commission", "swap", "-c", str(config), *arguments])
    except SystemExit as usage:
        return int(usage.code or 0)


def test_the_file_is_changed_and_nothing_else_in_it(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.chmod(0o640)
    assert swap(config, "cup", *NEW, *PAPERS, "--lab", "Example", "--yes") == 0
    expected = CONFIG
    for old, new in (
        ('serial = "179500123456"', 'serial = "179500123499"'),
        ("2026-03-12 ", "2026-10-02 "),
        ('"26-0312"', '"26-1002"'),
        ("slope = 0.765", "slope = 0.761"),
        ("offset = 0.35\n", 'offset = 0.37\nlab = "Example"\n'),
    ):
        assert expected.count(old) == 1
        expected = expected.replace(old, new)
    assert config.read_text() == expected
    assert config.stat().st_mode & 0o777 == 0o640
    (backup,) = config.parent.glob("gateway.toml.*.bak")
    assert backup.read_text() == CONFIG
    assert backup.stat().st_mode & 0o777 == 0o640
    shown = capsys.readouterr().out
    assert "\n-slope = 0.765\n" in shown
    assert "\n+slope = 0.761\n" in shown
    assert "stays: model = NRG 40H\n" in shown
    assert shown.endswith("daemon: no daemon: no daemon runs: it will find the new figures at its start\n")
    # Nothing half written is left, and the event waits for the daemon.
    (notice,) = spool_directory(config.parent / "outbox.db").iterdir()
    assert {each.name for each in config.parent.iterdir()} == {
        "gateway.toml", backup.name, "outbox.db.notices",
    }  # fmt: skip
    event = json.loads(notice.read_text())
    assert (event["event"], event["sensor"]) == ("sensor-swapped", "cup")
    assert event["changes"] == {
        "serial": ["179500123456", "179500123499"],
        "lab": [None, "Example"],
        "certificate": ["26-0312", "26-1002"],
        "calibrated": ["2026-03-12", "2026-10-02"],
        "slope": [0.765, 0.761],
        "offset": [0.35, 0.37],
    }

    # Once more: nothing to do, no second backup, no second event.
    assert swap(config, "cup", *NEW, *PAPERS, "--lab", "Example", "--yes") == 0
    assert "has these figures already" in capsys.readouterr().out
    assert len(list(config.parent.glob("*.bak"))) == len(list(notice.parent.iterdir())) == 1


def test_a_link_stays_one(config: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.toml"
    link.symlink_to(config)
    assert swap(link, "cup", *NEW, *PAPERS, "--yes") == 0
    assert link.is_symlink()
    assert "179500123499" in config.read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("cup", *NEW), 2, "there is no terminal"),
        (("cup", "--serial", "x", "--slope", "0,761", "--yes"), 2, "--slope: '0,761' is not a number (with"),
        (("cup", *NEW, "--date", "2.10.2026", "--yes"), 2, "--date: '2.10.2026' is not a date such as"),
        (("cap", *NEW, "--yes"), 1, "no sensor 'cap' (did you mean cup?)"),
        (("cup", *NEW, *PAPERS, "--keep", "slop", "--yes"), 1, "slop isn't one of a certificate (slope, "),
        (
            ("cup", *NEW, "--yes"),
            1,
            "cup still has the old one's:\n  calibrated = 2026-03-12: --date …\n"
            "  certificate = 26-0312: --certificate …\n",
        ),
        (("cup", "--serial", "x", *PAPERS, "--yes"), 1, "  slope = 0.765: --slope …\n  offset ="),
        (("dht", "--serial", "x", "--slope", "1", "--yes"), 1, "dht11 has no slope"),
        (("cup", *NEW, *PAPERS, "--remove", "pin", "--yes"), 1, "pin isn't one of a certificate (slope"),
        (
            ("cup", *NEW[:2], "--slope", "76.1", "--offset", "0.37", *PAPERS, "--yes"),
            1,
            'gateway.toml:19: sensor["cup"].slope: must be at most 10 m/s per Hz, not 76.1',
        ),
    ],
)  # fmt: skip
def test_what_is_refused_changes_nothing(
    config: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], code: int, words: str
) -> None:
    assert swap(config, *arguments) == code
    assert words in capsys.readouterr().err
    assert config.read_text() == CONFIG
    assert [each.name for each in config.parent.iterdir()] == ["gateway.toml"]


def test_what_stays_of_the_old_one_is_listed(config: Path) -> None:
    assert swap(config, "cup", *NEW, "--remove", "calibrated", "--remove", "certificate", "--yes") == 0
    assert "calibrated" not in config.read_text()
    wanted = plan(CONFIG.encode(), Swap("cup", {"serial": '"x"'}, tuple(plan_keys())))
    assert wanted.stays == {
        "model": "NRG 40H", "slope": 0.765, "offset": 0.35,
        "calibrated": wanted.stays["calibrated"], "certificate": "26-0312",
    }  # fmt: skip
    with pytest.raises(CannotSwap, match="can't be removed and given or kept at once"):
        plan(CONFIG.encode(), Swap("cup", {}, ("slope",), ("slope",)))


def plan_keys() -> list[str]:
    return ["slope", "offset", "calibrated", "certificate"]


def test_an_edit_by_another_program_is_not_overwritten(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the question waits, an editor saves the same file."""
    theirs = CONFIG + "# mine\n"

    def answer(question: str) -> str:
        assert "write it to" in question
        config.write_text(theirs)
        return "y"

    monkeypatch.setattr("builtins.input", answer)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert swap(config, "cup", *NEW, *PAPERS) == 1
    assert "was changed by another program meanwhile" in capsys.readouterr().err
    assert config.read_text() == theirs
    assert [each.name for each in config.parent.iterdir()] == ["gateway.toml"]
