"""State of the machine, read from the kernel: disk, processor temperature, load, uptime."""

from __future__ import annotations

import os
import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from buffer.files import free_bytes


@cache
def installed_version(package: str = "fieldgate") -> str | None:
    """Returns the version of a Python package; None where it isn't installed, or only copied."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@cache
def system() -> str:
    """Name of the Linux distribution, and the kernel's release (os-release(5))."""
    release = f"Linux {platform.release()}"
    try:
        return f"{platform.freedesktop_os_release()['PRETTY_NAME']} · {release}"
    except OSError:
        return release


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The machine as measured now: load over one minute; None is what this machine doesn't have."""

    version: str
    python: str
    system: str
    disk_free_bytes: int | None
    cpu_celsius: float | None
    load: float | None
    uptime_s: float | None


def vitals(outbox: Path, root: Path = Path("/")) -> Machine:
    """Measures the machine. The disk is that of ``outbox``; ``root`` is where ``/sys`` and ``/proc`` are."""
    celsius = _number(root / "sys/class/thermal/thermal_zone0/temp")
    return Machine(
        version=installed_version() or "unknown",
        python=platform.python_version(),
        system=system(),
        disk_free_bytes=_free(outbox.parent),
        cpu_celsius=None if celsius is None else celsius / 1000,
        load=_number(root / "proc/loadavg"),
        uptime_s=_number(root / "proc/uptime"),
    )


def _number(path: Path, position: int = 0) -> float | None:
    """One of the numbers of a kernel file, None where it has none."""
    try:
        return float(path.read_text().split()[position])
    except (OSError, ValueError, IndexError):
        return None


def _free(directory: Path) -> int | None:
    try:
        return free_bytes(directory)
    except OSError:
        return None


def resident_bytes(root: Path = Path("/")) -> int | None:
    """Memory this process has resident, as the kernel counts it."""
    pages = _number(root / "proc/self/statm", 1)
    return None if pages is None else int(pages) * os.sysconf("SC_PAGE_SIZE")
