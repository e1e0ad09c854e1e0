"""The Raspberry Pi itself: model and kernel, its supply, its temperature, its card.

Sources: vcgencmd's ``get_throttled`` (bits 0 under-voltage, 2 throttled, 3 soft temperature limit, and 16,
18, 19 the same since boot), which the firmware's driver also shows in sysfs; the kernel's raspberrypi-hwmon
driver (``in0_lcrit_alarm``); JESD84 for the life of an eMMC.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from gateway.commands.doctor.findings import Finding
from gateway.commands.doctor.host import Host

_THROTTLED: Final = "/sys/devices/platform/soc/soc:firmware/get_throttled"
_UNDER_VOLTAGE, _THROTTLED_NOW = 1 << 0, 1 << 2 | 1 << 3
_SINCE_BOOT: Final = 16
_HOT_C: Final = 80.0
_WORN: Final = 9
"""Tenths of its life that an eMMC has used."""
_SUPPLY_REMEDY: Final = "a stronger 5 V supply, shorter and thicker wires: the Pi resets, and cards lose data"
_VCGENCMD_S: Final = 3.0


def findings(host: Host) -> Iterator[Finding]:
    """The machine's own state."""
    if not host.is_pi:
        what = host.model or "no board with pins"
        yield Finding(
            "board", "error", f"{what}, kernel {host.kernel}: this is no Raspberry Pi",
            '[board] kind = "simulated" or "replay" runs anywhere',
        )  # fmt: skip
        return
    yield Finding("board", "ok", f"{host.model}, kernel {host.kernel}")
    yield _power(host)
    yield from _heat(host)
    yield from _card(host)


def _power(host: Host) -> Finding:
    bits = _throttled(host)
    alarms = [
        host.text(f"{name.removesuffix('name')}in0_lcrit_alarm")
        for name in host.names("/sys/class/hwmon/hwmon*/name")
        if host.text(name) == "rpi_volt"
    ]
    if bits is None and not alarms:
        return Finding("power", "warning", "neither vcgencmd nor the kernel reports the supply")
    bits = bits or 0
    if bits & _UNDER_VOLTAGE or "1" in alarms:
        return Finding("power", "error", "the supply is below 4.63 V now", _SUPPLY_REMEDY)
    if bits >> _SINCE_BOOT & _UNDER_VOLTAGE:
        return Finding("power", "warning", "the supply was below 4.63 V since boot", _SUPPLY_REMEDY)
    return Finding("power", "ok", "the supply has held since boot")


def _throttled(host: Host) -> int | None:
    text = host.text(_THROTTLED)
    if text is None and host.root == Path("/"):
        with suppress(OSError, subprocess.SubprocessError):
            done = subprocess.run(
                ["vcgencmd", "get_throttled"], capture_output=True, text=True, timeout=_VCGENCMD_S, check=True
            )
            text = done.stdout.strip().removeprefix("throttled=")
    with suppress(ValueError):
        return None if text is None else int(text, 16)
    return None


def _heat(host: Host) -> Iterator[Finding]:
    text = host.text("/sys/class/thermal/thermal_zone0/temp")
    if text is None or not text.lstrip("-").isdigit():
        return
    celsius = int(text) / 1000
    slowed = (_throttled(host) or 0) & _THROTTLED_NOW
    if celsius >= _HOT_C or slowed:
        found = f"the processor is at {celsius:.0f} °C" + (" and slowed down" if slowed else "")
        yield Finding("heat", "warning", found, "shade or vent the box; from 80 °C on the Pi slows down")
    else:
        yield Finding("heat", "ok", f"the processor is at {celsius:.0f} °C")


def _card(host: Host) -> Iterator[Finding]:
    device = "/sys/block/mmcblk0/device"
    name = host.text(f"{device}/name")
    if name is None:
        return
    made = host.text(f"{device}/date")
    found = f"{name}" + (f" of {made}" if made else "")
    used = max((int(each, 16) for each in (host.text(f"{device}/life_time") or "").split()), default=None)
    if used is None:
        # SD cards don't report it.
        yield Finding("card", "ok", found)
    elif used >= _WORN:
        yield Finding("card", "warning", f"{found}: {used * 10} % of its life are used", "replace it")
    else:
        yield Finding("card", "ok", f"{found}: at most {used * 10} % of its life are used")
