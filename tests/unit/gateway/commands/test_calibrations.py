"""``fieldgate calibrations``: the history, and what a reload would change."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cloud.wire.channel_records import parse_channel
from gateway import cli
from gateway.calibration.history import CalibrationHistory, channel_records, read_history
from gateway.commands.calibrations import standing
from gateway.config import load
from tests.support.clocks import SteppingClock
from tests.support.config import config_text, cup
from tests.unit.gateway.calibration.test_history import SECOND_NS, T0_NS


def text(slope: float, serial: str) -> str:
    return config_text(cup(slope=slope, offset=0.0, serial=serial), board=None)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A config whose first cup was swapped for a second, which the daemon has seen, and then edited again."""
    path = tmp_path / "gateway.toml"
    clock = SteppingClock(T0_NS, T0_NS + 1000 * SECOND_NS)
    history = CalibrationHistory(tmp_path / "outbox.db.channels", "boot-1", clock, lambda record: None)
    for slope, serial in ((0.765, "456"), (0.761, "457")):
        path.write_text(text(slope, serial))
        history.apply(channel_records(load(path)))
        history.publish()
        clock.time_ns += 60 * SECOND_NS
    return path


def table(path: Path, capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    assert cli.main(["calibrations", "-c", str(path)]) == 0
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def test_a_row_for_each_time_in_force(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = (each.record.cal for each in standing(read_history(path.parent / "outbox.db.channels"), ()))
    assert table(path, capsys) == [
        ["channel", "cal", "state", "from", "to", "serial", "slope", "offset", "calibrated", "expires"],
        ["cup.wind_speed", old, "ended", "2026-11-21", "07:35Z", "2026-11-21", "07:36Z", "456", "0.765", "0"],
        ["cup.wind_speed", new, "in", "force", "2026-11-21", "07:36Z", "457", "0.761", "0"],
    ]


def test_an_edit_that_is_not_in_force_yet_shows(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path.write_text(text(0.77, "458"))
    rows = table(path, capsys)
    assert [row[2:4] for row in rows[2:]] == [["until", "reload"], ["from", "reload"]]
    assert rows[3][4:] == ["458", "0.77", "0"]
    # The old cup again: the same record, ended and to come.
    path.write_text(text(0.765, "456"))
    rows = table(path, capsys)
    assert [(row[1], row[2]) for row in rows[1:]] == [
        (rows[1][1], "ended"),
        (rows[2][1], "until"),
        (rows[1][1], "from"),
    ]


def test_json_has_the_records_as_they_are_in_kafka(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["calibrations", "-c", str(path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [each.pop("state") for each in answer] == ["ended", "in force"]
    assert [parse_channel(json.dumps(each).encode()) for each in answer] == [
        each.record for each in standing(read_history(path.parent / "outbox.db.channels"), ())
    ]


def test_without_a_history_that_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "gateway.toml"
    path.write_text(text(0.765, "456"))
    assert cli.main(["calibrations", "-c", str(path)]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"no history yet: the daemon writes {tmp_path / 'outbox.db.channels'}")
    assert "from reload" in out


def test_what_cannot_be_read(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (path.parent / "outbox.db.channels").write_text("{")
    assert cli.main(["calibrations", "-c", str(path)]) == 1
    assert "outbox.db.channels: Input data was truncated" in capsys.readouterr().err
    path.write_text("")
    assert cli.main(["calibrations", "-c", str(path)]) == 1
    assert "is empty: fieldgate init writes a file to begin with" in capsys.readouterr().err
