"""Masts with one mistake each, as ``doctor`` finds them: a Pi of files, and emulated hardware on its pins.

``python -m tests.unit.gateway.commands.doctor_cases`` writes what is found into docs/doctor.md.
"""

from __future__ import annotations

import dataclasses
import errno
import io
import logging
import os
import re
import tempfile
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from drivers.boards.registry import BOARDS, open_board
from drivers.emulation.board import EmulatedBoard
from drivers.interface import Board, EdgeCounter, Edges, ReadError
from gateway.commands.doctor.command import hardware
from gateway.commands.doctor.machine import Host
from gateway.commands.findings import print_findings
from gateway.config import Config, load
from gateway.sampling.sampler import fitted_sensors
from gateway.status.status import Finding

CONFIG: Final = """
[gateway]
id = "mast-07"
latitude = 27.7
longitude = 85.5
[board]
kind = "raspberry-pi"
[[sensor]]
name = "cup"
driver = "hall-anemometer"
pin = 17
slope = 0.765
offset = 0.35
[[sensor]]
name = "dht"
driver = "dht11"
pin = 4
[[sensor]]
name = "baro"
driver = "bp20"
[[sensor]]
name = "sun"
driver = "pyranometer"
[[sensor]]
name = "gps"
driver = "gpsd"
[[actuator]]
name = "heater"
pin = 23
[[interlock]]
when = "dht.temperature < 3"
then = "relay.heater on"
"""
START: Final = "2026-03-01T04:00:00Z"
DOCS: Final = Path(__file__).resolve().parents[4] / "docs" / "doctor.md"


@dataclass
class Machine:
    """A Pi's files, and what its kernel and packages are."""

    model: str = "Raspberry Pi 4 Model B Rev 1.4"
    kernel: str = "6.12.25+rpt-rpi-v8"
    packages: Mapping[str, str] = field(default_factory=dict)
    groups: tuple[str, ...] = ("gpio", "i2c")
    i2c_on: bool = True
    throttled: str = "0"
    celsius: int = 48
    group_access: bool = True

    def host(self, root: Path) -> Host:
        """Write them under a directory."""

        def write(name: str, text: str) -> Path:
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            return path

        write("proc/device-tree/model", self.model + "\0")
        write("proc/sys/kernel/osrelease", self.kernel + "\n")
        write("proc/modules", "i2c_dev 16384 0 - Live 0x0\n" if self.i2c_on else "")
        dtparam = "dtparam=i2c_arm=on\n" if self.i2c_on else "#dtparam=i2c_arm=on\n"
        write("boot/firmware/config.txt", "# some settings\n" + dtparam + "[all]\n")
        write("sys/devices/platform/soc/soc:firmware/get_throttled", self.throttled + "\n")
        write("sys/class/thermal/thermal_zone0/temp", f"{self.celsius * 1000}\n")
        write("sys/block/mmcblk0/device/name", "SD32G\n")
        write("sys/block/mmcblk0/device/date", "03/2026\n")
        write("sys/bus/gpio/devices/gpiochip0/of_node/compatible", "brcm,bcm2711-gpio\0")
        devices = {write("dev/gpiochip0", ""): "gpio"}
        if self.i2c_on:
            devices[write("dev/i2c-1", "")] = "i2c"

        def may_use(path: Path, user: str) -> bool:
            return self.group_access and devices[path] in self.groups

        def group_of(path: Path) -> str | None:
            return devices[path] if self.group_access else None

        return Host(root, "pi", self.packages.get, may_use, group_of)


class Wired(EmulatedBoard):
    """An emulated board, some of whose wires are wrong."""

    bus: Any = None
    counter: EdgeCounter | None = None
    dht_silent = False
    gpsd_error: str | None = None
    relay_user: str | None = None

    def i2c(self) -> Any:
        """The bus, or the wrong one."""
        return self.bus if self.bus is not None else super().i2c()

    def dht_edges(self, pin: int) -> Callable[[], array[int]]:
        """The line, or one on which nothing moves."""
        return (lambda: array("H")) if self.dht_silent else super().dht_edges(pin)

    def pin_user(self, pin: int) -> str | None:
        return self.relay_user or super().pin_user(pin)

    def connect_gpsd(self, host: str, port: int) -> Any:
        """Gpsd, or the system's error without it."""
        if self.gpsd_error is not None:
            raise ReadError(f"nothing answers at {host}:{port} ({self.gpsd_error}): is the service running?")
        return super().connect_gpsd(host, port)


class CountingBoard(Wired):
    """One that counts a pin in its own way."""

    def count_edges(self, pin: int) -> EdgeCounter:
        assert self.counter is not None
        return self.counter


