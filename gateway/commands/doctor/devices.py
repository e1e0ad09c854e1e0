"""Pins and buses before anything is read: the library, the device files, and who may use them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from drivers.registry import driver_type
from gateway.commands.doctor.findings import Finding
from gateway.commands.doctor.host import Host
from gateway.config import SensorConfig

_PIN: Final = re.compile(r"BCM pin (\d+)")
_ADDRESS: Final = re.compile(r"I2C address 0x([0-9a-f]{2})")
_NEW_KERNEL: Final = (6, 6)
"""From here on RPi.GPIO 0.7.1 can't watch edges: the sysfs interface that it uses has other numbers."""
_I2C_ON: Final = re.compile(r"^\s*dtparam=(?:[^#\n]*,)?i2c(?:_arm|1)?(?:=(?:on|true|yes|1))?\s*(?:,|$)", re.M)


@dataclass(frozen=True, slots=True)
class Needs:
    """What sensors are wired to: BCM pins and I2C addresses, with the sensors behind them."""

    pins: dict[int, tuple[str, ...]]
    addresses: dict[int, tuple[str, ...]]


def needs(sensors: Iterable[SensorConfig]) -> Needs:
    """By the sensors' own claims."""
    pins: dict[int, tuple[str, ...]] = {}
    addresses: dict[int, tuple[str, ...]] = {}
    for sensor in sensors:
        for claim in driver_type(sensor.driver).claims(sensor.options):
            if found := _PIN.fullmatch(claim.part):
                pin = int(found[1])
                pins[pin] = (*pins.get(pin, ()), sensor.name)
            elif found := _ADDRESS.fullmatch(claim.part):
                address = int(found[1], 16)
                addresses[address] = (*addresses.get(address, ()), sensor.name)
    return Needs(dict(sorted(pins.items())), dict(sorted(addresses.items())))


def findings(host: Host, wired: Needs, *, kernel_counts: bool = False) -> Iterator[Finding]:
    """Libraries, devices and permissions; ``kernel_counts``: cups need no library."""
    if wired.pins:
        yield library(host, kernel_counts=kernel_counts)
        yield from _pins(host)
    if wired.addresses:
        yield from _bus(host)


def library(host: Host, *, kernel_counts: bool = False) -> Finding:
    """Which of the two packages offers the module RPi.GPIO, and whether it can work here."""
    legacy, modern = host.installed("RPi.GPIO"), host.installed("rpi-lgpio")
    too_new = host.kernel_version >= _NEW_KERNEL or host.is_pi_5
    here = "a Pi 5" if host.is_pi_5 else f"kernel {host.kernel}"
    if legacy and modern:
        keep = "keep rpi-lgpio: pip uninstall RPi.GPIO; pip install --force-reinstall rpi-lgpio"
        return Finding(
            "gpio", "error",
            f"RPi.GPIO {legacy} and rpi-lgpio {modern} are both installed and overwrite each other",
            keep if too_new else "keep one: pip uninstall RPi.GPIO rpi-lgpio; pip install rpi-lgpio",
        )  # fmt: skip
    if legacy and too_new:
        return Finding(
            "gpio", "error", f"RPi.GPIO {legacy} can't watch pins on {here}",
            "pip uninstall RPi.GPIO; pip install rpi-lgpio (the extra 'pi' instead of 'pi-legacy')",
        )  # fmt: skip
    if legacy:
        return Finding("gpio", "ok", f"RPi.GPIO {legacy} on {here}")
    if modern:
        return Finding("gpio", "ok", f"rpi-lgpio {modern} on {here}")
    missing = "neither rpi-lgpio nor RPi.GPIO is installed"
    return Finding(
        "gpio",
        "warning" if kernel_counts else "error",
        f"{missing}: cups are counted by the kernel, all else on pins needs one"
        if kernel_counts
        else missing,
        "pip install 'fieldgate[pi]', or on kernels before 6.6 'fieldgate[pi-legacy]'",
    )


def _pins(host: Host) -> Iterator[Finding]:
    chips = host.names("/dev/gpiochip*")
    if not chips:
        yield Finding("gpio", "error", "there is no /dev/gpiochip0", "is this a Raspberry Pi's own kernel?")
    else:
        yield _permission(host, "gpio", chips[0])
    if host.installed("RPi.GPIO") and host.access("/dev/gpiomem") != "missing":
        yield _permission(host, "gpio", "/dev/gpiomem")


def _bus(host: Host) -> Iterator[Finding]:
    if host.access("/dev/i2c-1") != "missing":
        yield _permission(host, "i2c", "/dev/i2c-1")
        return
    files = ("/boot/firmware/config.txt", "/boot/config.txt")
    boot = next(((name, text) for name in files if (text := host.text(name)) is not None), None)
    if boot is not None and _I2C_ON.search(boot[1]) is None:
        yield Finding(
            "i2c", "error", f"there is no /dev/i2c-1: I2C is off in {boot[0]}",
            f"sudo raspi-config nonint do_i2c 0, or dtparam=i2c_arm=on in {boot[0]}; then reboot",
        )  # fmt: skip
    elif not re.search(r"^i2c_dev\b", host.text("/proc/modules") or "", re.M):
        yield Finding(
            "i2c", "error", "there is no /dev/i2c-1: the module i2c-dev isn't loaded",
            "sudo modprobe i2c-dev; echo i2c-dev | sudo tee /etc/modules-load.d/i2c.conf",
        )  # fmt: skip
    else:
        yield Finding(
            "i2c", "error", "there is no /dev/i2c-1", "reboot, if I2C was turned on since the last boot"
        )


def _permission(host: Host, subject: str, device: str) -> Finding:
    if host.access(device) == "ok":
        return Finding(subject, "ok", f"{device} can be used by {host.user}")
    group = host.group_of(device)
    if group is None:
        return Finding(
            subject, "error", f"{device} can't be used by {host.user}, nor by any group",
            "install fieldgate's package, or Raspberry Pi OS's udev rules (raspberrypi-sys-mods)",
        )  # fmt: skip
    return Finding(
        subject, "error", f"{device} can't be used by {host.user}, who isn't in the group {group}",
        f"sudo usermod -aG {group} {host.user}, then log in again",
    )  # fmt: skip
