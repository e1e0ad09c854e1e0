"""DS18B20 thermometers as the kernel prints them: bytes, checksums, and temperatures that are none."""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from cloud.wire.quantities import QUANTITIES
from drivers.driver_type import OptionError
from drivers.emulation.board import EmulatedW1
from drivers.emulation.environment import Fault
from drivers.generic.w1 import (
    TYPE,
    W1Options,
    W1Thermometer,
    crc8,
    scratchpad_of,
    scratchpad_with,
    temperature_c,
)
from drivers.hardware.sysfs import SysfsW1
from drivers.interface import Board, BoardError, ChecksumError, ReadError
from tests.support.masts import fitted, replayed, sample, ten_minute_values
from tests.unit.drivers.emulation.test_faults import run

AIR = QUANTITIES["temperature"]
ID, OTHER = "28-0316a2794cff", "28-0316a2795aff"


class Bus:
    """A board with an emulated bus: what each thermometer's registers have, None where it is unplugged."""

    def __init__(self, *ids: str) -> None:
        self.slaves: dict[str, bytes | None] = dict.fromkeys(ids, scratchpad_with(21.5))
        self.bus = EmulatedW1()
        self.bus.slaves = {each: partial(self.slaves.__getitem__, each) for each in ids}

    def w1(self) -> EmulatedW1:
        return self.bus

    @property
    def board(self) -> Board:
        return self  # type: ignore[return-value] # the part of a board this driver uses


def started(bus: Bus, device: str | None = None) -> W1Thermometer:
    driver = W1Thermometer(bus.board, W1Options(AIR, device))
    driver.start()
    return driver


def with_crc(data: str) -> bytes:
    found = bytes.fromhex(data)
    return found + bytes((crc8(found),))


# The data sheet's table of temperatures and codes.
@pytest.mark.parametrize(
    ("code", "celsius"),
    [("d007", 125.0), ("9101", 25.0625), ("a200", 10.125), ("0800", 0.5), ("0000", 0.0), ("f8ff", -0.5),
     ("5eff", -10.125), ("6fFe", -25.0625), ("90fc", -55.0)],
)  # fmt: skip
def test_the_data_sheets_codes(code: str, celsius: float) -> None:
    assert temperature_c(with_crc(f"{code}4b467fff0c10")) == celsius


@pytest.mark.parametrize("config", ["70", "75", "7f"])
def test_a_ds1825_has_its_address_beside_the_resolution(config: str) -> None:
    assert temperature_c(with_crc(f"91014b46{config}ff0f10")) == 25.0625


def test_a_thermocouples_converter_has_other_registers() -> None:
    with pytest.raises(ReadError, match="thermocouple"):
        temperature_c(with_crc("900190 17 f0ffffff"))


def test_a_print_of_the_kernels_documentation() -> None:
    text = "72 01 4b 46 7f ff 0e 10 57 : crc=57 YES\n72 01 4b 46 7f ff 0e 10 57 t=23125\n"
    assert temperature_c(scratchpad_of(text)) == 23.125


@given(st.floats(-55, 125))
def test_a_temperature_comes_back_within_half_a_step(celsius: float) -> None:
    found = scratchpad_with(celsius)
    if found[:2] == b"\x50\x05":
        with pytest.raises(ReadError, match="85 °C"):
            temperature_c(found)
    else:
        assert abs(temperature_c(found) - celsius) <= 1 / 32


@given(st.floats(-55, 80), st.integers(0, 71))
def test_no_single_wrong_bit_passes(celsius: float, bit: int) -> None:
    wrong = int.from_bytes(scratchpad_with(celsius), "big") ^ 1 << bit
    text = f"{wrong.to_bytes(9, 'big').hex(' ')} : crc=00 YES\n"
    with pytest.raises(ChecksumError):
        scratchpad_of(text)


@pytest.mark.parametrize(
    ("config", "celsius"), [("1f", 25.0), ("3f", 25.25), ("5f", 25.375), ("7f", 25.4375)]
)
def test_bits_beyond_the_chips_resolution_are_left_out(config: str, celsius: float) -> None:
    assert temperature_c(with_crc(f"97014b46{config}ff0910")) == celsius


@pytest.mark.parametrize(
    ("scratchpad", "words"),
    [
        ("50054b467fff0c10", "85 °C, which it has at power-on"),
        ("ff074b467fff0c10", "127.94 °C, which it has where its supply is too weak"),
        ("0000000000000000", "only zeros: the data wire is shorted to ground"),
    ],
)
def test_what_its_registers_have_without_a_conversion_is_no_temperature(scratchpad: str, words: str) -> None:
    with pytest.raises(ReadError, match=words):
        temperature_c(with_crc(scratchpad))


# The driver.


def test_the_only_thermometer_needs_no_id() -> None:
    driver = started(Bus(ID))
    (found,) = driver.read()
    assert (found.quantity, found.value, found.raw, found.reasons) == ("temperature", 21.5, 21.5, ())
    assert driver.diagnose() == ()


