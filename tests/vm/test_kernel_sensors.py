"""Sensors that the guest's own kernel and gpsd read: the ti-ads1015 driver on i2c-stub, gpsd fed by gpsfake.

The gateway runs as its hardened unit on the board of a Raspberry Pi; none of this needs one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from drivers.gpsd import distance_m
from tests.support.config import sensor
from tests.support.servers import eventually
from tests.unit.drivers.nmea import second, second_without_fix
from tests.vm.guest_mast import Ports, guest_config
from tests.vm.machine import Machine

pytestmark = pytest.mark.system

CONFIG = guest_config(
    "kernel-sensors",
    sensor(
        "baro",
        "iio",
        device="ads1015",
        channels=[{"quantity": "pressure", "attribute": "in_voltage0", "slope": 21.79, "offset": 10.55}],
    ),
    sensor("gps", "gpsd", port=2950),
)

STUB = """
set -e
modprobe i2c-dev
modprobe i2c-stub chip_addr=0x48
modprobe ti-ads1015
n=$(grep -l 'SMBus stub' /sys/bus/i2c/devices/i2c-*/name | sed 's/.*i2c-\\([0-9]*\\).*/\\1/')
test -d /sys/bus/i2c/devices/$n-0048 || echo ads1015 0x48 > /sys/bus/i2c/devices/i2c-$n/new_device
"""
"""The kernel's converter driver on a chip that is only registers; ``n`` is its bus."""

BASE_S = 1_772_337_600.0
HOME = (27.7, 85.5)
MOVED = (27.701, 85.5)
"""111.2 m north: the receiver has been carried away."""


def fake_receiver(path: str) -> str:
    """Gpsd on port 2950 with a receiver that sends what the file has, over and over."""
    return (
        "systemctl stop gpsfake 2>/dev/null || true; systemctl reset-failed gpsfake 2>/dev/null || true;"
        f" systemd-run -q --unit=gpsfake --collect gpsfake -q -c 0.3 -P 2950 {path}"
    )


class Mast:
    """The gateway in the guest."""

    def __init__(self, machine: Machine, ports: Ports) -> None:
        self._machine = machine
        self._ports = ports

    def channel(self, name: str) -> dict[str, Any]:
        """A channel's last reading; empty before the first."""
        channels: dict[str, dict[str, Any]] = self._ports.status_now().get("channels", {})
        return channels.get(name, {})

    def convert(self, word: int) -> None:
        """Put a word into the chip's conversion register, as SMBus swaps it."""
        swapped = (word & 0xFF) << 8 | word >> 8
        self._machine.run(f"{STUB} i2cset -f -y $n 0x48 0 0x{swapped:04x} w")

    def unload(self) -> None:
        """Take the chip from its driver."""
        self._machine.run(
            f"{STUB} echo 0x48 > /sys/bus/i2c/devices/i2c-$n/delete_device;"
            " test ! -d /sys/bus/i2c/devices/$n-0048"
        )


@pytest.fixture(scope="module")
def mast(machine: Machine, ports: Ports, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mast]:
    directory = tmp_path_factory.mktemp("receiver")
    for name, position in (("home", HOME), ("moved", MOVED)):
        (directory / f"{name}.nmea").write_bytes(b"".join(second(BASE_S + n, *position) for n in range(60)))
    # Fixes for a while, then none: gpsd goes on all the time.
    lost = [second(BASE_S + n, *HOME) if n < 20 else second_without_fix(BASE_S + n) for n in range(40)]
    (directory / "lost.nmea").write_bytes(b"".join(lost))
    for path in sorted(directory.iterdir()):
        machine.push(path, "/opt/")
    machine.run(
        f"{STUB} {fake_receiver('/opt/home.nmea')};"
        f" cat > /etc/fieldgate/gateway.toml <<'END'\n{CONFIG}END\n"
        " fieldgate check 1>&2; systemctl restart fieldgate"
    )
    yield Mast(machine, ports)
    machine.run("systemctl stop fieldgate gpsfake 2>/dev/null; true")


