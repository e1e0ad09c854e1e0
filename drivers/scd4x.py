"""Sensirion SCD4x CO2 sensor through Adafruit's library; it measures every 5 s by itself."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Annotated, Any, Final

from annotated_types import Ge, Le

from drivers.ads1115 import INSTALL
from drivers.driver_type import Claim, DriverType
from drivers.interface import Board, BoardError, Channel, ChecksumError, Measurement, ReadError
from drivers.meaning import Meaning
from drivers.quiet_import import quiet_import

CHANNEL = Channel("co2", "ppm", "ppm", 400.0, 5000.0)

PERIOD_S: Final = 5.0
_MAX_AGE_S: Final = 1.5 * PERIOD_S
"""The sensor's own clock drifts against ours, so now and then a read finds nothing new; twice is a fault."""
_FIRST_TIMEOUT_S: Final = PERIOD_S + 1.0


@dataclass(frozen=True, slots=True)
class Scd4xOptions:
    """The sensor's I2C address (it has only one)."""

    address: Annotated[int, Ge(0x08), Le(0x77), Meaning("I2C address; the sensor has only one")] = 0x62


def co2_ppm(word: int) -> float:
    """CO2 concentration in ppm from the measurement's first word, which is the figure itself (datasheet)."""
    return float(word)


class Scd4x:
    """An SCD4x in periodic measurement."""

    channels = (CHANNEL,)
    accumulates = False

    def __init__(self, board: Board, options: Scd4xOptions) -> None:
        self._board = board
        self._options = options
        self._sensor: Any = None
        self._word: int | None = None
        self._word_at = 0.0

    def start(self) -> None:
        """Find the sensor and start its measurement; takes half a second. Raises BoardError."""
        adafruit_scd4x = quiet_import("adafruit_scd4x", INSTALL)
        try:
            sensor = adafruit_scd4x.SCD4X(self._board.i2c(), self._options.address)
            sensor.start_periodic_measurement()
        except (ValueError, OSError, RuntimeError) as error:
            raise BoardError(
                f"no SCD4x answers at address 0x{self._options.address:02x} ({error}): check the wiring"
            ) from error
        self._word = None
        self._sensor = sensor

    def read(self) -> tuple[Measurement, ...]:
        """The latest conversion, waiting for the first one. Raises ReadError, ChecksumError."""
        if self._sensor is None:
            raise ReadError("the SCD4x isn't started")
        fresh = self._fetch() if self._word is not None else self._first()
        now = self._board.monotonic()
        if fresh is not None:
            self._word, self._word_at = fresh, now
        if self._word is None or now - self._word_at > _MAX_AGE_S:
            raise ReadError("the SCD4x has no new measurement")
        value = co2_ppm(self._word)
        return (Measurement(CHANNEL.quantity, value, value),)

    def stop(self) -> None:
        """End the measurement; a sensor that has gone meanwhile is left alone."""
        sensor, self._sensor = self._sensor, None
        if sensor is not None:
            try:
                sensor.stop_periodic_measurement()
            except (OSError, RuntimeError):
                return

    def _first(self) -> int | None:
        # The first conversion ends 5 s after start; the board's sensors answer in real time here.
        deadline = time.monotonic() + _FIRST_TIMEOUT_S
        pause = threading.Event()
        while (word := self._fetch()) is None and time.monotonic() < deadline:
            pause.wait(0.1)
        return word

    def _fetch(self) -> int | None:
        """The CO2 word if the sensor has a new measurement."""
        try:
            if not self._sensor.data_ready:
                return None
            self._sensor._read_data()
        except OSError as error:
            raise ReadError(f"the SCD4x doesn't answer: {error}") from error
        except RuntimeError as error:
            if "CRC" in str(error):
                raise ChecksumError(f"SCD4x: {error}") from error
            raise ReadError(f"SCD4x: {error}") from error
        return int(self._sensor._co2)


def claims(options: Scd4xOptions) -> tuple[Claim, ...]:
    """The address; the chip shares it with nobody."""
    return (Claim(f"I2C address 0x{options.address:02x}", ("address",)),)


TYPE = DriverType(
    "scd4x", Scd4xOptions, (CHANNEL,), PERIOD_S, Scd4x, claims, longest_read_s=3 * _FIRST_TIMEOUT_S
)
