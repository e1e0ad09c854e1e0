"""DHT11 temperature and humidity through Adafruit's library.

The library decides whether a frame is whole. The values are decoded from the frame's bytes: the library
drops the sign of the temperature and the tenths of the humidity, and its properties repeat the previous
values after a checksum error.

An answer is the conversion that the request before began (datasheet), so a reading is as old as that request;
``prime`` makes it ahead of time. An answer older than 10 s, or of unknown age, carries WARMING_UP.

The checksum sees every single wrong bit, but 5.8 % of pairs pass it, and a line whose edges slipped by one
decodes as zeros, whose sum is right. Hence the two tests beside it, in ``doubt``.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from drivers.driver_type import Claim, DriverType, EmulatedHardware, Remove
from drivers.hardware.lines import ANSWER_S, START_S, DhtLine
from drivers.hardware.quiet_import import INSTALL, quiet_import
from drivers.interface import Board, Channel, ChecksumError, FittedSensor, Measurement, ReadError
from drivers.option_docs import BcmPin

TEMPERATURE = Channel("temperature", "Cel", "Cel", 0.0, 50.0, accuracy=2.0)
HUMIDITY = Channel("humidity", "%RH", "%RH", 20.0, 90.0, accuracy=5.0)

LONGEST_READ_S: Final = START_S + ANSWER_S + 2.0
"""A read may have to start the process that times the line again."""
SPACING_S: Final = 2.0
"""The sensor wants this long between two requests (datasheet)."""
_FRESH_S: Final = 10.0
_SIGN: Final = 0x80
_PULSES: Final = 81
_TOO_CLOSE_US: Final = range(49, 54)
"""The library takes more than 51 µs for a 1. The sensor's are 26 to 28 and 70; this near, it is a guess.

