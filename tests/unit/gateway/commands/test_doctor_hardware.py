"""``doctor`` names each wiring mistake; the docs show its output."""

from __future__ import annotations

import errno
import os
import pwd
from dataclasses import replace
from pathlib import Path

import pytest

from cloud.toml_problems import current_user
from drivers.emulation.board import EmulatedI2c
from drivers.hardware.bus_lock import SharedI2c
from drivers.hardware.gpio_chip import header_chip
from gateway.commands.doctor.command import hardware
from gateway.commands.doctor.machine import StuckBusError, devices, group_of, library, may_use, needs, scan
from gateway.config import Config, load
from tests.support.status import channel, status
from tests.unit.gateway.commands.doctor_cases import (
    CASES,
    CONFIG,
    DOCS,
    Case,
    Machine,
    documented,
    examined,
    opened,
    printed,
)

BY_NAME = {case.name: case for case in CASES}


def config_of(directory: Path, text: str = CONFIG) -> Config:
    path = directory / "gateway.toml"
    path.write_text(text)
    return load(path, {})


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_docs_show_its_output(case: Case, tmp_path: Path) -> None:
    """Written by ``python -m tests.unit.gateway.commands.doctor_cases``."""
    assert printed(case, tmp_path) == documented(DOCS.read_text(), case.name) != ""


@pytest.mark.parametrize("case", CASES[1:], ids=lambda case: case.name)
def test_each_mistake_is_named_once_and_nothing_else_is_blamed(case: Case, tmp_path: Path) -> None:
    worse = [each for each in examined(case, tmp_path) if each.severity != "ok"]
    assert len({each.area for each in worse}) == (2 if case.name == "under-voltage" else 1)
    assert len(worse) == (2 if case.name == "under-voltage" else 1)


def test_on_a_phone_no_line_is_wider_than_the_screen(tmp_path: Path) -> None:
    lines = printed(BY_NAME["no pull-up"], tmp_path, 40).splitlines()
    assert lines[0] == "error   sensor"
    assert all(line.startswith("  ") and len(line) <= 40 for line in lines[1:])
    whole = printed(BY_NAME["no pull-up"], tmp_path, None).splitlines()
    assert len(whole) == 1


PI_3, PI_5 = "Raspberry Pi 3 Model B Rev 1.2", "Raspberry Pi 5 Model B Rev 1.0"
BOTH = {"RPi.GPIO": "0.7.1", "rpi-lgpio": "0.6"}


@pytest.mark.parametrize(
    ("model", "kernel", "packages", "counting", "state", "words"),
    [
        (PI_3, "6.12.1", {}, "kernel", "ok", "kernel 6.12.1 counts pulses, no library is needed"),
        (PI_3, "6.12.1", {"RPi.GPIO": "0.7.1"}, "kernel", "ok", "no library is needed"),
        (PI_3, "5.10.0", {}, "kernel", "ok", "no library is needed"),
        (PI_3, "5.4.83", {"RPi.GPIO": "0.7.1"}, "kernel", "error", "5.4.83 doesn't count pulses"),
        (PI_3, "5.4.83", {}, "rpi-gpio", "error", "neither rpi-lgpio nor RPi.GPIO"),
        (PI_3, "5.4.83", {"RPi.GPIO": "0.7.1"}, "rpi-gpio", "ok", "RPi.GPIO 0.7.1 on kernel 5.4.83"),
        (PI_3, "6.1.21-v8+", {"RPi.GPIO": "0.7.1"}, "rpi-gpio", "ok", "RPi.GPIO 0.7.1 on kernel 6.1.21-v8+"),
        (PI_3, "6.1.21-v8+", {"rpi-lgpio": "0.6"}, "rpi-gpio", "ok", "rpi-lgpio 0.6"),
        (PI_3, "6.1.21-v8+", BOTH, "rpi-gpio", "error", "are both installed and overwrite each other"),
        (PI_3, "6.6.20", {"RPi.GPIO": "0.7.1"}, "rpi-gpio", "error", "can't watch pins on kernel 6.6.20"),
        (PI_5, "6.1.63", {"RPi.GPIO": "0.7.1"}, "rpi-gpio", "error", "on a Pi 5"),
        ("Raspberry Pi Compute Module 5 Rev 1.0", "6.1.63", {"RPi.GPIO": "1"}, "rpi-gpio", "error", "a Pi 5"),
        (PI_5, "6.12.1", {"rpi-lgpio": "0.6"}, "rpi-gpio", "ok", "on a Pi 5"),
    ],
)
def test_a_library_is_needed_only_where_the_kernel_does_not_count(
    model: str, kernel: str, packages: dict[str, str], counting: str, state: str, words: str, tmp_path: Path
) -> None:
    finding = library(Machine(model, kernel, packages).host(tmp_path), counting)
    assert finding.severity == state
    assert words in finding.what
    assert (finding.remedy is None) == (state == "ok")


def test_the_chip_with_the_headers_pins_is_not_always_the_first(tmp_path: Path) -> None:
    host = Machine().host(tmp_path)
    node = tmp_path / "sys/bus/gpio/devices/gpiochip0/of_node/compatible"
    node.write_text("raspberrypi,firmware-gpio\0")
    assert header_chip(tmp_path) is None
    wired = needs(config_of(tmp_path).sensors)
    [absent] = [each for each in devices(host, wired) if each.severity == "error"]
    assert absent.what == "there is no /dev/gpiochip* with the header pins"
    other = tmp_path / "sys/bus/gpio/devices/gpiochip4/of_node/compatible"
    other.parent.mkdir(parents=True)
    other.write_text("raspberrypi,rp1-gpio\0")
    assert header_chip(tmp_path) == "/dev/gpiochip4"
    [absent] = [each for each in devices(host, wired) if each.severity == "error"]
    assert absent.what == "there is no /dev/gpiochip4"


