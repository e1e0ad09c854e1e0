"""An analyst's day from the wheel alone: an empty environment, no Java, no clone, the page's own commands."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from gateway.cli import COMMANDS
from tests.support.fleet_lake import write_fleet
from tests.support.notebooks import code_of

PROJECT: Final = Path(__file__).parents[2]
PAGE: Final = (PROJECT / "docs" / "analyse.md").read_text(encoding="utf-8")
CUP: Final = "cup-50m-a.wind_speed"
Call = Callable[..., str]

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def call(tmp_path_factory: pytest.TempPathFactory, full: bool) -> Call:
    """Runs a program at an analyst's desk, which has the wheel, a lake and Python; what it printed."""
    if not full:
        pytest.skip("only with --full: it downloads 200 MB")
    desk = tmp_path_factory.mktemp("desk")
    subprocess.run(["make", "wheel"], cwd=PROJECT, check=True)
    (wheel,) = (PROJECT / "dist").glob("fieldgate-*.whl")
    shutil.copy(wheel, desk)
    write_fleet(desk / "lake", 7, 3, end=datetime(2026, 5, 30, tzinfo=UTC))
    (desk / "bin").mkdir()
    (desk / "bin" / "python3").symlink_to(getattr(sys, "_base_executable", sys.executable))
    ours = ("JAVA_HOME", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PATH")
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    environment |= {"PATH": f"{desk / 'bin'}", "MPLBACKEND": "Agg"}

    def run(*words: str, text: str = "") -> str:
        done = subprocess.run(
            words, cwd=desk, env=environment, input=text, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run


@pytest.fixture(scope="module")
def first_number(call: Call) -> tuple[str, float]:
    """What the page's three commands print, and how many seconds they took."""
    (commands,) = re.findall(r"^```sh\n(python3 -m venv.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (lines,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert commands.count("\n") == 3
    begun = time.monotonic()
    return call("/bin/bash", "-ec", commands, text=lines), time.monotonic() - begun


def test_three_commands_lead_to_the_first_number_within_five_minutes(
    call: Call, first_number: tuple[str, float]
) -> None:
    printed, seconds = first_number
    ask = f"SELECT avg(avg) AS mean FROM statistics WHERE gateway = 'mast-07' AND channel = '{CUP}'"  # noqa: S608
    ((mean,),) = (
        [*row.values()] for row in json.loads(call("analyst/bin/fieldgate", "query", "--json", ask))
    )
    shown = re.search(rf"^{re.escape(CUP)}_avg +(\S+)$", printed, re.MULTILINE)
    assert shown is not None, printed
    assert float(shown[1]) == pytest.approx(mean, abs=1e-6)
    assert seconds < 300


@pytest.mark.usefixtures("first_number")
def test_each_command_has_its_help_there(call: Call) -> None:
    for name in COMMANDS:
        assert call("analyst/bin/fieldgate", *name.split(), "--help").startswith("usage: fieldgate")


@pytest.mark.usefixtures("first_number")
def test_the_package_is_typed_and_gives_polars_frames(call: Call) -> None:
    call("analyst/bin/pip", "install", "--quiet", "polars", "mypy", "pandas-stubs")
    program = (
        "import fieldgate\n"
        "rows = fieldgate.open('lake').statistics('mast-07')\n"
        "print(rows.to_polars().select('avg').mean().item() == rows.to_pandas().avg.mean())\n"
    )
    assert call("analyst/bin/python", "-c", program) == "True\n"
    call("analyst/bin/mypy", "--strict", "-c", program)


@pytest.mark.usefixtures("first_number")
def test_the_notebooks_run_and_agree_with_brightwind(call: Call) -> None:
    call("analyst/bin/pip", "install", "--quiet", "matplotlib", "pvlib", "brightwind==2.7.0")
    end = "\nimport json\nprint(json.dumps({name: float(each) for name, each in differences.items()}))\n"
    printed = call("analyst/bin/python", "-c", code_of("wind.ipynb") + end)
    differences = json.loads(printed.splitlines()[-1].rpartition("\x1b[2K")[2])
    assert set(differences) == {"rose", "shear", "turbulence"}
    assert max(differences.values()) < 1e-12
    call("analyst/bin/python", "-c", code_of("solar.ipynb"))
