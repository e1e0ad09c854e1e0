"""A DHT11's data line: 81 durations in µs, starting low, as Adafruit's bit-banging reader sees them.

Source: DHT11 datasheet: 50 µs low before each bit, then 26-28 µs high for 0 or 70 µs for 1.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable
from typing import Final

_LOW_US, _ZERO_US, _ONE_US = 50, 27, 70
_SIGN: Final = 0x80

Air = tuple[float, float]
"""Temperature in °C and relative humidity in %."""


def dht11_frame(temperature_c: float, humidity_pct: float) -> bytes:
    """The five bytes of a conversion, to tenths; what a frame can't hold is clipped as the sensor does."""
    humidity_tenths = max(0, min(1000, round(humidity_pct * 10)))
    temperature_tenths = max(-1279, min(1279, round(temperature_c * 10)))
    humidity, humidity_rest = divmod(humidity_tenths, 10)
    temperature, temperature_rest = divmod(abs(temperature_tenths), 10)
    sign = _SIGN if temperature_tenths < 0 else 0
    body = bytes([humidity, humidity_rest, temperature, temperature_rest | sign])
    return body + bytes([sum(body) & 0xFF])


def frame_edges(frame: bytes) -> array[int]:
    """The line's durations for a frame, most significant bit first, with the closing low."""
    durations = array("H")
    for byte in frame:
        for bit in range(7, -1, -1):
            durations.append(_LOW_US)
            durations.append(_ONE_US if byte >> bit & 1 else _ZERO_US)
    durations.append(_LOW_US)
    return durations


class EmulatedDht11:
    """The sensor: each request reads the conversion begun by the one before and begins the next.

    The first request reads the conversion of power-up. Without air the line stays silent.
    """

    def __init__(self, power_up: Air | None, air: Callable[[], Air | None]) -> None:
        self._air = air
        self._converted = power_up
        self._lock = threading.Lock()

    def edges(self) -> array[int]:
        """The line's durations after a request."""
        with self._lock:
            answer, self._converted = self._converted, self._air()
        return array("H") if answer is None else frame_edges(dht11_frame(*answer))
