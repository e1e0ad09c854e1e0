"""What an installed gateway has in its file system, as one archive: the code, its packages, the unit.

The packages are the lock's versions, as wheels for the guest's Python; the guest has no network.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).resolve().parents[2]
_PYTHON: Final = "3.13"
_GLIBC: Final = ("manylinux2014_x86_64", "manylinux_2_28_x86_64")
_LIBRARY: Final = "usr/lib/fieldgate"

_PROGRAM: Final = f"""\
#!/bin/sh
PYTHONPATH=/{_LIBRARY} exec /usr/bin/python3 -P -m gateway.cli "$@"
"""

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

INSTALL: Final = f"""
set -e
tar -C / --no-same-owner -xf /opt/fieldgate.tar
systemd-sysusers
systemd-tmpfiles --create
# With ProtectSystem=strict the daemon can't keep bytecode by itself.
python3 -m compileall -q -j 2 /{_LIBRARY} || true
systemctl daemon-reload
systemctl restart mosquitto
systemctl enable fieldgate
sync
"""


def archive(directory: Path) -> Path:
    """Make the archive in an empty directory; unpacked at / and followed by INSTALL it is an installation."""
    tree = directory / "tree"
    library = tree / _LIBRARY
    library.mkdir(parents=True)
    _packages(library, directory / "constraints.txt")
    for name in ("gateway", "drivers", "buffer", "cloud"):
        shutil.copytree(_ROOT / name, library / name, ignore=shutil.ignore_patterns("__pycache__"))
    units = {
        "fieldgate.service": "usr/lib/systemd/system/fieldgate.service",
        "fieldgate.sysusers": "usr/lib/sysusers.d/fieldgate.conf",
        "fieldgate.tmpfiles": "usr/lib/tmpfiles.d/fieldgate.conf",
    }
    for name, place in units.items():
        (tree / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(_ROOT / "systemd" / name, tree / place)
    for place, text in {"usr/bin/fieldgate": _PROGRAM, "etc/mosquitto/mosquitto.conf": _MOSQUITTO}.items():
        (tree / place).parent.mkdir(parents=True, exist_ok=True)
        (tree / place).write_text(text)
    (tree / "usr/bin/fieldgate").chmod(0o755)
    packed = directory / "fieldgate.tar"
    with tarfile.open(packed, "w") as file:
        file.add(tree, ".", filter=_as_root)
    return packed


def _as_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    if member.isdir():
        member.mode = 0o755
    return member


def _packages(library: Path, constraints: Path) -> None:
    lock = (_ROOT / "requirements.lock").read_text()
    constraints.write_text("\n".join(re.findall(r"^[a-z0-9-]+==[^ ;]+", lock, re.MULTILINE)))
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]
    # The sensors' libraries, which the simulated board uses too; what has a condition is for a real Pi.
    sensors = [each for each in project["optional-dependencies"]["pi"] if ";" not in each]
    wanted = [*project["dependencies"], *sensors]
    platforms = [word for name in _GLIBC for word in ("--platform", name)]
    command = [
        sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile",
        "--target", str(library), "--constraint", str(constraints),
        "--only-binary", ":all:", "--python-version", _PYTHON, "--implementation", "cp", *platforms, *wanted,
    ]  # fmt: skip
    subprocess.run(command, check=True, timeout=300)
    for useless in ("bin", *(path.name for path in library.glob("pip*"))):
        shutil.rmtree(library / useless)
