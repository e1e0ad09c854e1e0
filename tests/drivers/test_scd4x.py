"""The SCD4x's commands and checksums through Adafruit's library."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.boards.emulated_i2c import EmulatedI2c
from drivers.boards.emulated_scd4x import Air, EmulatedScd4x, crc8
from drivers.interface import BoardError, ChecksumError, ReadError
from drivers.scd4x import Scd4x, Scd4xOptions
from tests.drivers.masts import SECOND_NS


class Room:
    """A sensor in air set by hand, with seconds moved by hand."""

    def __init__(self) -> None:
        self.seconds = 100.0
        self.co2: float | None = 500.0
        self.breathed_at: list[float] = []
        self.chip = EmulatedScd4x(lambda: round(self.seconds * SECOND_NS), self._breathe)
        self.bus = EmulatedI2c({0x62: self.chip})
        self.sensor = Scd4x(self, Scd4xOptions())  # type: ignore[arg-type] # the part of a board it uses

    def _breathe(self, time_ns: int) -> Air | None:
        self.breathed_at.append(time_ns / SECOND_NS)
        return None if self.co2 is None else Air(self.co2, 25.002, 37.001)

    def i2c(self) -> EmulatedI2c:
        return self.bus

    def monotonic(self) -> float:
        return self.seconds

    def read(self) -> float:
        return self.sensor.read()[0].value


@pytest.fixture
def room() -> Room:
    room = Room()
    room.sensor.start()
    return room


def test_crc_of_the_datasheets_examples() -> None:
    assert crc8(bytes([0xBE, 0xEF])) == 0x92
    assert crc8(bytes([0x01, 0xF4])) == 0x33
    assert crc8(bytes([0x66, 0x67])) == 0xA2
    assert crc8(bytes([0x5E, 0xB9])) == 0x3C


@given(st.binary(min_size=2, max_size=2), st.integers(0, 15))
def test_crc_sees_every_flipped_bit(word: bytes, bit: int) -> None:
    flipped = bytearray(word)
    flipped[bit // 8] ^= 1 << bit % 8
    assert crc8(word) != crc8(bytes(flipped))


def test_the_datasheets_measurement(room: Room) -> None:
    # 500 ppm, 25 °C, 37 %RH is 01F4 33 6667 A2 5EB9 3C.
    assert room.sensor._sensor.data_ready
    room.chip.write(bytes([0xEC, 0x05]))
    assert room.chip.read(9).hex() == "01f4336667a25eb93c"


def test_each_period_gives_one_new_measurement(room: Room) -> None:
    assert room.read() == 500.0
    for ppm in (510.0, 520.0, 530.0):
        room.co2, room.seconds = ppm, room.seconds + 5
        assert room.read() == ppm
    assert room.breathed_at == [100.0, 105.0, 110.0, 115.0]


def test_between_measurements_the_last_one_stands_for_a_period_and_a_half_then_no_longer(room: Room) -> None:
    assert room.read() == 500.0
    room.co2, room.seconds = 600.0, 104.9
    assert room.read() == 500.0
    room.chip.write(bytes([0x3F, 0x86]))
    room.seconds = 107.4
    assert room.read() == 500.0
    room.seconds = 107.6
    with pytest.raises(ReadError, match="no new measurement"):
        room.read()


def test_a_dead_sensor_is_a_read_error(room: Room) -> None:
    room.co2 = None
    with pytest.raises(ReadError) as caught:
        room.read()
    assert not isinstance(caught.value, ChecksumError)
    room.co2, room.seconds = 450.0, 105.0
    assert room.read() == 450.0


def test_a_damaged_answer_is_a_checksum_error(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    read = room.chip.read

    def damaged(count: int) -> bytes:
        answer = bytearray(read(count))
        if count == 9:
            answer[1] ^= 0x01
        return bytes(answer)

    monkeypatch.setattr(room.chip, "read", damaged)
    with pytest.raises(ChecksumError, match="CRC"):
        room.read()


def test_an_absent_sensor_is_a_board_error() -> None:
    room = Room()
    room.bus = EmulatedI2c({})
    with pytest.raises(BoardError, match="no SCD4x answers at address 0x62"):
        room.sensor.start()


def test_while_measuring_the_chip_refuses_what_needs_it_idle(room: Room) -> None:
    with pytest.raises(OSError, match="while it measures"):
        room.chip.write(bytes([0x36, 0x82]))
    room.sensor.stop()
    room.chip.write(bytes([0x36, 0x82]))
    assert len(room.chip.read(9)) == 9
