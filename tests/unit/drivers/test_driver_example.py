"""The worked example of docs/drivers.md: two files and an entry point, run as their author would."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from drivers.conformance import CHECKS
from drivers.registry import PLUG_INS, driver_type
from gateway.config import check
from tests.unit.drivers.plug_ins import Packages

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "docs" / "examples" / "driver"
CONFIG = """\
[gateway]
id = "mast-07"
[board]
kind = "simulated"
[[sensor]]
name = "air"
driver = "sht31"
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package as pip would leave it."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    points = "\n".join(f"{name} = {value}" for name, value in project["entry-points"][PLUG_INS].items())
    module = (EXAMPLE / "fieldgate_sht31.py").read_text()
    return Packages(tmp_path, monkeypatch).install(project["name"], points, fieldgate_sht31=module)


def test_its_own_tests_pass(site: Path, tmp_path: Path) -> None:
    shutil.copy(EXAMPLE / "test_fieldgate_sht31.py", tmp_path)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            *["-q", "-W", "error", "-p", "no:cacheprovider", "test_fieldgate_sht31.py"],
        ],
        env={**os.environ, "PYTHONPATH": f"{site}:{ROOT}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    [passed] = re.findall(r"^(\d+) passed in", done.stdout, re.MULTILINE) or [done.stdout + done.stderr]
    assert int(passed) == len(CHECKS) + 4


def test_it_needs_nothing_else_to_be_configured_and_read(site: Path, tmp_path: Path) -> None:
    path = tmp_path / "gateway.toml"
    path.write_text(CONFIG)
    config, problems = check(path)
    assert problems == ()
    assert config is not None
    path.write_text(CONFIG + "adress = 0x45\n")
    assert [str(each) for each in check(path)[1]] == [
        f'{path}:8: sensor["air"].adress: is not a known key of sht31 (did you mean "address"?)'
    ]
    path.write_text(CONFIG + CONFIG[CONFIG.index("[[") :].replace('"air"', '"twin"'))
    assert [str(each) for each in check(path)[1]] == [
        f'{path}:8: sensor["twin"].address: I2C address 0x44 is "air"\'s (line 5) already: each needs its own'
    ]
    assert driver_type("sht31").make.__module__ == "fieldgate_sht31"


def test_the_documentation_shows_the_files_as_they_are() -> None:
    text = (ROOT / "docs" / "drivers.md").read_text()
    for name in ("pyproject.toml", "fieldgate_sht31.py", "test_fieldgate_sht31.py"):
        assert f"examples/driver/{name}" in text
    shown = re.findall(r"^```(?:python|toml)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    files = "".join(path.read_text() for path in EXAMPLE.iterdir() if path.is_file())
    parts = [part for part in shown if "sht31" in part.lower() and "[[sensor]]" not in part]
    assert parts
    for part in parts:
        assert part in files, part
