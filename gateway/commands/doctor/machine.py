"""Examines the Raspberry Pi and what is wired to it: devices, who may use them, I2C bus and relays.

Sources: ``gateway/system/host.py``; JESD84 for the life of an eMMC. The bus is probed as i2cdetect does by
default (its manual): an empty write, which requests nothing, and a read of one byte for 0x30-0x37 and
0x50-0x5f, where an empty write is known to corrupt an Atmel AT24RF08. A read would lock up a bus with a
write-only chip on it (clock chips at 0x69), and a Sensirion without a request doesn't respond to one.
"""

from __future__ import annotations

import errno
import os
import pwd
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cloud.toml_problems import current_user
from drivers.hardware.gpio_chip import header_chip
from drivers.interface import Board, DriverError, I2cBus
from drivers.registry import driver_type
from gateway.config import SensorConfig
from gateway.config.named_files import SERVICE_USER
from gateway.config.outputs import ActuatorConfig
from gateway.status import findings
from gateway.status.findings import RESTART
from gateway.status.status import Finding
from gateway.system.host import SINCE_BOOT, THROTTLED, UNDER_VOLTAGE, installed_version, throttled_bits


def daemon_user() -> str:
    """Returns whose rights count: the service's where root asks, for root may use everything."""
    if os.geteuid() == 0:
        with suppress(KeyError):
            return pwd.getpwnam(SERVICE_USER).pw_name
    return current_user()


def may_use(path: Path, user: str) -> bool:
    """Returns whether a user may read and write a file; False where there is none."""
    if user == current_user():
        return os.access(path, os.R_OK | os.W_OK, effective_ids=True)
    try:
        facts, account = path.stat(), pwd.getpwnam(user)
    except (OSError, KeyError):
        return False
    if facts.st_uid == account.pw_uid:
        shift = 6
    else:
        shift = 3 if facts.st_gid in os.getgrouplist(user, account.pw_gid) else 0
    return facts.st_mode >> shift & 0o6 == 0o6


def group_of(path: Path) -> str | None:
    """Returns the group that may read and write a file; None where only root may. Raises OSError."""
    facts = path.stat()
    wanted = stat.S_IRGRP | stat.S_IWGRP
    if facts.st_mode & wanted != wanted or facts.st_gid == 0:
        return None
    try:
        return path.group()
    except KeyError:
        return str(facts.st_gid)


@dataclass(frozen=True, slots=True)
class Host:
    """A machine's files under ``root``, and the user whose daemon will use them."""

    root: Path = Path("/")
    user: str = field(default_factory=daemon_user)
    installed: Callable[[str], str | None] = installed_version
    may_use: Callable[[Path, str], bool] = may_use
    group_of: Callable[[Path], str | None] = group_of

    def path(self, name: str) -> Path:
        """Returns a file by its absolute name."""
        return self.root / name.removeprefix("/")

    def text(self, name: str) -> str | None:
        """Returns the content of a small file, None for none; device trees end strings with NUL."""
        try:
            return self.path(name).read_bytes().decode("utf-8", "replace").strip("\0\n ")
        except OSError:
            return None

    def names(self, pattern: str) -> list[str]:
        """Returns the absolute names of the files that match, sorted."""
        found = self.root.glob(pattern.removeprefix("/"))
        return sorted(f"/{each.relative_to(self.root)}" for each in found)

    @property
    def model(self) -> str | None:
        """Returns the board by its device tree: ``Raspberry Pi 4 Model B Rev 1.4``; None on a PC."""
        return self.text("/proc/device-tree/model")

    @property
    def is_pi(self) -> bool:
        """Returns True for a Raspberry Pi."""
        return "Raspberry Pi" in (self.model or "")

    @property
    def is_pi_5(self) -> bool:
        """Returns True if its pins are on the RP1 chip (Pi 5, Compute Module 5, Pi 500)."""
        return re.search(r"Raspberry Pi (Compute Module )?5", self.model or "") is not None

    @property
    def kernel(self) -> str:
        """Returns the kernel's release."""
        return self.text("/proc/sys/kernel/osrelease") or "unknown"

    @property
    def kernel_version(self) -> tuple[int, int]:
        """Returns the first two figures of the release; (0, 0) for none."""
        found = re.match(r"(\d+)\.(\d+)", self.kernel)
        return (int(found[1]), int(found[2])) if found else (0, 0)


_PIN: Final = re.compile(r"BCM pin (\d+)")
_ADDRESS: Final = re.compile(r"I2C address 0x([0-9a-f]{2})")
_SERIAL: Final = re.compile(r"serial port (/\S+)")
_COUNTS: Final = (5, 10)
"""The first kernel that numbers a pin's edges (linux/gpio.h, second version)."""
_NEW_KERNEL: Final = (6, 6)
"""The first kernel on which RPi.GPIO 0.7.1 can't watch edges: sysfs, which it uses, has other numbers."""
_I2C_ON: Final = re.compile(r"^\s*dtparam=(?:[^#\n]*,)?i2c(?:_arm|1)?(?:=(?:on|true|yes|1))?\s*(?:,|$)", re.M)
_WORN: Final = 9
"""Tenths of its life that an eMMC has used."""
_FIRST, _LAST = 0x08, 0x77
_ALL: Final = 100
"""No bus has so many devices: a data line that is low acknowledges every address."""
_STUCK: Final = 3
_ADS1115: Final = {0x48: "GND", 0x49: "VDD", 0x4A: "SDA", 0x4B: "SCL"}
"""What its ADDR pin is tied to for each address (datasheet SBAS444)."""