No wider: polled every 14 µs, 68 µs may come out as 56.
"""
_FOREIGN_HUMIDITY: Final = 3
"""A DHT22's first byte, a multiple of 25.6 %, is never above it; a DHT11's is the humidity in %."""


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
    return (0.0 - magnitude if negative else magnitude, (humidity * 10 + humidity_tenths) / 10)


def doubt(frame: bytes, durations_us: Sequence[int]) -> str | None:
    """Why a frame is refused though its checksum is right, or None: two wrong bits may cancel each other."""
    if not any(frame):
        return "the frame is all zeros, as a line is whose edges were missed"
    close = sum(high in _TOO_CLOSE_US for high in durations_us[1:80:2])
    return f"{close} bits are too close to call" if close > 1 else None


class Dht11:
    """A DHT11 on one pin."""

    channels = (TEMPERATURE, HUMIDITY)
    accumulates = False

    def __init__(self, board: Board, options: Dht11Options) -> None:
        self._board = board
        self._options = options
        self._sensor: Any = None
        self._line: DhtLine | None = None
        self._edges: Callable[[], array[int]] | None = None
        self._pulses: array[int] = array("H")
        self._requested_s: float | None = None
        self._foreign = False
        self._fault: str | None = None

    def start(self) -> None:
        """Set up the library on the pin. Raises BoardError."""
        adafruit_dht = quiet_import("adafruit_dht", INSTALL)
        edges = self._board.dht_edges(self._options.pin)
        if edges is None:
            self._line = DhtLine(self._options.pin)
            self._line.open()
            edges = self._line.edges
        elif self._requested_s is None:
            # An emulated sensor was powered up with its board.
            self._requested_s = self._board.monotonic()
        sensor = adafruit_dht.DHT11(self._options.pin, use_pulseio=False)
        self._edges = edges
        sensor._get_pulses_bitbang = self._capture
        self._sensor = sensor

    def prime(self) -> None:
        """Begin a conversion, for a read ``SPACING_S`` or more later. Raises ReadError."""
        self._capture()

    def read(self) -> tuple[Measurement, ...]:
        """Begin a conversion and take the one before. Raises ReadError, ChecksumError."""
        if self._sensor is None:
            raise ReadError("the DHT11 isn't started")
        now_s, asked_s = self._board.monotonic(), self._requested_s
        fresh = asked_s is not None and now_s - asked_s <= _FRESH_S
        # Else the library answers from its cache whenever 2 s or less have passed.
        self._sensor._last_called = 0
        self._fault = f"the DHT11 on pin {self._options.pin} couldn't be read"
        try:
            self._sensor.measure()
        except RuntimeError as error:
            raise self._refused(str(error)) from error
        frame = bytes(self._sensor._pulses_to_binary(self._pulses, at, at + 16) for at in range(0, 80, 16))
        temperature, humidity = self._decoded(frame)
        self._fault = None
        reasons = () if fresh else ("WARMING_UP",)
        return (
            Measurement(TEMPERATURE.quantity, temperature, temperature, reasons=reasons),
            Measurement(HUMIDITY.quantity, humidity, humidity, reasons=reasons),
        )

    def stop(self) -> None:
        """Release the line."""
        sensor, self._sensor = self._sensor, None
        line, self._line, self._edges = self._line, None, None
        if sensor is not None:
            sensor.exit()
        if line is not None:
            line.close()
        self._fault = None

    def diagnose(self) -> tuple[str, ...]:
        """The wiring fault that the last read shows."""
        return () if self._fault is None else (self._fault,)

    def _capture(self) -> array[int]:
        if self._edges is None:
            raise ReadError("the DHT11 isn't started")
        asked_s = self._board.monotonic()
        self._pulses = self._edges()
        self._requested_s = asked_s
        return self._pulses

    def _decoded(self, frame: bytes) -> tuple[float, float]:
        """A whole frame's values. Raises ReadError where they are implausible."""
        doubted = doubt(frame, self._pulses)
        if doubted is not None:
            raise self._refused(doubted)
        try:
            values = frame_values(frame)
        except ReadError as error:
            self._foreign = True
            raise self._refused(str(error)) from error
        # One in 300 of a DHT22's frames could be a DHT11's, in air of below 4 %RH.
        self._foreign = self._foreign and frame[0] <= _FOREIGN_HUMIDITY
        if self._foreign:
            raise self._refused("the frame is like a DHT22's: is the sensor one?")
        return values

    def _refused(self, why: str) -> ReadError:
        """The error for a refused conversion; sets the fault that ``diagnose`` returns."""
        where = f"the DHT11 on pin {self._options.pin}"
        checksum = "hecksum" in why
        count = len(self._pulses)
        if self._foreign:
            self._fault = f"{where} sends a DHT22's frames: only a DHT11 is supported"
        elif count < 10:
            self._fault = (
                f"{where} doesn't answer ({count} of {_PULSES} pulses): is it powered, is its data wire on"
                " this pin, is there a pull-up of 5.1 kΩ from data to supply?"
            )
        else:
            self._fault = (
                f"{where} is received badly ({why}; {count} of {_PULSES} pulses): shorten the wire,"
                " strengthen the pull-up, keep it from mains cables"
            )
        return (ChecksumError if checksum else ReadError)(f"{where}: {why}")


def emulate(hardware: EmulatedHardware, sensor: FittedSensor) -> Remove:
    """A DHT11 in the environment's air."""

    def air() -> tuple[float, float] | None:
        temperature = hardware.value(f"{sensor.name}.temperature")
        humidity = hardware.value(f"{sensor.name}.humidity")
        return None if temperature is None or humidity is None else (temperature, humidity)

    return hardware.add_dht11(sensor.name, sensor.options.pin, air)


TYPE = DriverType(
    "dht11",
    Dht11Options,
    (TEMPERATURE, HUMIDITY),
    SPACING_S,
    Dht11,
    lambda options: [Claim(f"BCM pin {options.pin}", ("pin",))],
    emulate=emulate,
    longest_read_s=LONGEST_READ_S,
    retry_after_s=SPACING_S,
)
