"""DHT11 frames through the real library's decoder."""

from __future__ import annotations

from array import array
from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st

from drivers.dht11 import Dht11, Dht11Options, frame_values
from drivers.emulation.board import dht11_frame, frame_edges
from drivers.interface import ChecksumError, ReadError


class Line:
    """A data line whose next answer is set by hand, and the sensor that listens to it."""

    sensor: Dht11

    def __init__(self) -> None:
        self.answer: array[int] = array("H")
        self.requests = 0
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def dht_edges(self, pin: int) -> Callable[[], array[int]]:
        assert pin == 4
        return self._edges

    def _edges(self) -> array[int]:
        self.requests += 1
        return self.answer


def started() -> tuple[Line, Dht11]:
    line = Line()
    line.sensor = Dht11(line, Dht11Options(4))  # type: ignore[arg-type] # the part of a board a DHT11 uses
    line.sensor.start()
    return line, line.sensor


def values(sensor: Dht11) -> tuple[float, ...]:
    return tuple(measurement.value for measurement in sensor.read())


@given(st.integers(-400, 800), st.integers(1, 1000))
def test_frames_round_trip_through_the_librarys_decoder(
    temperature_tenths: int, humidity_tenths: int
) -> None:
    line, sensor = started()
    line.answer = frame_edges(dht11_frame(temperature_tenths / 10, humidity_tenths / 10))
    assert len(line.answer) == 81
    assert values(sensor) == (temperature_tenths / 10, humidity_tenths / 10)


@given(st.integers(-400, 800), st.integers(0, 1000), st.integers(0, 39))
def test_a_flipped_bit_is_a_checksum_error(temperature_tenths: int, humidity_tenths: int, bit: int) -> None:
    line, sensor = started()
    frame = bytearray(dht11_frame(temperature_tenths / 10, humidity_tenths / 10))
    frame[bit // 8] ^= 0x80 >> bit % 8
    line.answer = frame_edges(bytes(frame))
    with pytest.raises(ChecksumError):
        sensor.read()


@given(st.integers(0, 79))
def test_a_short_train_is_a_read_error(length: int) -> None:
    line, sensor = started()
    line.answer = frame_edges(dht11_frame(21.5, 40))[:length]
    with pytest.raises(ReadError) as caught:
        sensor.read()
    assert not isinstance(caught.value, ChecksumError)


def test_after_an_error_no_old_value_comes_again() -> None:
    line, sensor = started()
    line.answer = frame_edges(dht11_frame(21.5, 40))
    assert values(sensor) == (21.5, 40.0)
    line.answer = frame_edges(bytes([40, 0, 21, 5, 0]))
    for _ in range(2):
        with pytest.raises(ChecksumError):
            sensor.read()
    line.answer = frame_edges(dht11_frame(22.0, 41))
    assert values(sensor) == (22.0, 41.0)


def test_every_read_requests_a_conversion_however_soon() -> None:
    line, sensor = started()
    for tenths in range(200, 210):
        line.answer = frame_edges(dht11_frame(tenths / 10, 50))
        assert values(sensor) == (tenths / 10, 50.0)
    assert line.requests == 10


def test_frame_bytes() -> None:
    assert dht11_frame(24.4, 53.0) == bytes([53, 0, 24, 4, 81])
    assert dht11_frame(-6.3, 72.8) == bytes([72, 8, 6, 0x83, (72 + 8 + 6 + 0x83) & 0xFF])
    assert dht11_frame(-0.04, 0.0) == bytes(5)
    assert frame_values(dht11_frame(-0.1, 100.0)) == (-0.1, 100.0)
    # What a frame can't hold is clipped by the sensor, not by us.
    assert frame_values(dht11_frame(-200.0, 130.0)) == (-127.9, 100.0)