def pi(host: Host) -> Iterator[Finding]:
    """Examines the machine's own state."""
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
        return findings.weak_supply("is below 4.63 V now", now=True)
    if bits >> SINCE_BOOT & UNDER_VOLTAGE:
        return findings.weak_supply("was below 4.63 V since boot", now=False)
    return Finding("power", "ok", "the supply has held since boot")


def _heat(host: Host) -> Iterator[Finding]:
    text = host.text("/sys/class/thermal/thermal_zone0/temp")
    if text is None or not text.lstrip("-").isdigit():
        return
    celsius = int(text) / 1000
    slowed = bool((throttled_bits(host.root) or 0) & THROTTLED)
    hot = list(findings.heat(celsius, slowed=slowed))
    yield from hot or [Finding("heat", "ok", f"the processor is at {celsius:.0f} °C")]


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


@dataclass(frozen=True, slots=True)
class Needs:
    """Lists what sensors are wired to: BCM pins and I2C addresses with their sensors, serial ports."""

    pins: dict[int, tuple[str, ...]]
    addresses: dict[int, tuple[str, ...]]
    ports: tuple[str, ...] = ()

    @property
    def on_pins(self) -> set[str]:
        """Returns the sensors on pins."""
        return {name for names in self.pins.values() for name in names}

    @property
    def on_bus(self) -> set[str]:
        """Returns the sensors on the I2C bus."""
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


def devices(host: Host, wired: Needs, *, counting: str = "kernel", relays: bool = False) -> Iterator[Finding]:
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
    """Returns who counts pulses: the kernel, or whichever package offers the module RPi.GPIO."""
    machine = "a Pi 5" if host.is_pi_5 else f"kernel {host.kernel}"
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
        found = f"RPi.GPIO {legacy} can't watch pins on {machine}"
    elif legacy or modern:
        package = f"RPi.GPIO {legacy}" if legacy else f"rpi-lgpio {modern}"
        return Finding("gpio", "ok", f"{package} on {machine}")
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
    then = RESTART if host.user == SERVICE_USER else "log in again"
    remedy = f"sudo usermod -aG {group} {host.user}, then {then}"
    return Finding(subject, "error", f"{found}, who isn't in the group {group}", remedy)


class StuckBusError(Exception):
    """The bus doesn't come to an end of a transaction."""


def scan(bus: I2cBus) -> tuple[int, ...]:
    """Returns the addresses that respond. Raises StuckBusError; OSError if another thread has the bus."""
    found, stuck = [], 0
    for address in range(_FIRST, _LAST + 1):
        bus.try_lock()
        try:
            if 0x30 <= address <= 0x37 or 0x50 <= address <= 0x5F:
                bus.readfrom_into(address, bytearray(1))
            else:
                bus.writeto(address, b"")
        except OSError as error:
            # A second each on a Pi: three are enough.
            stuck += error.errno == errno.ETIMEDOUT
            if stuck >= _STUCK:
                raise StuckBusError from error
        else:
            found.append(address)
        finally:
            bus.unlock()
    return tuple(found)


def i2c_bus(bus: I2cBus, wired: Needs) -> tuple[list[Finding], set[str]]:
    """Returns the findings, and the sensors that they explain: those need not be read."""
    remedy: str | None
    try:
        present = scan(bus)
    except StuckBusError:
        found = "the bus is stuck: transactions time out"
        remedy = "SCL is held low: a short circuit, or a device without supply; unplug one after the other"
    except OSError as error:
        found, remedy = f"the bus can't be scanned: {error}", None
    else:
        if present and len(present) < _ALL:
            return _compared(present, wired)
        if present:
            found = "every address answers: SDA is held low"
            remedy = (
                "a short circuit of SDA to ground, or a device without supply; unplug one after the other"
            )
        else:
            found = "nothing answers on the bus"
            remedy = "SDA (pin 3) and SCL (pin 5) swapped? No supply or ground at the device? No pull-ups?"
    return [Finding("i2c", "error", found, remedy)], wired.on_bus


def _compared(present: tuple[int, ...], wired: Needs) -> tuple[list[Finding], set[str]]:
    listed = ", ".join(f"0x{address:02x}" for address in present)
    missing = {address: names for address, names in wired.addresses.items() if address not in present}
    if not missing:
        return [Finding("i2c", "ok", f"all expected addresses answer; found: {listed}")], set()
    unknown = [address for address in present if address not in wired.addresses]
    found = []
    for address, names in missing.items():
        what = f"0x{address:02x} ({', '.join(names)}) doesn't answer; found: {listed}"
        found.append(Finding("i2c", "error", what, _suggestion(address, unknown)))
    return found, {name for names in missing.values() for name in names}


def _suggestion(address: int, unknown: list[int]) -> str:
    pin = _ADS1115.get(address)
    other = next((each for each in unknown if each in _ADS1115), None)
    if pin is not None and other is not None:
        return (
            f"tie the converter's ADDR pin to {pin} (0x{other:02x} is {_ADS1115[other]}), "
            f"or set address = 0x{other:02x}"
        )
    return "check its supply, its ground and its two wires" + (
        f"; for a converter ADDR goes to {pin}" if pin is not None else ""
    )


def relay_pins(actuators: Sequence[ActuatorConfig], board: Board) -> Iterator[Finding]:
    """Yields whether the daemon will get their pins; none is switched."""
    for actuator in actuators:
        pin = f"{actuator.name}: BCM pin {actuator.pin}"
        try:
            user = board.pin_user(actuator.pin)
        except DriverError as error:
            yield Finding("relay", "error", f"{actuator.name}: {error}")
            continue
        if user is None:
            yield Finding("relay", "ok", f"{pin} is free")
        else:
            remedy = "use another pin, stop that program, or switch the function off in config.txt"
            yield Finding("relay", "error", f"{pin} is in use by {user}", remedy)