@pytest.mark.timeout(900)
def test_the_kernels_converter_is_read_through_iio(mast: Mast) -> None:
    # 0x1234 >> 4 = 291 codes of 1 mV: the kernel's ads1015 is at ±2.048 V unless its overlay sets another.
    mast.convert(0x1234)
    reading = eventually(
        lambda: mast.channel("baro.pressure"), 180, until=lambda each: each.get("raw") == pytest.approx(0.291)
    )
    assert reading["value"] == pytest.approx(21.79 * 0.291 + 10.55)
    assert (reading["unit"], reading["raw_unit"], reading["quality"]) == ("kPa", "V", 4)
    assert "UNDER_RANGE" in reading["reasons"]
    mast.convert(1700 << 4)
    reading = eventually(
        lambda: mast.channel("baro.pressure"), 60, until=lambda each: each.get("raw") == pytest.approx(1.7)
    )
    assert reading["value"] == pytest.approx(21.79 * 1.7 + 10.55)
    # So large a step may well be suspect.
    assert reading["quality"] in (1, 3)


@pytest.mark.timeout(900)
def test_a_converter_beyond_its_range_and_one_that_goes_and_comes_back(mast: Mast) -> None:
    mast.convert(0x7FF0)
    reading = eventually(
        lambda: mast.channel("baro.pressure"), 60, until=lambda each: each.get("raw") == pytest.approx(2.047)
    )
    assert "OVER_RANGE" in reading["reasons"]
    assert reading["quality"] == 4
    mast.unload()
    reading = eventually(
        lambda: mast.channel("baro.pressure"), 60, until=lambda each: each.get("quality") == 9
    )
    assert (reading["value"], reading["reasons"]) == (None, ["READ_ERROR"])
    mast.convert(1500 << 4)
    reading = eventually(
        lambda: mast.channel("baro.pressure"), 60, until=lambda each: each.get("raw") == pytest.approx(1.5)
    )
    assert reading["quality"] in (1, 3)


@pytest.mark.timeout(900)
def test_gpsd_fed_by_gpsfake(mast: Mast, machine: Machine) -> None:
    at_home = eventually(
        lambda: mast.channel("gps.location"), 180, until=lambda each: each.get("value") is not None
    )
    assert at_home["value"] == pytest.approx(0, abs=0.1)
    machine.run(fake_receiver("/opt/moved.nmea"))
    away = eventually(
        lambda: mast.channel("gps.location"), 120, until=lambda each: (each.get("value") or 0) > 1
    )
    assert away["value"] == pytest.approx(distance_m(*HOME, *MOVED), abs=0.3)
    machine.run(fake_receiver("/opt/lost.nmea"))
    eventually(lambda: "the receiver has no fix" in machine.run("journalctl -u fieldgate -o cat"), 180)
    machine.run("systemctl stop gpsfake")
    lost = eventually(lambda: mast.channel("gps.location"), 120, until=lambda each: each.get("quality") == 9)
    assert (lost["value"], lost["reasons"]) == (None, ["READ_ERROR"])
    machine.run(fake_receiver("/opt/home.nmea"))
    found = eventually(
        lambda: mast.channel("gps.location"), 120, until=lambda each: each.get("value") is not None
    )
    assert found["value"] == pytest.approx(0, abs=0.1)


@pytest.mark.timeout(300)
def test_the_log_names_what_was_wrong(mast: Mast, machine: Machine) -> None:
    lines = machine.run("journalctl -u fieldgate -o cat")
    assert "sensor=baro error=ads1015 in_voltage0_raw: the device has gone: was its module unloaded?" in lines
    assert "sensor=gps error=the receiver has no fix" in lines
    assert "sensor=gps error=gpsd closed the connection" in lines
