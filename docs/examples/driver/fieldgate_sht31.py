"""Sensirion SHT31 temperature and humidity sensor on the I2C bus.

Source: Sensirion SHT3x-DIS datasheet, version 7: commands in section 4, conversion in 4.13, accuracy in 2.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Final

from annotated_types import Ge, Le

from drivers.driver_type import Claim, DriverType, EmulatedHardware, Remove
from drivers.interface import (
    Board,
    BoardError,
    Channel,
    ChecksumError,
    FittedSensor,
    I2cBus,
    Measurement,
    ReadError,
)
from drivers.option_docs import Meaning

# What it measures: quantity, its unit on the wire, the raw unit, the sensor's own range, its accuracy.
TEMPERATURE = Channel("temperature", "Cel", "Cel", -40.0, 125.0, accuracy=0.2)
HUMIDITY = Channel("humidity", "%RH", "%RH", 0.0, 100.0, accuracy=2.0)

_SOFT_RESET: Final = bytes([0x30, 0xA2])
_MEASURE: Final = bytes([0x24, 0x00])
"""One measurement, high repeatability, no clock stretching."""
_RESET_S: Final = 0.002
_MEASURE_S: Final = 0.016


# The keys of its [[sensor]] table, beside name, driver, interval_s and the others that every sensor has.
# fieldgate checks types and bounds and finds misspelt keys; Meaning is for editors and `fieldgate init`.
@dataclass(frozen=True, slots=True)
class Sht31Options:
    """The address: 0x44, or 0x45 with ADDR high."""

    address: Annotated[int, Ge(0x44), Le(0x45), Meaning("I2C address: 0x45 with ADDR high")] = 0x44


# The conversion is a pure function, so that it can be tested without any bus.
def decode(frame: bytes) -> tuple[float, float]:
    """Temperature in °C and relative humidity in % of a measurement's six bytes. Raises ChecksumError."""
    words = []
    for word, crc in ((frame[0:2], frame[2]), (frame[3:5], frame[5])):
        if crc8(word) != crc:
            raise ChecksumError(f"SHT31: checksum of {frame.hex()} is wrong")
        words.append(int.from_bytes(word, "big"))
    return -45 + 175 * words[0] / 65535, 100 * words[1] / 65535


def crc8(word: bytes) -> int:
    """CRC-8, polynomial 0x31, initial value 0xFF (0xBEEF gives 0x92)."""
    crc = 0xFF
    for byte in word:
        crc ^= byte
        for _ in range(8):
            crc = (crc << 1 ^ 0x31) & 0xFF if crc & 0x80 else crc << 1
    return crc


class Sht31:
    """One sensor: made without touching hardware, started, read each interval, stopped, started again."""

    channels = (TEMPERATURE, HUMIDITY)
    accumulates = False

    def __init__(self, board: Board, options: Sht31Options) -> None:
        self._board = board
        self._address = options.address
        self._bus: I2cBus | None = None

    def start(self) -> None:
        """Reset the sensor. Raises BoardError, which the person on the mast reads: name the remedy."""
        bus = self._board.i2c()
        try:
            with locked(bus):
                bus.writeto(self._address, _SOFT_RESET)
        except OSError as error:
            raise BoardError(
                f"no SHT31 answers at address 0x{self._address:02x} ({error}): check its wiring and ADDR"
            ) from error
        wait(_RESET_S)
        self._bus = bus

    def read(self) -> tuple[Measurement, ...]:
        """One measurement of both. Raises ReadError, ChecksumError: the reading then has no value."""
        if self._bus is None:
            raise ReadError("the SHT31 isn't started")
        frame = bytearray(6)
        try:
            with locked(self._bus):
                self._bus.writeto(self._address, _MEASURE)
            wait(_MEASURE_S)
            with locked(self._bus):
                self._bus.readfrom_into(self._address, frame)
        except OSError as error:
            raise ReadError(f"the SHT31 doesn't answer: {error}") from error
        temperature_c, humidity_pct = decode(bytes(frame))
        return (
            Measurement("temperature", temperature_c, temperature_c),
            Measurement("humidity", humidity_pct, humidity_pct),
        )

    def stop(self) -> None:
        """The bus is everybody's; there is nothing to give back."""
        self._bus = None


@contextmanager
def locked(bus: I2cBus) -> Iterator[None]:
    """The bus for this thread alone. Raises OSError where another sensor's transaction doesn't end."""
    while not bus.try_lock():
        wait(0.001)
    try:
        yield
    finally:
        bus.unlock()


def wait(seconds: float) -> None:
    """What the sensor needs before it answers; other threads go on."""
    threading.Event().wait(seconds)


# What no second sensor may have: `fieldgate check` names both where two are configured alike.
def claims(options: Sht31Options) -> tuple[Claim, ...]:
    """The address."""
    return (Claim(f"I2C address 0x{options.address:02x}", ("address",)),)


# The sensor on a simulated or replayed mast. Optional, but with it the checks and the demo need no hardware.
class EmulatedSht31:
    """The chip at the level of its commands; ``air`` is °C and %RH now, None where it is dead."""

    def __init__(self, air: Callable[[], tuple[float, float] | None]) -> None:
        self._air = air
        self._reply = b""

    def write(self, sent: bytes) -> None:
        """Take a command."""
        self._reply = b""
        if sent == _MEASURE and (air := self._air()) is not None:
            words = (round((air[0] + 45) / 175 * 65535), round(air[1] / 100 * 65535))
            pairs = [max(0, min(0xFFFF, word)).to_bytes(2, "big") for word in words]
            self._reply = b"".join(pair + bytes([crc8(pair)]) for pair in pairs)

    def read(self, count: int) -> bytes:
        """The measurement. Raises OSError where there is none."""
        if len(self._reply) < count:
            raise OSError(121, "the sensor has no data")
        return self._reply[:count]


def emulate(hardware: EmulatedHardware, sensor: FittedSensor) -> Remove:
    """Add a chip to the bus whose air is the simulated or replayed one."""

    def air() -> tuple[float, float] | None:
        temperature = hardware.value(f"{sensor.name}.temperature")
        humidity = hardware.value(f"{sensor.name}.humidity")
        return None if temperature is None or humidity is None else (temperature, humidity)

    return hardware.add_chip(sensor.options.address, EmulatedSht31(air))


# What fieldgate needs of a driver. 0.1 s is the shortest interval the sensor can be read at.
TYPE = DriverType("sht31", Sht31Options, Sht31.channels, 0.1, Sht31, claims, emulate=emulate)
