"""Pins and buses before anything is read: the library, the device files, and who may use them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from drivers.hardware.gpio_chip import header_chip
from drivers.registry import driver_type
from gateway.commands.doctor.findings import RESTART, Finding
from gateway.commands.doctor.host import SERVICE, Host
from gateway.config import SensorConfig

_PIN: Final = re.compile(r"BCM pin (\d+)")
_ADDRESS: Final = re.compile(r"I2C address 0x([0-9a-f]{2})")
_SERIAL: Final = re.compile(r"serial port (/\S+)")
_COUNTS: Final = (5, 10)
"""The first kernel that numbers a pin's edges (linux/gpio.h, second version)."""
_NEW_KERNEL: Final = (6, 6)
"""The first kernel on which RPi.GPIO 0.7.1 can't watch edges: sysfs, which it uses, has other numbers."""
_I2C_ON: Final = re.compile(r"^\s*dtparam=(?:[^#\n]*,)?i2c(?:_arm|1)?(?:=(?:on|true|yes|1))?\s*(?:,|$)", re.M)


@dataclass(frozen=True, slots=True)
class Needs:
    """What sensors are wired to: BCM pins and I2C addresses with the sensors behind them, serial ports."""

    pins: dict[int, tuple[str, ...]]
    addresses: dict[int, tuple[str, ...]]
    ports: tuple[str, ...] = ()

    @property
    def on_pins(self) -> set[str]:
        """The sensors on pins."""
        return {name for names in self.pins.values() for name in names}

    @property
    def on_bus(self) -> set[str]:
        """The sensors on the I2C bus."""
        return {name for names in self.addresses.values() for name in names}


def needs(sensors: Iterable[SensorConfig]) -> Needs:
    """Collects what the sensors claim to need."""
    wired = Needs({}, {})
    ports: set[str] = set()
    for sensor in sensors:
        for claim in driver_type(sensor.driver).claims(sensor.options):
            for pattern, base, of in ((_PIN, 10, wired.pins), (_ADDRESS, 16, wired.addresses)):
                if found := pattern.fullmatch(claim.part):
                    number = int(found[1], base)
                    of[number] = (*of.get(number, ()), sensor.name)
            if port := _SERIAL.fullmatch(claim.part):
                ports.add(port[1])
    return Needs(
        dict(sorted(wired.pins.items())), dict(sorted(wired.addresses.items())), tuple(sorted(ports))
    )


def findings(
    host: Host, wired: Needs, *, counting: str = "kernel", relays: bool = False
) -> Iterator[Finding]:
    """Yields libraries, devices and permissions; ``counting`` is the board's key."""
    if wired.pins:
        yield library(host, counting)
    if wired.pins or relays:
        yield _pins(host)
    if wired.addresses:
        yield _bus(host)
    for port in wired.ports:
        if host.path(port).exists():
            yield _permission(host, "serial", port)
        else:
            remedy = "is the adapter plugged in? ls /dev/serial/by-id"
            yield Finding("serial", "error", f"there is no {port}", remedy)


def library(host: Host, counting: str = "kernel") -> Finding:
    """Returns who counts pulses here: the kernel, or whichever package offers the module RPi.GPIO."""
    here = "a Pi 5" if host.is_pi_5 else f"kernel {host.kernel}"
    counts = host.kernel_version >= _COUNTS
    if counting == "kernel" and counts:
        return Finding("gpio", "ok", f"kernel {host.kernel} counts pulses, no library is needed")
    if counting == "kernel":
        remedy = 'one from 5.10 on does; on this one [board] counting = "rpi-gpio", with python3-rpi.gpio'
        return Finding("gpio", "error", f"kernel {host.kernel} doesn't count pulses", remedy)
    remedy = "a kernel from 5.10 on counts pulses by itself; else sudo apt-get install python3-rpi.gpio"
    if counts:
        remedy = '[board] counting = "kernel": this kernel counts pulses without a library'
    legacy, modern = host.installed("RPi.GPIO"), host.installed("rpi-lgpio")
    if legacy and modern:
        found = f"RPi.GPIO {legacy} and rpi-lgpio {modern} are both installed and overwrite each other"
    elif legacy and (host.kernel_version >= _NEW_KERNEL or host.is_pi_5):
        found = f"RPi.GPIO {legacy} can't watch pins on {here}"
    elif legacy or modern:
        package = f"RPi.GPIO {legacy}" if legacy else f"rpi-lgpio {modern}"
        return Finding("gpio", "ok", f"{package} on {here}")
    else:
        found = "neither rpi-lgpio nor RPi.GPIO is installed"
    return Finding("gpio", "error", found, remedy)


def _pins(host: Host) -> Finding:
    chip = header_chip(host.root)
    if chip is None or not host.path(chip).exists():
        found = f"there is no {chip or '/dev/gpiochip* with the header pins'}"
        remedy = "does this kernel have the pins' driver? pinctrl-bcm2835, on a Pi 5 pinctrl-rp1; uname -r"
        return Finding("gpio", "error", found, remedy)
    return _permission(host, "gpio", chip)


def _bus(host: Host) -> Finding:
    if host.path("/dev/i2c-1").exists():
        return _permission(host, "i2c", "/dev/i2c-1")
    found = "there is no /dev/i2c-1"
    files = ("/boot/firmware/config.txt", "/boot/config.txt")
    boot = next((name for name in files if host.text(name) is not None), None)
    if boot is not None and _I2C_ON.search(host.text(boot) or "") is None:
        remedy = f"sudo raspi-config nonint do_i2c 0, or dtparam=i2c_arm=on in {boot}; then reboot"
        return Finding("i2c", "error", f"{found}: I2C is off in {boot}", remedy)
    if not re.search(r"^i2c_dev\b", host.text("/proc/modules") or "", re.M):
        remedy = "sudo modprobe i2c-dev; echo i2c-dev | sudo tee /etc/modules-load.d/i2c.conf"
        return Finding("i2c", "error", f"{found}: the module i2c-dev isn't loaded", remedy)
    return Finding("i2c", "error", found, "reboot, if I2C was turned on since the last boot")


def _permission(host: Host, subject: str, device: str) -> Finding:
    path = host.path(device)
    if host.may_use(path, host.user):
        return Finding(subject, "ok", f"{device} can be used by {host.user}")
    found, group = f"{device} can't be used by {host.user}", host.group_of(path)
    if group is None:
        remedy = "install fieldgate's package, whose udev rules (60-fieldgate.rules) give it to a group"
        return Finding(subject, "error", f"{found}, nor by any group", remedy)
    then = RESTART if host.user == SERVICE else "log in again"
    remedy = f"sudo usermod -aG {group} {host.user}, then {then}"
    return Finding(subject, "error", f"{found}, who isn't in the group {group}", remedy)
