"""State of the machine: disk, temperature, load, uptime, its supply, and addresses that a phone may reach.

A Raspberry Pi's firmware reports too low a voltage and a processor slowed down. Sources: ``get_throttled`` of
the firmware's driver (bits 0 under-voltage, 2 throttled, 3 soft temperature limit; 16, 18, 19 the same since
boot), else the kernel's raspberrypi-hwmon (``in0_lcrit_alarm``).
"""

from __future__ import annotations

import os
import platform
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final

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


UNDER_VOLTAGE: Final = 1 << 0
THROTTLED: Final = 1 << 2 | 1 << 3
SINCE_BOOT: Final = 16
"""The bits of what was so since boot are so much higher."""
_FIRMWARE: Final = "sys/devices/platform/soc*/*firmware*/get_throttled"
_HWMON: Final = "sys/class/hwmon/hwmon*/name"


def throttled_bits(root: Path = Path("/")) -> int | None:
    """The firmware's bits, or the kernel's alarm as one of them; None where nothing reports them."""
    for path in root.glob(_FIRMWARE):
        with suppress(OSError, ValueError):
            return int(path.read_text(), 16)
    for name in root.glob(_HWMON):
        with suppress(OSError):
            if name.read_text().strip() == "rpi_volt":
                return UNDER_VOLTAGE * (name.with_name("in0_lcrit_alarm").read_text().strip() == "1")
    return None


_LIST: Final = ("ip", "-json", "-4", "address", "show", "up")
# The usual ones in the field: the Pi's Wi-Fi, a cable, a cable over USB. Then any other.
_PREFERRED: Final = ("wl", "en", "eth", "usb")
_VIRTUAL: Final = ("docker", "veth", "br-", "virbr", "tun", "tap", "wg", "zt", "tailscale", "vnet")


@dataclass(frozen=True, slots=True)
class Interface:
    """A network interface that is up, with its first IPv4 address."""

    name: str
    address: str
    point_to_point: bool = False


def interfaces() -> list[Interface]:
    """Those of this machine that are up and have an address, as ip(8) lists them; none where it can't."""
    try:
        listed = msgspec.json.decode(
            subprocess.run(_LIST, capture_output=True, check=True, timeout=10).stdout
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return []
    return [
        Interface(each["ifname"], each["addr_info"][0]["local"], "POINTOPOINT" in each["flags"])
        for each in listed
        if each.get("addr_info")
    ]


def reachable(among: list[Interface]) -> list[Interface]:
    """Those that may share a network with a phone, the likeliest first.

    Neither the loopback nor a modem's side, which is the internet.
    """
    near = [
        each
        for each in among
        if not IPv4Address(each.address).is_loopback
        and not each.point_to_point
        and not each.name.startswith((*_VIRTUAL, "ww", "ppp"))
    ]
    return sorted(near, key=lambda each: (_rank(each.name), each.name))


def _rank(name: str) -> int:
    return next((at for at, start in enumerate(_PREFERRED) if name.startswith(start)), len(_PREFERRED))
