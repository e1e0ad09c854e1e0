"""An uplink that stays away: by checks every quarter of an hour, over reboots, for a month and longer."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import asdict

from gateway import cli
from gateway.commands.uplink import REBOOT, Action, Machine, Seen, State, check_uplink, decide
from gateway.config import load
from gateway.config.model import UplinkConfig
from gateway.status.client import NoStatus
from gateway.status.status import Status
from tests.support.config import config_text, cup
from tests.support.disks import full_disk
from tests.support.status import status

CHECK_S = 900.0
HOUR_S = 3600.0


@dataclass
class Mast:
    """A mast whose Kafka answers or doesn't; when (hours) what was done."""

    rules: UplinkConfig
    state: State = field(default_factory=State)
    hours: float = 0.0
    boot: int = 1
    boot_s: float = 0.0
    confirmed_s: float | None = None
    now_s: float = 0.0
    done: list[tuple[float, Action]] = field(default_factory=list)

    def live(self, hours: float, *, online: bool = False, answers: bool = True) -> None:
        """Let time pass; what comes back from Kafka comes just before a check."""
        for _ in range(round(hours * HOUR_S / CHECK_S)):
            self.now_s += CHECK_S
            self.boot_s += CHECK_S
            if online:
                self.confirmed_s = self.now_s - 2.0
            ago_s = None if self.confirmed_s is None else self.now_s - self.confirmed_s
            seen = Seen(f"boot-{self.boot}", self.boot_s, answers, ago_s if answers else None)
            self.state, action = decide(self.state, seen, self.rules)
            if action is not None:
                self.done.append((self.now_s / HOUR_S, action))
            if action == "reboot":
                self.restart()

    def restart(self) -> None:
        """Another boot, and a daemon without memory."""
        self.boot += 1
        self.boot_s, self.confirmed_s = 0.0, None


def both() -> UplinkConfig:
    return UplinkConfig(reset_after_h=6.0, reboot_after_h=24.0)


def test_the_modem_first_then_the_machine() -> None:
    mast = Mast(both())
    mast.live(1, online=True)
    mast.live(31)
    # The outage is two seconds older than the hour: what is due then is done at that check.
    assert mast.done == [(7.0, "reset"), (13.0, "reset"), (25.0, "reboot"), (25.25, "reset")]


def test_a_month_without_coverage() -> None:
    mast = Mast(both())
    mast.live(1, online=True)
    mast.live(30 * 24)
    reboots = [hour - 1 for hour, action in mast.done if action == "reboot"]
    assert reboots == [24.0, 48.0, 96.0, 192.0, 360.0, 528.0, 696.0]
    resets = [hour for hour, action in mast.done if action == "reset"]
    assert len(resets) == 31
    assert min(after - before for before, after in pairwise(resets[3:])) >= 24.0


def test_a_confirmation_from_kafka_starts_from_zero() -> None:
    mast = Mast(both())
    mast.live(1, online=True)
    mast.live(13)
    mast.live(0.25, online=True)
    mast.done.clear()
    mast.live(5.75)
    assert mast.done == []
    mast.live(0.25)
    assert [action for _, action in mast.done] == ["reset"]
    assert mast.state.resets == 1


def test_a_confirmation_between_two_checks_counts_too() -> None:
    mast = Mast(both())
    mast.live(1, online=True)
    mast.live(5)
    mast.live(0.5, online=True, answers=False)
    mast.live(5.25)
    assert mast.done == []
    assert mast.state.away_s == pytest.approx(5.25 * HOUR_S, abs=10)


def test_a_daemon_that_does_not_answer_counts_for_nothing() -> None:
    mast = Mast(both())
    mast.live(1, online=True)
    mast.live(1000, answers=False)
    assert mast.done == []
    mast.restart()
    mast.live(5.75)
    assert mast.done == []


def test_hours_go_on_over_boots_and_power_that_is_off_does_not_count() -> None:
    mast = Mast(both())
    mast.live(1, online=True)
    mast.live(5)
    mast.now_s += 1000 * HOUR_S
    mast.restart()
    mast.live(0.75)
    assert mast.done == []
    mast.live(0.25)
    assert [action for _, action in mast.done] == ["reset"]


@given(
    st.lists(st.tuples(st.sampled_from(["on", "off", "dead", "boot"]), st.integers(1, 60)), max_size=10),
    st.integers(1, 20), st.integers(2, 60),
)  # fmt: skip
def test_never_more_often_than_configured(course: list[tuple[str, int]], reset_h: int, longer_h: int) -> None:
    mast = Mast(UplinkConfig(reset_after_h=reset_h, reboot_after_h=reset_h + longer_h))
    for what, hours in course:
        if what == "boot":
            mast.restart()
        mast.live(hours, online=what == "on", answers=what != "dead")
    for action, least_h in (("reset", reset_h), ("reboot", reset_h + longer_h)):
        when = [hour for hour, each in mast.done if each == action]
        assert all(after - before >= least_h for before, after in pairwise(when))


CONFIG = config_text(cup())
RULES = (
    '[uplink]\nreset_after_h = 1\nreset_command = ["/usr/bin/reset-modem", "--hard"]\nreboot_after_h = 2\n'
)


