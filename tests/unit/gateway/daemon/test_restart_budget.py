"""How often a daemon whose drivers hang may restart itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.daemon.gateway import RestartBudget

HOUR_S = 3600.0


class Uptime:
    def __init__(self) -> None:
        self.seconds = 50.0

    def boot_ns(self) -> int:
        return round(self.seconds * 1e9)


def test_each_restart_makes_the_next_one_wait_longer(tmp_path: Path) -> None:
    uptime = Uptime()
    waits = []
    for _ in range(8):
        # Each a new process.
        restarts = RestartBudget(tmp_path / "r", "boot-1", uptime.boot_ns)
        assert restarts.wait_s() == 0
        assert restarts.take()
        again = RestartBudget(tmp_path / "r", "boot-1", uptime.boot_ns)
        waits.append(again.wait_s() / HOUR_S)
        uptime.seconds += again.wait_s() - 1
        assert not again.take()
        assert again.wait_s() == pytest.approx(1)
        uptime.seconds += 1
    assert waits == [1, 2, 4, 8, 16, 24, 24, 24]


def test_a_hang_that_stayed_away_is_forgotten(tmp_path: Path) -> None:
    uptime = Uptime()
    for later_h, wait_h in ((0, 1), (1, 2), (4, 4), (8.1, 1), (2, 2)):
        uptime.seconds += later_h * HOUR_S
        restarts = RestartBudget(tmp_path / "r", "boot-1", uptime.boot_ns)
        assert restarts.take()
        assert restarts.wait_s() == wait_h * HOUR_S


def test_a_reboot_begins_again(tmp_path: Path) -> None:
    uptime = Uptime()
    assert RestartBudget(tmp_path / "r", "boot-1", uptime.boot_ns).take()
    after = RestartBudget(tmp_path / "r", "boot-2", uptime.boot_ns)
    assert after.take()
    assert after.wait_s() == HOUR_S


def test_what_cannot_be_recorded_is_no_restart(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It would be repeated by the next process, which has no record of it."""
    uptime = Uptime()
    restarts = RestartBudget(tmp_path / "missing" / "r", "boot-1", uptime.boot_ns)
    assert not restarts.take()
    assert not restarts.take()
    assert caplog.text.count("event=state.not_written") == 1
    uptime.seconds += HOUR_S
    assert restarts.wait_s() == 0


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "\0" * 60, '{"boot": "boot-1", "at_ns": "x", "restarts": 1}',
     '{"boot": "boot-1", "at_ns": 1, "restarts": 0}', '{"boot": "boot-1"}'],
)  # fmt: skip
def test_a_damaged_file_is_none(tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "r"
    path.write_text(text)
    restarts = RestartBudget(path, "boot-1", Uptime().boot_ns)
    assert "event=state.unreadable" in caplog.text
    assert restarts.take()
    assert restarts.wait_s() == HOUR_S
