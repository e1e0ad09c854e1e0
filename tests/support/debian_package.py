"""Builds the Debian package of these sources, as ``make deb`` does but quicker and larger."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
DEBIAN: Final = ROOT / "systemd" / "debian"
EPOCH: Final = 1_763_700_000
# The build's modules: scripts beside each other, in no package.
sys.path.append(str(DEBIAN))


def build(
    output: Path, *arguments: str, epoch: int = EPOCH, timeout_s: float = 280
) -> subprocess.CompletedProcess[str]:
    """Run the build; the caller judges how it ended."""
    return subprocess.run(
        [sys.executable, str(DEBIAN / "build.py"), "--quick", "--output", str(output), *arguments],
        env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def native_release() -> str:
    """Returns the release whose Python runs here, as /usr/bin/python3 or as the tests' own."""
    from targets import RELEASES

    for python in ("/usr/bin/python3", sys.executable):
        if not Path(python).exists():
            continue
        version = subprocess.run([python, "-V"], capture_output=True, text=True, check=True).stdout
        for name, each in RELEASES.items():
            if version.startswith(f"Python {each.python}."):
                return name
    return "bookworm"
