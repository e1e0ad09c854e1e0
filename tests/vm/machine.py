"""A virtual field gateway (Debian with systemd under QEMU) that can lose its power and its uplink."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self

from tests.support.servers import eventually

_ROOT: Final = Path(__file__).resolve().parents[2]
_BOOT_S: Final = 600
"""A busy host takes its time: 35 s alone, near 300 s beside eight others that compute."""

Link = Literal["up", "down", "silent"]


def tool() -> Path | None:
    """The program that runs such machines: $GATEWAY_VM, else beside the project; None where there is none."""
    path = Path(os.environ.get("GATEWAY_VM") or _ROOT.parent / "shared" / "vm" / "gateway-vm")
    return path if path.is_file() else None


def _cache() -> Path:
    """Where our machines' images are: their recipe is another, and each cache keeps one."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("GATEWAY_VM_CACHE") or Path(home) / "gateway-vm-fieldgate")


class Machine:
    """``forwards`` leads ports of 127.0.0.1 to the guest's, and kafka.test:9092 in it to ``kafka_port``."""

    def __init__(self, program: Path, name: str, forwards: Mapping[int, int], kafka_port: int) -> None:
        self._command = [str(program), "-n", name]
        self._name = name
        self._start = [
            "start", "--timeout", str(_BOOT_S - 20), "--disk-mb", "2048", "--guestfwd", f"9092:{kafka_port}",
            *(word for host, guest in forwards.items() for word in ("--forward", f"{host}:{guest}")),
        ]  # fmt: skip

    def __enter__(self) -> Self:
        self._do("build", timeout_s=1200)
        self._do(*self._start, timeout_s=_BOOT_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._do("destroy")

    def boot(self, clock_s: int = 0) -> float:
        """Boot again after a power cut; how long it took until ssh answers, seconds.

        ``clock_s``: how far the hardware clock is off.
        """
        begun_s = time.monotonic()
        self._do("boot-again", "--timeout", str(_BOOT_S - 20), f"--clock={clock_s}", timeout_s=_BOOT_S)
        return time.monotonic() - begun_s

    def power_cut(self) -> float:
        """Take the power away; when that was (monotonic), to a few milliseconds."""
        process = Path("/proc") / self._pid() / "cwd"
        with subprocess.Popen(
            [*self._command, "power-cut"],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "GATEWAY_VM_CACHE": str(_cache())},
        ) as cut:
            while _runs(process):
                assert cut.poll() in (None, 0), cut.communicate()[1]
                time.sleep(0.002)
            return time.monotonic()

    def link(self, state: Link) -> None:
        """The uplink's state: ``silent`` keeps the carrier and drops everything. It outlasts a power cut."""
        self._do("link", state)

    def run(self, script: str, timeout_s: float = 120) -> str:
        """Run a shell script in the guest, as root; its output.

        Again, where it fails: a busy guest may not answer ssh in time. So scripts must be repeatable.
        """
        return eventually(lambda: self._do("ssh", script, timeout_s=timeout_s), 180, until=lambda _: True)

    def push(self, source: Path, target: str) -> None:
        """Copy a file into the guest; it isn't synced. A starved guest takes minutes for a package."""
        self._do("push", str(source), target, timeout_s=600)

    def pull(self, source: str, target: Path) -> None:
        """Copy a file out of the guest; again, where it fails."""
        eventually(lambda: self._do("pull", source, str(target)), 180, until=lambda _: True)

    def console(self) -> str:
        """The end of the console."""
        return self._do("log")

    def _pid(self) -> str:
        line = next(line for line in self._do("list").splitlines() if line.split("\t")[0] == self._name)
        return line.split("pid ")[1].split(",")[0]

    def _do(self, *words: str, timeout_s: float = 60) -> str:
        done = subprocess.run(
            [*self._command, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env={**os.environ, "GATEWAY_VM_CACHE": str(_cache())},
            timeout=timeout_s,
            check=False,
        )
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout


def _runs(working_directory: Path) -> bool:
    try:
        return bool(working_directory.readlink())
    except OSError:
        return False
