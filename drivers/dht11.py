"""DHT11 temperature and humidity through Adafruit's library; a read returns the sensor's previous conversion.

The library decides whether a frame is whole. The figures are taken from the frame's bytes: the library
drops the sign of the temperature and the tenths of the humidity, and its properties give the previous values
again after a checksum error.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from drivers.ads1115 import INSTALL
from drivers.driver_type import Claim, DriverType
from drivers.interface import Board, BoardError, Channel, ChecksumError, Measurement, ReadError
from drivers.meaning import BcmPin
from drivers.quiet_import import quiet_import

TEMPERATURE = Channel("temperature", "Cel", "Cel", 0.0, 50.0)
HUMIDITY = Channel("humidity", "%RH", "%RH", 20.0, 90.0)

_SIGN = 0x80


@dataclass(frozen=True, slots=True)
class Dht11Options:
    """The data line's pin (BCM)."""

    pin: BcmPin


def frame_values(frame: bytes) -> tuple[float, float]:
    """Temperature in °C and relative humidity in % of a frame whose checksum is right; never clamped.

    Bytes: humidity, its tenths, temperature, its tenths with the sign in bit 7, checksum (DHT11 datasheet).
    Raises ReadError where the tenths are none: a DHT22 sends other frames.
    """
    humidity, humidity_tenths, temperature, temperature_tenths = frame[:4]
    negative, temperature_tenths = temperature_tenths & _SIGN, temperature_tenths & ~_SIGN
    if humidity_tenths > 9 or temperature_tenths > 9:
        raise ReadError("the frame isn't a DHT11's: is the sensor a DHT22?")
    magnitude = (temperature * 10 + temperature_tenths) / 10
    return (-magnitude if negative else magnitude, (humidity * 10 + humidity_tenths) / 10)


class Dht11:
    """A DHT11 on one pin."""

    channels = (TEMPERATURE, HUMIDITY)
    accumulates = False

    def __init__(self, board: Board, options: Dht11Options) -> None:
        self._board = board
        self._options = options
        self._sensor: Any = None
        self._edges: Callable[[], array[int]] | None = None
        self._pulses: array[int] = array("H")

    def start(self) -> None:
        """Set up the library on the pin. Raises BoardError."""
        adafruit_dht = quiet_import("adafruit_dht", INSTALL)
        edges = self._board.dht_edges(self._options.pin)
        pin = self._board_pin() if edges is None else self._options.pin
        sensor = adafruit_dht.DHT11(pin, use_pulseio=False)
        self._edges = edges if edges is not None else sensor._get_pulses_bitbang
        sensor._get_pulses_bitbang = self._capture
        self._sensor = sensor

    def read(self) -> tuple[Measurement, ...]:
        """Trigger a conversion and take the previous one. Raises ReadError, ChecksumError."""
        if self._sensor is None:
            raise ReadError("the DHT11 isn't started")
        # Else the library answers from its cache whenever 2 s or less have passed.
        self._sensor._last_called = 0
        try:
            self._sensor.measure()
        except RuntimeError as error:
            if "hecksum" in str(error):
                raise ChecksumError(f"DHT11 on pin {self._options.pin}: {error}") from error
            raise ReadError(f"DHT11 on pin {self._options.pin}: {error}") from error
        frame = bytes(self._sensor._pulses_to_binary(self._pulses, at, at + 16) for at in range(0, 80, 16))
        temperature, humidity = frame_values(frame)
        return (
            Measurement(TEMPERATURE.quantity, temperature, temperature),
            Measurement(HUMIDITY.quantity, humidity, humidity),
        )

    def stop(self) -> None:
        """Let the line go."""
        sensor, self._sensor = self._sensor, None
        if sensor is not None:
            sensor.exit()

    def _capture(self) -> array[int]:
        if self._edges is None:
            raise ReadError("the DHT11 isn't started")
        self._pulses = self._edges()
        return self._pulses

    def _board_pin(self) -> object:
        pins = quiet_import("board", INSTALL)
        name = f"D{self._options.pin}"
        if not hasattr(pins, name):
            raise BoardError(f"this machine has no pin {name}: the DHT11 needs a Raspberry Pi's header")
        return getattr(pins, name)


def claims(options: Dht11Options) -> tuple[Claim, ...]:
    """The data line."""
    return (Claim(f"BCM pin {options.pin}", ("pin",)),)


TYPE = DriverType("dht11", Dht11Options, (TEMPERATURE, HUMIDITY), 2.0, Dht11, claims)
