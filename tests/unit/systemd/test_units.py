"""The units, as systemd itself judges them without running them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gateway.cli import COMMANDS, parser_of
from spark_jobs.platform.settings import parse_command, parse_run

_SYSTEMD = Path(__file__).resolve().parents[3] / "systemd"
_UNITS = sorted(path.name for path in _SYSTEMD.glob("fieldgate*.*") if path.suffix in (".service", ".timer"))
_JOBS = "jobs/fieldgate-jobs@.service"
_SERVICES = ["fieldgate.service", _JOBS, "jobs/fieldgate-notify.service", "jobs/fieldgate-deliver.service"]
_ANALYZE = shutil.which("systemd-analyze")


def lines(name: str, key: str) -> list[str]:
    text = (_SYSTEMD / name).read_text()
    return [line.partition("=")[2] for line in text.splitlines() if line.startswith(f"{key}=")]


@pytest.mark.skipif(_ANALYZE is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("unit", _SERVICES)
def test_a_services_exposure_is_at_most_2(unit: str, tmp_path: Path) -> None:
    # An instance of a template.
    file = tmp_path / Path(unit).name.replace("@.", "@all.")
    file.write_text((_SYSTEMD / unit).read_text())
    judged = subprocess.run(
        [str(_ANALYZE), "security", "--offline=true", "--no-pager", "--threshold=20", str(file)],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert judged.returncode == 0, judged.stdout + judged.stderr


@pytest.mark.skipif(_ANALYZE is None, reason="needs systemd-analyze")
@pytest.mark.parametrize(
    "unit",
    [*_UNITS, "fieldgate-jobs@maintain.service",
     *(f"fieldgate-{name}" for name in ("notify.service", "deliver.service", "deliver.timer"))],
)  # fmt: skip
def test_systemd_accepts_every_key(unit: str, tmp_path: Path) -> None:
    program = tmp_path / "fieldgate"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for path in (*_SYSTEMD.glob("fieldgate*.*"), *(_SYSTEMD / "jobs").rglob("*.*")):
        if path.is_dir():
            continue
        text = path.read_text()
        text = re.sub("/usr/(?:bin/fieldgate(?:-cloud)?|libexec/fieldgate/[a-z]+)(?= )", str(program), text)
        folder = tmp_path / path.parent.name if path.suffix == ".conf" else tmp_path
        folder.mkdir(exist_ok=True)
        (folder / path.name).write_text(text)
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
    if program == "/usr/libexec/fieldgate/upgrade":
        assert f"\n{words[0]})\n" in (_SYSTEMD / "libexec/upgrade").read_text()
        return
    assert program == "/usr/bin/fieldgate"
    length = 2 if " ".join(words[:2]) in COMMANDS else 1
    parser_of(" ".join(words[:length])).parse_args(words[length:])


@pytest.mark.parametrize("unit", _UNITS)
def test_nothing_waits_for_network_time_or_broker(unit: str) -> None:
    for key in ("After", "Requires", "BindsTo"):
        for value in lines(unit, key):
            assert set(value.split()) <= {"local-fs.target"}
    # What is wanted is started beside it and not waited for, but for the repair after a power cut.
    for value in lines(unit, "Wants"):
        assert set(value.split()) <= {"fieldgate-report.timer", "fieldgate-repair.service"}


@pytest.mark.parametrize(("ran_s", "result"), [(60, "exit-code"), (5, "success")])
def test_a_crash_loop_backs_off_until_a_run_of_a_minute_or_a_stop(
    tmp_path: Path, ran_s: int, result: str
) -> None:
    state = tmp_path / "run"
    state.mkdir()
    sleep = tmp_path / "sleep"
    sleep.write_text("#!/bin/sh\necho $1\n")
    sleep.chmod(0o755)
    environment = {"RUNTIME_DIRECTORY": str(state), "PATH": f"{tmp_path}:{os.environ['PATH']}"}

    def backoff(command: str, result: str = "") -> str:
        return subprocess.run(
            [str(_SYSTEMD / "libexec/backoff"), command],
            env={**environment, "SERVICE_RESULT": result},
            capture_output=True, text=True, check=True, timeout=60,
        ).stdout  # fmt: skip

    def waited_s(ran_s: int, result: str) -> int:
        """How long a start waits, after which the daemon runs for a time."""
        shown = backoff("start")
        wait_s = int(shown.split()[-1]) if shown else 0
        begins_s = int((state / "started").read_text())
        # As if the wait and the run were over.
        (state / "started").write_text(f"{begins_s - wait_s - ran_s}\n")
        backoff("stop", result)
        return wait_s

    waits = [0, 0, 0, 0, 4, 8, 16, 32, 64, 128, 240, 240]
    assert [waited_s(3, "exit-code") for _ in waits] == waits
    assert max(waits) < 300 == int(lines("fieldgate.service", "TimeoutStartSec")[0].removesuffix("s"))
    assert waited_s(ran_s, result) == 240
    assert waited_s(3, "signal") == 0


@pytest.mark.parametrize("unit", _SERVICES)
def test_the_hardening_notes_what_it_breaks(unit: str) -> None:
    text = (_SYSTEMD / unit).read_text().partition("# Hardening.")[2].partition("[Install]")[0]
    uncommented = []
    before = "#"
    for line in text.splitlines()[1:]:
        if line and not line.startswith("#") and not before:
            uncommented.append(line)
        before = line
    assert uncommented == []


@pytest.mark.parametrize("unit", _SERVICES[:3])
def test_it_never_gives_up(unit: str) -> None:
    assert lines(unit, "StartLimitIntervalSec") == ["0"]
    assert lines(unit, "Restart") == ["always"]


@pytest.mark.parametrize(("instance", "job"), [("all", "all"), ("maintain", ""), ("alerts", "alerts")])
def test_each_instance_of_the_jobs_is_a_command(instance: str, job: str, tmp_path: Path) -> None:
    """As systemd splits it; the config is put where the unit has it."""
    config = tmp_path / "cloud.toml"
    config.write_text('[lake]\npath = "/srv/lake"\n')
    drop_in = f"jobs/fieldgate-jobs@{instance}.service.d/command.conf"
    environment = lines(_JOBS if job else drop_in, "Environment")[0].strip('"').replace("%i", instance)
    (start,) = lines(_JOBS, "ExecStart")
    program, jobs, *words = start.replace("$COMMAND", environment.removeprefix("COMMAND=")).split()
    assert (program, jobs) == ("/usr/bin/fieldgate-cloud", "jobs")
    command, *words = [word.replace("/etc/fieldgate-cloud/cloud.toml", str(config)) for word in words]
    settings = parse_run(words) if job else parse_command(command, words)[1]
    assert settings.lake == "/srv/lake"
    # The program ends by itself before systemd kills it.
    assert int(lines(_JOBS, "TimeoutStopSec")[0].removesuffix("s")) > 30
