"""The units, as systemd itself judges them without running them."""

from __future__ import annotations

import configparser
import shutil
import subprocess
from pathlib import Path

import pytest

from gateway.cli import parser_of

_SYSTEMD = Path(__file__).resolve().parents[3] / "systemd"
_UNITS = sorted(path.name for path in _SYSTEMD.glob("fieldgate*.*") if path.suffix in (".service", ".timer"))
_ANALYZE = shutil.which("systemd-analyze")


def lines(name: str, key: str) -> list[str]:
    text = (_SYSTEMD / name).read_text()
    return [line.partition("=")[2] for line in text.splitlines() if line.startswith(f"{key}=")]


@pytest.mark.skipif(_ANALYZE is None, reason="needs systemd-analyze")
def test_the_daemons_exposure_is_at_most_2() -> None:
    judged = subprocess.run(
        [
            str(_ANALYZE), "security", "--offline=true", "--no-pager", "--threshold=20",
            str(_SYSTEMD / "fieldgate.service"),
        ],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert judged.returncode == 0, judged.stdout + judged.stderr


@pytest.mark.skipif(_ANALYZE is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("unit", _UNITS)
def test_systemd_accepts_every_key(unit: str, tmp_path: Path) -> None:
    program = tmp_path / "fieldgate"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for path in _SYSTEMD.glob("fieldgate*.*"):
        text = path.read_text().replace("/usr/bin/fieldgate", str(program))
        (tmp_path / path.name).write_text(text)
    judged = subprocess.run(
        [str(_ANALYZE), "verify", "--man=no", "--recursive-errors=no", str(tmp_path / unit)],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert judged.stderr == ""
    assert judged.returncode == 0


@pytest.mark.parametrize("unit", [name for name in _UNITS if name.endswith(".service")])
def test_each_command_is_one(unit: str) -> None:
    (start,) = lines(unit, "ExecStart")
    program, *words = start.split()
    assert program == "/usr/bin/fieldgate"
    parser_of(words[0]).parse_args(words[1:])


@pytest.mark.parametrize("unit", _UNITS)
def test_nothing_waits_for_network_time_or_broker(unit: str) -> None:
    for key in ("After", "Requires", "BindsTo"):
        for value in lines(unit, key):
            assert set(value.split()) <= {"local-fs.target"}
    # What is wanted is started beside it and not waited for.
    for value in lines(unit, "Wants"):
        assert set(value.split()) <= {"fieldgate-report.timer"}


def test_the_hardening_notes_line_by_line_what_it_breaks() -> None:
    text = (_SYSTEMD / "fieldgate.service").read_text().partition("# Hardening.")[2].partition("[Install]")[0]
    uncommented = []
    before = "#"
    for line in text.splitlines()[1:]:
        if line and not line.startswith("#") and not before:
            uncommented.append(line)
        before = line
    assert uncommented == []


def test_it_never_gives_up() -> None:
    assert lines("fieldgate.service", "StartLimitIntervalSec") == ["0"]
    assert lines("fieldgate.service", "Restart") == ["always"]


def test_the_hardware_watchdog_is_what_the_pi_can() -> None:
    drop_in = configparser.ConfigParser()
    drop_in.read(_SYSTEMD / "system.conf.d/fieldgate-watchdog.conf")
    assert drop_in["Manager"]["RuntimeWatchdogSec"] == "15s"
