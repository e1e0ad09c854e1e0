"""A gateway in the guest that tests can wedge, on a file system that tests can freeze."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest

from tests.support.config import sensor
from tests.support.servers import unique_name
from tests.vm.guest_mast import Ports, guest_config
from tests.vm.machine import Machine

WATCHDOG_S: Final = 30
"""Instead of the unit's minute."""

_FACTS: Final = (
    "mkdir -p $d/fieldgate_wedges-1.0.dist-info; cd $d/fieldgate_wedges-1.0.dist-info;"
    " printf 'Metadata-Version: 2.1\\nName: fieldgate-wedges\\nVersion: 1.0\\n' > METADATA;"
    " printf '[fieldgate.drivers]\\nsteady = fieldgate_wedges\\n' > entry_points.txt"
)
_INSTALL: Final = f"""
set -e
d=/usr/lib/fieldgate
cp /opt/fieldgate_wedges.py $d/
{_FACTS}
mkdir -p /run/fieldgate-wedges /run/systemd/system/fieldgate.service.d
printf '[Service]\\nWatchdogSec={WATCHDOG_S}s\\n' > /run/systemd/system/fieldgate.service.d/test.conf
systemctl daemon-reload
"""
_SLOW_DISK: Final = """
set -e
m=/var/lib/fieldgate/slow
if ! mountpoint -q $m; then
  mkdir -p $m
  gunzip -c /opt/slow.img.gz > /srv/slow.img
  mount -o loop /srv/slow.img $m
  chown fieldgate:fieldgate $m
fi
"""
SLOW: Final = "/var/lib/fieldgate/slow"


def _file_system(directory: Path) -> Path:
    """An empty file system of 96 MiB, compressed; the guest has no mkfs."""
    program = shutil.which("mkfs.ext4", path=os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin")))
    if program is None:
        pytest.skip("needs mkfs.ext4 (e2fsprogs)")
    image = directory / "slow.img"
    with image.open("wb") as file:
        file.truncate(96 << 20)
    subprocess.run((program, "-q", str(image)), check=True, timeout=60)
    packed = directory / "slow.img.gz"
    packed.write_bytes(gzip.compress(image.read_bytes(), 6))
    return packed


class Guest:
    """The gateway, and what the tests do to it."""

    def __init__(self, machine: Machine, ports: Ports) -> None:
        self.machine = machine
        self._ports = ports
        self.id = ""

    def install(self) -> None:
        """Put the driver with the wedges into the guest."""
        self.machine.push(Path(__file__).parent / "wedges" / "fieldgate_wedges.py", "/opt/")
        self.machine.run(_INSTALL)

    def configure(self, *, slow_disk: bool = False, trust: str = "always") -> None:
        """A gateway with a new id and outbox, started."""
        self.id = unique_name("watched")
        if slow_disk:
            with TemporaryDirectory() as directory:
                self.machine.push(_file_system(Path(directory)), "/opt/")
            self.machine.run(_SLOW_DISK)
        outbox = f"{SLOW if slow_disk else '/var/lib/fieldgate'}/{self.id}.db"
        config = guest_config(
            self.id,
            sensor("fine", "steady", interval_s=1),
            sensor("hangs", "steady", interval_s=1, hangs=True),
            outbox={"path": outbox, "min_free_disk": "8MiB", "max_bytes": "48MiB"},
            clock={"trust": trust},
        )
        self.machine.run(
            f"set -e; rm -f /run/fieldgate-wedges/*; cat > /etc/fieldgate/gateway.toml <<'END'\n{config}END\n"
            "systemd-tmpfiles --create 2>&1; fieldgate check 1>&2;"
            " systemctl reset-failed fieldgate; systemctl restart fieldgate; sync"
        )

    def status(self) -> dict[str, Any]:
        """The daemon's own account of itself; empty while it doesn't answer."""
        status = self._ports.status_now()
        return status if status.get("gateway") == self.id else {}

    def sampled(self) -> int:
        """Readings of this run."""
        return int(self.status().get("sampled", 0))

    def wedge(self, part: str) -> None:
        """From now on."""
        self.machine.run(f"touch /run/fieldgate-wedges/{part}")

    def release(self) -> None:
        """Whatever is wedged."""
        self.machine.run("rm -f /run/fieldgate-wedges/*")

    def unit(self, *properties: str) -> dict[str, str]:
        """Properties of the service, as systemd has them."""
        wanted = " ".join(f"-p {name}" for name in properties)
        lines = self.machine.run(f"systemctl show fieldgate {wanted}").splitlines()
        return dict(line.split("=", 1) for line in lines)

    def journal(self, *, this_start: bool = False) -> str:
        """What the service logged in this boot, or since it was started last."""
        start = self.unit("InvocationID")["InvocationID"] if this_start else None
        which = "-u fieldgate" if start is None else f"_SYSTEMD_INVOCATION_ID={start}"
        return self.machine.run(f"journalctl -b {which} -o cat")
