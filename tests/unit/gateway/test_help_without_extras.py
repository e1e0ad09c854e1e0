"""The commands where ``pip install fieldgate`` has brought what it needs itself, and no extra."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from gateway.cli import COMMANDS
from spark_jobs.platform.registry import COMMANDS as JOBS

ROOT = Path(__file__).parents[3]
NEEDY = [name for name, command in COMMANDS.items() if command.needs]
CASES = [*NEEDY, "jobs run", *(f"jobs {name}" for name in JOBS)]


def needed(own: Distribution, found: dict[str, Distribution], extra: str = "") -> dict[str, Distribution]:
    """What a distribution requires with one extra or none, by name, and what that requires."""
    for text in own.requires or ():
        requirement = Requirement(text)
        if requirement.name not in found and (
            not (at := requirement.marker) or at.evaluate({"extra": extra})
        ):
            found[requirement.name] = distribution(requirement.name)
            needed(found[requirement.name], found)
    return found


def linked(place: Path, extra: str = "") -> dict[str, str]:
    """Links to the files of those distributions alone."""
    for each in needed(distribution("fieldgate"), {}, extra).values():
        for top in {file.parts[0] for file in each.files or () if file.parts[0] != ".."}:
            link = place / top
            if not link.exists():
                link.symlink_to(Path(str(each.locate_file(top))))
    return {"PYTHONPATH": f"{place}:{ROOT}"}


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return linked(tmp_path_factory.mktemp("core"))


def called(command: str, environment: dict[str, str], *more: str) -> subprocess.CompletedProcess[str]:
    # -S: the packages of the interpreter that runs the tests aren't seen.
    program = [sys.executable, "-S", "-m", "gateway.cli", *command.split(), *more]
    return subprocess.run(program, capture_output=True, text=True, env=environment, check=False, timeout=100)


@pytest.mark.parametrize("command", CASES)
def test_help_is_shown_and_what_is_missing_is_named(command: str, environment: dict[str, str]) -> None:
    remedy = COMMANDS[command.split()[0]].remedy
    done = called(command, environment, "--help")
    assert (done.returncode, done.stderr) == (0, f"fieldgate: {remedy}\n")
    usage = "usage: fieldgate jobs COMMAND" if command == "jobs" else f"usage: fieldgate {command} [-h]"
    assert done.stdout.startswith(usage)
    assert "MagicMock" not in done.stdout
    refused = called(command, environment)
    assert (refused.returncode, refused.stdout, refused.stderr) == (1, "", f"fieldgate: {remedy}\n")


@pytest.mark.parametrize("command", ["jobs", "jobs run", "dashboard", "demo"])
def test_help_is_shown_beside_one_extra_without_another(command: str, tmp_path: Path) -> None:
    done = called(command, linked(tmp_path, "analyst"), "--help")
    remedy = COMMANDS[command.split()[0]].remedy
    assert (done.returncode, done.stderr) == (0, f"fieldgate: {remedy}\n")


def test_the_other_commands_need_no_extra_for_their_help(environment: dict[str, str]) -> None:
    others = [name for name in COMMANDS if name not in NEEDY]
    program = (
        "from contextlib import suppress\nfrom gateway.cli import main\n"
        f"for name in {others}:\n    with suppress(SystemExit): main([*name.split(), '--help'])"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", program], capture_output=True, text=True, env=environment, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert [name for name in others if f"usage: fieldgate {name} " not in done.stdout] == []