@dataclass
class Around:
    """The machine and the daemon as the command finds them."""

    boot_s: float = 100_000.0
    status: Status | None = field(default_factory=lambda: status(kafka_confirmed_ago_s=None))
    executed: list[Sequence[str]] = field(default_factory=list)
    fails: bool = False

    def fetch(self, listen: str) -> Status:
        assert listen == "127.0.0.1:8321"
        if self.status is None:
            raise NoStatus("no daemon answers")
        return self.status

    def execute(self, command: Sequence[str]) -> None:
        self.executed.append(command)
        if self.fails:
            raise subprocess.CalledProcessError(3, list(command))

    def machine(self) -> Machine:
        return Machine(lambda: "boot", lambda: self.boot_s, self.fetch, self.execute)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "gateway.toml").write_text(CONFIG + RULES)
    return tmp_path


def call(place: Path, around: Around, *, dry_run: bool = False) -> int:
    return check_uplink(load(place / "gateway.toml"), place / "state.json", around.machine(), dry_run=dry_run)


def away(place: Path, hours: float) -> None:
    (place / "state.json").write_text(
        json.dumps(asdict(State("boot", 100_000.0 - CHECK_S, hours * HOUR_S - CHECK_S)))
    )


def notices(place: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted((place / "outbox.db.notices").glob("*.json"))]


def test_the_command_is_run_and_reported(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    away(place, 1.0)
    around = Around()
    assert call(place, around) == 0
    assert around.executed == [("/usr/bin/reset-modem", "--hard")]
    (event,) = notices(place)
    assert (event["event"], event["away_h"], event["resets"], event["reboots"]) == ("uplink-reset", 1.0, 1, 0)
    assert "Kafka away for 1.0 h; in this outage 1 resets, 0 reboots; now: reset" in capsys.readouterr().out
    assert call(place, around) == 0
    assert len(around.executed) == 1


def test_a_command_that_fails_is_not_repeated_at_once(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    away(place, 1.0)
    around = Around(fails=True)
    assert call(place, around) == 1
    assert "/usr/bin/reset-modem --hard: Command" in capsys.readouterr().err
    assert call(place, around) == 0
    assert len(around.executed) == 1


def test_a_reboot_is_remembered_before_it_is_done(place: Path) -> None:
    away(place, 2.0)
    remembered: list[dict[str, Any]] = []
    around = Around()
    machine = around.machine()
    spying = Machine(
        machine.boot, machine.boot_s, machine.status,
        lambda command: remembered.append({**json.loads((place / "state.json").read_text()), "ran": command}),
    )  # fmt: skip
    assert check_uplink(load(place / "gateway.toml"), place / "state.json", spying, dry_run=False) == 0
    (before,) = remembered
    assert (before["ran"], before["reboots"], before["reboot_at_s"]) == (REBOOT, 1, 2 * HOUR_S)
    assert notices(place)[0]["event"] == "uplink-reboot"


def test_what_can_not_be_remembered_is_not_done(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    away(place, 1.0)
    around = Around()
    with full_disk():
        assert call(place, around) == 1
    assert around.executed == []
    assert "nothing is done" in capsys.readouterr().err


def test_no_reboot_while_readings_are_in_memory_only(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    away(place, 2.0)
    around = Around(status=status(kafka_confirmed_ago_s=None, outbox_memory_records=5))
    assert call(place, around) == 0
    assert around.executed == []
    assert "no reboot: readings are in memory only" in capsys.readouterr().err
    around.status = status(kafka_confirmed_ago_s=None)
    assert call(place, around) == 0
    assert around.executed == [REBOOT]


def test_a_dry_run_changes_nothing(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    away(place, 1.0)
    before = (place / "state.json").read_text()
    around = Around()
    assert call(place, around, dry_run=True) == 0
    assert "now: reset" in capsys.readouterr().out
    assert (around.executed, (place / "state.json").read_text()) == ([], before)


def test_off_by_default(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "gateway.toml").write_text(CONFIG)
    away(place, 1000.0)
    around = Around()
    assert call(place, around) == 0
    assert around.executed == []
    assert "nothing to do" in capsys.readouterr().out


def test_an_unreadable_state_counts_from_zero(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    (place / "state.json").write_bytes(bytes(40))
    around = Around()
    assert call(place, around) == 0
    assert "event=state.unreadable" in caplog.text
    assert json.loads((place / "state.json").read_text())["away_s"] == 0


def test_a_daemon_that_is_silent_is_named(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    away(place, 1.0)
    around = Around(status=None)
    assert call(place, around) == 0
    assert around.executed == []
    assert "nothing is counted: no daemon answers" in capsys.readouterr().out


def test_a_bad_config_is_refused(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "gateway.toml").write_text(CONFIG + "[uplink]\nreset_after_h = 1\n")
    config, state = place / "gateway.toml", place / "state.json"
    assert cli.main(["service", "uplink", "-c", str(config), "--state", str(state)]) == 1
    assert "uplink.reset_after_h: needs reset_command" in capsys.readouterr().err
