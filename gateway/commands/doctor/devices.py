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
_SERIAL: Final = re.compile(r"serial port (/\S+)")
_NEW_KERNEL: Final = (6, 6)
"""From here on RPi.GPIO 0.7.1 can't watch edges: the sysfs interface that it uses has other numbers."""
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
    """By the sensors' own claims."""
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
    host: Host, wired: Needs, *, kernel_counts: bool = False, relays: bool = False
) -> Iterator[Finding]:
    """Libraries, devices and permissions; ``kernel_counts``: cups need no library, as relays never do."""
    if wired.pins:
        yield library(host, kernel_counts=kernel_counts)
    if wired.pins or relays:
        yield from _pins(host)
    if wired.addresses:
        yield _bus(host)
    for port in wired.ports:
        if host.path(port).exists():
            yield _permission(host, "serial", port)
        else:
            remedy = "is the adapter plugged in? ls /dev/serial/by-id"
            yield Finding("serial", "error", f"there is no {port}", remedy)


def library(host: Host, *, kernel_counts: bool = False) -> Finding:
    """Which of the two packages offers the module RPi.GPIO, and whether it can work here."""
    legacy, modern = host.installed("RPi.GPIO"), host.installed("rpi-lgpio")
    too_new = host.kernel_version >= _NEW_KERNEL or host.is_pi_5
    here = "a Pi 5" if host.is_pi_5 else f"kernel {host.kernel}"
    if legacy and modern:
        keep = "keep rpi-lgpio: pip uninstall RPi.GPIO; pip install --force-reinstall rpi-lgpio"
        either = "keep one: pip uninstall RPi.GPIO rpi-lgpio; pip install rpi-lgpio"
        found = f"RPi.GPIO {legacy} and rpi-lgpio {modern} are both installed and overwrite each other"
        return Finding("gpio", "error", found, keep if too_new else either)
    if legacy and too_new:
        remedy = "pip uninstall RPi.GPIO; pip install rpi-lgpio (the extra 'pi' instead of 'pi-legacy')"
        return Finding("gpio", "error", f"RPi.GPIO {legacy} can't watch pins on {here}", remedy)
    if legacy or modern:
        package = f"RPi.GPIO {legacy}" if legacy else f"rpi-lgpio {modern}"
        return Finding("gpio", "ok", f"{package} on {here}")
    found = "neither rpi-lgpio nor RPi.GPIO is installed"
    remedy = "pip install 'fieldgate[pi]', or on kernels before 6.6 'fieldgate[pi-legacy]'"
    if kernel_counts:
        found += ": cups are counted by the kernel, all else on pins needs one"
        return Finding("gpio", "warning", found, remedy)
    return Finding("gpio", "error", found, remedy)


def _pins(host: Host) -> Iterator[Finding]:
    chips = host.names("/dev/gpiochip*")
    if not chips:
        yield Finding("gpio", "error", "there is no /dev/gpiochip0", "is this a Raspberry Pi's own kernel?")
    else:
        yield _permission(host, "gpio", chips[0])
    if host.installed("RPi.GPIO") and host.path("/dev/gpiomem").exists():
        yield _permission(host, "gpio", "/dev/gpiomem")


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
    if host.may_use(path):
        return Finding(subject, "ok", f"{device} can be used by {host.user}")
    found, group = f"{device} can't be used by {host.user}", host.group_of(path)
    if group is None:
        remedy = "install fieldgate's package, or Raspberry Pi OS's udev rules (raspberrypi-sys-mods)"
        return Finding(subject, "error", f"{found}, nor by any group", remedy)
    remedy = f"sudo usermod -aG {group} {host.user}, then log in again"
    return Finding(subject, "error", f"{found}, who isn't in the group {group}", remedy)
