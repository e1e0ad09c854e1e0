"""The Raspberry Pi itself: model and kernel, its supply, its temperature, its card.

Sources: ``gateway/system/host.py``; JESD84 for the life of an eMMC.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gateway.commands.doctor.findings import Finding
from gateway.commands.doctor.host import Host
from gateway.system.host import SINCE_BOOT, THROTTLED, UNDER_VOLTAGE, throttled_bits

_HOT_C: Final = 80.0
_WORN: Final = 9
"""Tenths of its life that an eMMC has used."""
_SUPPLY_REMEDY: Final = "a stronger 5 V supply, shorter and thicker wires: the Pi resets, and cards lose data"


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
    bits = throttled_bits(host.root)
    if bits is None:
        return Finding("power", "warning", "the kernel doesn't report the supply")
    if bits & UNDER_VOLTAGE:
        return Finding("power", "error", "the supply is below 4.63 V now", _SUPPLY_REMEDY)
    if bits >> SINCE_BOOT & UNDER_VOLTAGE:
        return Finding("power", "warning", "the supply was below 4.63 V since boot", _SUPPLY_REMEDY)
    return Finding("power", "ok", "the supply has held since boot")


def _heat(host: Host) -> Iterator[Finding]:
    text = host.text("/sys/class/thermal/thermal_zone0/temp")
    if text is None or not text.lstrip("-").isdigit():
        return
    celsius = int(text) / 1000
    slowed = (throttled_bits(host.root) or 0) & THROTTLED
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
