"""The SHT31: its formulas, its checksums, and what every driver must do."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fieldgate_sht31 import TYPE, EmulatedSht31, Sht31, Sht31Options, crc8, decode

from drivers.conformance import CHECKS, Subject
from drivers.emulation.board import EmulatedI2c
from drivers.interface import BoardError, ChecksumError, ReadError


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_it_does_what_every_driver_must(check: Callable[[Subject], None]) -> None:
    check(Subject(TYPE, Sht31Options()))


def test_the_datasheets_checksum_and_the_ends_of_the_scales() -> None:
    assert crc8(bytes([0xBE, 0xEF])) == 0x92
    low, high = bytes([0x00, 0x00, 0x81]), bytes([0xFF, 0xFF, 0xAC])
    assert decode(low + high) == (-45.0, 100.0)
    assert decode(high + low) == (130.0, 0.0)
    # 25 °C and 50 %RH, to half a step.
    assert decode(bytes.fromhex("666693 8000a2")) == pytest.approx((25.0, 50.0), abs=0.0014)


class Rig:
    """A board with one sensor in air that the test sets."""

    def __init__(self) -> None:
        self.air: tuple[float, float] | None = (-6.3, 42.0)
        self.bus = EmulatedI2c({0x44: EmulatedSht31(lambda: self.air)})
        self.sensor = Sht31(self, Sht31Options())  # type: ignore[arg-type] # the part of a board it uses

    def i2c(self) -> EmulatedI2c:
        return self.bus


def test_it_reads_below_zero() -> None:
    rig = Rig()
    rig.sensor.start()
    temperature, humidity = rig.sensor.read()
    # One step is 175/65535 = 0.0027 °C and 100/65535 = 0.0015 %RH.
    assert temperature.value == pytest.approx(-6.3, abs=0.0014)
    assert humidity.value == pytest.approx(42.0, abs=0.0008)


def test_a_damaged_frame_is_a_checksum_error_and_silence_a_read_error() -> None:
    rig = Rig()
    rig.sensor.start()
    with pytest.raises(ChecksumError, match="is wrong"):
        decode(bytes.fromhex("666610 8000a2"))
    rig.air = None
    with pytest.raises(ReadError, match="doesn't answer"):
        rig.sensor.read()
    rig.air = (20.0, 50.0)
    assert len(rig.sensor.read()) == 2


def test_an_absent_one_says_where_it_was_looked_for() -> None:
    rig = Rig()
    rig.bus = EmulatedI2c({})
    with pytest.raises(BoardError, match="no SHT31 answers at address 0x44"):
        rig.sensor.start()