def test_a_user_may_use_what_their_groups_may(tmp_path: Path) -> None:
    # Everybody's first group has a number of its own; nobody is in root's.
    device = tmp_path / "gpiochip0"
    device.touch()
    device.chmod(0o660)
    assert not may_use(device, "nobody")
    device.chmod(0o606)
    assert may_use(device, "nobody")
    assert not may_use(device, "a-user-nobody-made")
    if os.geteuid() == 0:
        os.chown(device, 0, pwd.getpwnam("nobody").pw_gid)
        device.chmod(0o660)
        assert may_use(device, "nobody")


def test_a_device_for_which_there_is_no_group(tmp_path: Path) -> None:
    case = Case("root's only", Machine(groups=(), group_access=False))
    worse = [each for each in examined(case, tmp_path) if each.severity == "error"]
    assert [each.what for each in worse] == [
        "/dev/gpiochip0 can't be used by pi, nor by any group",
        "/dev/i2c-1 can't be used by pi, nor by any group",
    ]


def test_a_devices_group_is_named_only_where_the_group_may_use_it(tmp_path: Path) -> None:
    device = tmp_path / "i2c-1"
    device.touch()
    device.chmod(0o660)
    # Root's own group is nobody's to join.
    assert group_of(device) == (device.group() if device.stat().st_gid else None)
    device.chmod(0o640)
    assert group_of(device) is None
    assert may_use(device, current_user())
    assert not may_use(tmp_path / "absent", current_user())


@pytest.mark.parametrize(
    ("adapter", "groups", "found"),
    [
        (None, ("dialout",), "there is no /dev/ttyUSB0"),
        ("/dev/ttyUSB0", (), "/dev/ttyUSB0 can't be used by pi, who isn't in the group dialout"),
        ("/dev/ttyUSB0", ("dialout",), "/dev/ttyUSB0 can be used by pi"),
    ],
)
def test_the_serial_port_of_modbus_devices(
    adapter: str | None, groups: tuple[str, ...], found: str, tmp_path: Path
) -> None:
    config = config_of(
        tmp_path,
        '[gateway]\nid = "m"\n[[sensor]]\nname = "sun"\ndriver = "modbus"\ndevice = "/dev/ttyUSB0"\n'
        'registers = [{ quantity = "irradiance", address = 5 }]\n',
    )
    wired = needs(config.sensors)
    host = Machine().host(tmp_path)
    host = replace(host, may_use=lambda path, user: "dialout" in groups, group_of=lambda path: "dialout")
    if adapter is not None:
        (tmp_path / adapter.removeprefix("/")).touch()
    [finding] = devices(host, wired)
    assert (finding.area, finding.what) == ("serial", found)
    assert (finding.remedy is None) == (finding.severity == "ok")


class Recorded:
    """A chip that notes each request."""

    def __init__(self) -> None:
        self.requests: list[bytes | int] = []

    def write(self, sent: bytes) -> None:
        self.requests.append(sent)

    def read(self, count: int) -> bytes:
        self.requests.append(count)
        return bytes(count)


def test_a_scan_writes_nothing_and_reads_where_an_empty_write_does_harm() -> None:
    chips = {address: Recorded() for address in (0x08, 0x30, 0x37, 0x48, 0x50, 0x5F, 0x62, 0x69, 0x77)}
    assert scan(SharedI2c(EmulatedI2c(chips))) == tuple(chips)
    reads = {address for address, chip in chips.items() if chip.requests == [1]}
    assert reads == {0x30, 0x37, 0x50, 0x5F}
    assert all(chip.requests == [b""] for address, chip in chips.items() if address not in reads)


class Dead:
    """Answers nothing in time."""

    def __init__(self) -> None:
        self.requests = 0

    def write(self, sent: bytes) -> None:
        self.requests += 1
        raise OSError(errno.ETIMEDOUT, "timed out")

    def read(self, count: int) -> bytes:
        self.requests += 1
        raise OSError(errno.ETIMEDOUT, "timed out")


def test_a_scan_of_a_stuck_bus_gives_up_after_three_seconds() -> None:
    dead = Dead()
    with pytest.raises(StuckBusError):
        scan(EmulatedI2c(dict.fromkeys(range(0x80), dead)))
    assert dead.requests == 3


def test_the_daemons_readings_are_taken_where_it_runs(tmp_path: Path) -> None:
    running = status(
        channels={
            "cup.wind_speed": channel(value=7.2),
            "baro.pressure": channel(value=None, unit="kPa", quality=9, reasons=("READ_ERROR",)),
            "dht.humidity": channel(value=99.0, unit="%RH", quality=4, reasons=("OVER_RANGE",)),
            "sun.irradiance": channel(value=7.2),
        },
        troubles={"baro": "no ADS1115 answers"},
        uptime_s=10,
    )
    findings = hardware(config_of(tmp_path), Machine().host(tmp_path / "pi"), opened, running)
    assert [(each.severity, each.what) for each in findings if each.area == "sensor"] == [
        ("ok", "cup: 7.200 m/s"),
        ("error", "dht: 99.000 %RH: above the range"),
        ("error", "baro: no ADS1115 answers"),
        ("ok", "sun: 7.200 m/s"),
        ("warning", "gps: no reading yet, due within 32 s"),
    ]


def test_a_config_without_wires_needs_no_library(tmp_path: Path) -> None:
    config = config_of(tmp_path, CONFIG[: CONFIG.index("[[sensor]]")])
    findings = list(hardware(config, Machine(packages={}).host(tmp_path / "pi"), opened))
    assert {each.severity for each in findings} == {"ok"}