def test_of_several_the_config_names_one() -> None:
    bus = Bus(ID, OTHER)
    bus.slaves[OTHER] = scratchpad_with(-3.25)
    assert started(bus, OTHER).read()[0].value == -3.25
    with pytest.raises(BoardError, match=f"there are 2 thermometers: set device to one of {ID}, {OTHER}"):
        started(bus)
    with pytest.raises(BoardError, match=f"no thermometer 28-00000000000a answers.*there are {ID}, {OTHER}"):
        started(bus, "28-00000000000a")
    with pytest.raises(BoardError, match="dtoverlay=w1-gpio"):
        started(Bus())


def test_a_wrong_checksum_is_one_though_the_kernel_prints_a_temperature() -> None:
    bus = Bus(ID)
    driver = started(bus)
    driver.read()
    good = scratchpad_with(30.0)
    bus.slaves[ID] = good[:8] + bytes((good[8] ^ 1,))
    assert "NO\n" in bus.bus.read(ID)
    assert "t=21500" in bus.bus.read(ID)
    with pytest.raises(ChecksumError, match=f"{ID}: checksum of .* is wrong"):
        driver.read()
    assert driver.diagnose()[0].startswith(f"{ID}: checksum of")
    bus.slaves[ID] = good
    assert driver.read()[0].value == 30.0
    assert driver.diagnose() == ()


def test_one_that_is_unplugged_or_just_came_back_has_no_value() -> None:
    bus = Bus(ID)
    driver = started(bus)
    bus.slaves[ID] = None
    with pytest.raises(ReadError, match=f"{ID}: it has gone from the bus: check its wires"):
        driver.read()
    bus.slaves[ID] = with_crc("50054b467fff0c10")
    with pytest.raises(ReadError, match=f"{ID}: 85 °C, which it has at power-on"):
        driver.read()
    bus.slaves[ID] = scratchpad_with(20.0)
    assert driver.read()[0].value == 20.0


def test_the_kernels_other_errors_are_in_its_words() -> None:
    bus = Bus(ID)
    driver = started(bus)

    def broken() -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    bus.bus.slaves[ID] = broken
    with pytest.raises(ReadError, match=f"{ID}: Input/output error"):
        driver.read()
    with pytest.raises(ReadError, match="no bytes of a thermometer"):
        scratchpad_of("\n")


def test_the_kernels_directories(tmp_path: Path) -> None:
    for name in (ID, "00-400000000000", "w1_bus_master1"):
        (tmp_path / name).mkdir()
    (tmp_path / ID / "w1_slave").write_text("72 01 4b 46 7f ff 0e 10 57 : crc=57 YES\n")
    bus = SysfsW1(tmp_path)
    assert bus.devices() == ("00-400000000000", ID, "w1_bus_master1")
    assert temperature_c(scratchpad_of(bus.read(ID))) == 23.125
    with pytest.raises(FileNotFoundError):
        bus.read(OTHER)
    assert SysfsW1(tmp_path / "none").devices() == ()


# On an emulated board.


def test_faults_of_the_wire() -> None:
    air = fitted("air", "w1", quantity=AIR)
    taken = run([air], [Fault("air", "open-input", 3, 3), Fault("air", "bit-errors", 6, 3, amount=1.0)], 12)[
        "air"
    ]
    kinds = [type(one.got) for one in taken]
    assert kinds == [tuple] * 3 + [ReadError] * 3 + [ChecksumError] * 3 + [tuple] * 3


def test_recorded_temperatures_come_back_within_half_a_step(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    path = tmp_path / "mast.csv"
    truth = [float(row["T2m"]) for row in ten_minute_values(path, T2m=lambda at: at / 7 - 12)]
    air = fitted("air", "w1", quantity=AIR)
    board = replayed(path, [air], {"air": "T2m"}, utc_offset_h=0.0)
    taken = sample(board, [air], {"air": 600.0})["air"]
    worst = max(abs(one.value - true) for one, true in zip(taken, truth, strict=True))
    assert worst <= 1 / 32
    record_property("temperature", f"{worst:.3g}")
    print(f"w1: {worst:.4f} of {1 / 16}")  # noqa: T201


# The config.


@pytest.mark.parametrize(
    ("options", "key", "words"),
    [
        (W1Options(QUANTITIES["humidity"]), "quantity", "humidity is in %RH, and a thermometer measures Cel"),
        (W1Options(AIR, "10-0316a2794cff"), "device", "families 28, 22, 3b, 42"),
        (W1Options(AIR, "28-0316A2794CFF"), "device", "as in /sys/bus/w1/devices"),
    ],
)
def test_what_no_such_chip_is_or_measures_is_refused(options: W1Options, key: str, words: str) -> None:
    with pytest.raises(OptionError, match=words) as caught:
        TYPE.settle(options, None)
    assert caught.value.key == (key,)