class Line:
    """A pin that gives so many pulses each time, and has a level."""

    method = "a line of the test's own"

    def __init__(self, pulses: int, *, high: bool) -> None:
        self._pulses, self._high = pulses, high

    def take(self) -> Edges:
        return Edges(self._pulses)

    def is_high(self) -> bool:
        return self._high

    def close(self) -> None:
        """Nothing to give back."""


class BrokenBus:
    """A bus on which every transaction ends in one way: an errno, or 0 where every address acknowledges."""

    def __init__(self, error: int) -> None:
        self._error = error

    def try_lock(self) -> bool:
        """It has one user."""
        return True

    def unlock(self) -> None:
        """It has one user."""

    def _end(self, *_: object, **__: object) -> None:
        if self._error:
            raise OSError(self._error, os.strerror(self._error))

    writeto = readfrom_into = writeto_then_readfrom = _end


def opened(config: Config, kind: type[Wired] = Wired) -> Wired:
    """The simulated board with the config's sensors, under a class with wrong wires."""
    options = BOARDS["simulated"](seed=1, speed=1_000_000.0, start=START)
    board = open_board(options, fitted_sensors(config), Path(), config.gateway)
    board.__class__ = kind
    assert isinstance(board, Wired)
    return board


def _moved_adc(config: Config) -> Board:
    moved = [
        dataclasses.replace(
            sensor,
            options=dataclasses.replace(
                sensor.options, adc=dataclasses.replace(sensor.options.adc, address=0x4A)
            ),
        )
        if hasattr(sensor.options, "adc")
        else sensor
        for sensor in config.sensors
    ]
    return opened(dataclasses.replace(config, sensors=tuple(moved)))


def _with(**wires: Any) -> Callable[[Config], Board]:
    def open_it(config: Config) -> Board:
        board = opened(config, CountingBoard if "counter" in wires else Wired)
        for name, wire in wires.items():
            setattr(board, name, wire)
        return board

    return open_it


@dataclass(frozen=True)
class Case:
    """A mistake, and what was made of it. The docs show only what isn't well."""

    name: str
    machine: Machine = field(default_factory=Machine)
    board: Callable[[Config], Board] = opened
    counting: str = "kernel"


CASES: Final = (
    Case("all well"),
    Case("ADDR pin", board=_moved_adc),
    Case("swapped SDA and SCL", board=_with(bus=BrokenBus(errno.EREMOTEIO))),
    Case("SDA low", board=_with(bus=BrokenBus(0))),
    Case("SCL low", board=_with(bus=BrokenBus(errno.ETIMEDOUT))),
    Case("I2C off", Machine(i2c_on=False)),
    Case("group", Machine(groups=("gpio",))),
    Case("RPi.GPIO", Machine(packages={"RPi.GPIO": "0.7.1"}), counting="rpi-gpio"),
    Case("old kernel", Machine(kernel="5.4.83-v7+")),
    Case("under-voltage", Machine(throttled="50005", celsius=83)),
    Case("no pull-up", board=_with(counter=Line(4000, high=True))),
    Case("signal on ground", board=_with(counter=Line(0, high=False))),
    Case("silent DHT11", board=_with(dht_silent=True)),
    Case("no gpsd", board=_with(gpsd_error="[Errno 111] Connection refused")),
    Case("relay's pin", board=_with(relay_user="'w1'")),
    Case("no Pi", Machine(model="QEMU Virtual Machine")),
)


def examined(case: Case, directory: Path) -> list[Finding]:
    """What ``doctor`` finds of the hardware; files are made under the directory."""
    path = directory / "gateway.toml"
    path.write_text(CONFIG.replace("[[sensor]]", f'counting = "{case.counting}"\n[[sensor]]', 1))
    config = load(path, {})
    return list(hardware(config, case.machine.host(directory / "pi"), case.board))


def printed(case: Case, directory: Path, width: int | None = 110) -> str:
    """The same as people see it; of a mistake only what isn't well."""
    findings = examined(case, directory)
    worse = [each for each in findings if each.severity != "ok"]
    out = io.StringIO()
    print_findings(worse or findings, Console(file=out, soft_wrap=True, highlight=False), width)
    return out.getvalue()


def documented(text: str, name: str) -> str:
    """The block of a case in the docs."""
    found = re.search(rf"<!-- doctor: {re.escape(name)} -->\n```text\n(.*?)```\n", text, re.S)
    return found[1] if found else ""


def main() -> None:
    """Write all blocks again."""
    logging.disable()
    text = DOCS.read_text()
    for case in CASES:
        with tempfile.TemporaryDirectory() as directory:
            block = printed(case, Path(directory))
        text = re.sub(
            rf"(<!-- doctor: {re.escape(case.name)} -->\n```text\n).*?(```\n)",
            lambda found, block=block: found[1] + block + found[2],  # type: ignore[misc]
            text,
            flags=re.S,
        )
    DOCS.write_text(text)


if __name__ == "__main__":
    main()
