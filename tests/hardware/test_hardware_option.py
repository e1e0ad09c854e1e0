"""``--hardware`` runs the checks on what a config describes, and fails where it isn't there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from drivers.conformance import ON_HARDWARE

ROOT = Path(__file__).parents[2]
MAST = """
[gateway]
id = "bench"
latitude = 27.7
longitude = 85.5
[board]
kind = "{board}"
{more}
[[sensor]]
name = "cup"
driver = "hall-anemometer"
pin = 17
slope = 0.765
offset = 0.35
[[sensor]]
name = "gps"
driver = "gpsd"
port = 1
"""


def run(path: Path, board: str, more: str = "") -> str:
    path.write_text(MAST.format(board=board, more=more))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--hardware", str(path)]
    done = subprocess.run(
        [*command, "tests/hardware/test_hardware.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.stdout


def test_each_sensor_of_the_config_gets_each_check(tmp_path: Path) -> None:
    output = run(tmp_path / "gateway.toml", "simulated", 'speed = 1000000\nstart = "2026-03-01T00:00:00Z"')
    assert re.search(rf"^{2 * len(ON_HARDWARE)} passed", output, re.MULTILINE), output


@pytest.mark.skipif(Path("/sys/firmware/devicetree/base/model").exists(), reason="this is a board with pins")
def test_what_is_not_wired_fails(tmp_path: Path) -> None:
    output = run(tmp_path / "gateway.toml", "raspberry-pi")
    failed = re.findall(r"^FAILED \S+\[(\S+)\]", output, re.MULTILINE)
    assert sorted(name for name in failed if name.endswith("-reads_answer_for_every_channel")) == [
        "cup-reads_answer_for_every_channel",
        "gps-reads_answer_for_every_channel",
    ], output
