"""The Debian package, built for the guest, and a guest that lacks nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).resolve().parents[2]

# As the demo's private Mosquitto, and for the witness on the other NIC.
_MOSQUITTO: Final = """\
listener 1883 0.0.0.0
allow_anonymous true
persistence false
max_packet_size 8388608
max_inflight_messages 1000
max_queued_messages 100000
max_queued_bytes 67108864
log_dest stderr
"""

OPEN_MOSQUITTO: Final = f"""
set -e
cat > /etc/mosquitto/mosquitto.conf <<'END'
{_MOSQUITTO}END
systemctl restart mosquitto
sync
"""
"""Lets the witness outside receive what the gateway publishes."""


def build(directory: Path, epoch: int | None = None, *, quick: bool = False) -> Path:
    """Build the package for the guest; with another ``epoch`` (seconds since 1970) it is another version.

    ``quick`` ones are larger.
    """
    environment = dict(os.environ)
    if epoch is not None:
        environment["SOURCE_DATE_EPOCH"] = str(epoch)
    subprocess.run(
        [
            sys.executable, str(_ROOT / "systemd/debian/build.py"),
            "--release", "trixie", "--arch", "amd64", "--output", str(directory),
            *(["--quick"] if quick else []),
        ],
        env=environment, stdout=subprocess.DEVNULL, check=True, timeout=900,
    )  # fmt: skip
    [package] = directory.glob("*.deb")
    return package


def variant(package: Path, number: int, files: Mapping[str, str]) -> Path:
    """A newer version of a package in which some files end with other text; beside it."""
    version = package.name.split("_")[1].replace("+deb", f".{number}+deb")
    changed = package.with_name(f"fieldgate_{version}_amd64.deb")
    with tempfile.TemporaryDirectory() as top:
        subprocess.run(["dpkg-deb", "-R", str(package), top], check=True)
        control = Path(top, "DEBIAN/control")
        lines = control.read_text(encoding="utf-8").splitlines()
        at = next(at for at, line in enumerate(lines) if line.startswith("Version: "))
        lines[at] = f"Version: {version}"
        control.write_text("\n".join(lines) + "\n", encoding="utf-8")
        for path, text in files.items():
            with Path(top, path).open("a", encoding="utf-8") as file:
                file.write(text)
        subprocess.run(
            ["dpkg-deb", "-Zgzip", "-z1", "--root-owner-group", "--build", top, str(changed)],
            stdout=subprocess.DEVNULL, check=True,
        )  # fmt: skip
    return changed


def install(package: str) -> str:
    """Install a package that was pushed, as an installer does; the script can be repeated."""
    return f"DEBIAN_FRONTEND=noninteractive apt-get install -y {package} 2>&1"


def with_dependencies(tool: Path, directory: Path) -> Path:
    """A copy of the machine's program whose recipe has the packages that ours depends on."""
    copy = directory / tool.name
    shutil.copy2(tool, copy)
    recipe = tool.with_name("recipe.toml").read_text(encoding="utf-8")
    assert recipe.count("python3-venv") == 1
    (directory / "recipe.toml").write_text(recipe.replace("python3-venv", "python3-venv python3-systemd"))
    return copy
