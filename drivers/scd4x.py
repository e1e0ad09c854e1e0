"""Sensirion SCD4x CO2 sensor through Adafruit's library; it measures every 5 s by itself.

Its signal is the number of CO2 molecules, so ppm depend on the air's pressure: from a barometer of this mast
(``pressure_from``), else from the elevation. A temperature offset set in the sensor stays.

Source: Sensirion SCD4x datasheet, version 1.7.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Final, Literal

from annotated_types import Ge, Le

from drivers.driver_type import Claim, Concern, DriverType, EmulatedHardware, Nameplate, Need, Remove
from drivers.hardware.quiet_import import INSTALL, quiet_import
from drivers.interface import (
    Board,
    BoardError,
    Channel,
    ChecksumError,
    DriverError,
    FittedSensor,
    Located,
    Measurement,
    ReadError,
)
from drivers.option_docs import Meaning

log = logging.getLogger(__name__)

PERIOD_S: Final = 5.0
WARM_UP_S: Final = 180.0
"""Three times the response time (τ63 = 60 s): 95 % of a step; forced calibration waits as long."""

_MAX_AGE_S: Final = 1.5 * PERIOD_S
"""The sensor's own clock drifts against ours, so now and then a read finds nothing new; twice is a fault."""
_FIRST_TIMEOUT_S: Final = PERIOD_S + 1.0
_SILENT_S: Final = 4 * PERIOD_S
"""A sensor that lost its supply for a moment is idle without new data: it is started again."""
_LOWEST_HPA: Final = 700
_HIGHEST_HPA: Final = 1200
_HIGHEST_M: Final = 3000

Variant = Literal["SCD40", "SCD41"]

CHANNELS: Final[dict[Variant, Channel]] = {
    "SCD40": Channel("co2", "ppm", "ppm", 400.0, 2000.0, accuracy=75.0),
    "SCD41": Channel("co2", "ppm", "ppm", 400.0, 5000.0, accuracy=62.5),
}
"""The specified ranges; accuracy at 500 ppm: ±(50 ppm + 5 %), for the SCD41 ±(50 ppm + 2.5 %) up to 1,000."""


@dataclass(frozen=True, slots=True)
class Scd4xOptions:
    """The sensor's variant, and the settings of its compensation and self-calibration."""

    address: Annotated[int, Ge(0x08), Le(0x77), Meaning("I2C address; the sensor has only one")] = 0x62
    variant: Annotated[Variant, Meaning("decides range and accuracy")] = "SCD41"
    pressure_from: Annotated[
        str | None, Meaning("the sensor whose pressure compensates it; the elevation does, unless given")
    ] = None
    elevation_m: Annotated[
        Annotated[float, Ge(-500), Le(9000)] | None,
        Meaning(
            "compensates it where there is no barometer; the gateway's unless given", "m above sea level"
        ),
    ] = None
    self_calibration: Annotated[
        bool | None,
        Meaning("whether it takes its lowest weekly reading for 400 ppm; left as it is unless given"),
    ] = None


def co2_ppm(word: int) -> float:
    """CO2 concentration in ppm from the measurement's first word, which is the figure itself (datasheet)."""
    return float(word)


class Scd4x:
    """An SCD4x in periodic measurement."""

    accumulates = False

    def __init__(self, board: Board, options: Scd4xOptions) -> None:
        self.channels = (CHANNELS[options.variant],)
        self._board = board
        self._options = options
        self._sensor: Any = None
        self._word: int | None = None
        self._word_at = 0.0
        self._warm_at = 0.0
        self._wanted_hpa: int | None = None
        self._set_hpa: int | None = None
        self._description: dict[str, str | float | bool] = {}

    def start(self) -> None:
        """Find, configure and start the sensor; takes half a second. Raises BoardError."""
        adafruit_scd4x = quiet_import("adafruit_scd4x", INSTALL)
        try:
            sensor = adafruit_scd4x.SCD4X(self._board.i2c(), self._options.address)
            self._description = self._configure(sensor)
            sensor.start_periodic_measurement()
        except (ValueError, OSError, RuntimeError) as error:
            raise BoardError(
                f"no SCD4x answers at address 0x{self._options.address:02x} ({error}): check the wiring"
            ) from error
        now = self._board.monotonic()
        self._word, self._word_at, self._warm_at = None, now, now + WARM_UP_S
        self._set_hpa = None
        self._sensor = sensor

    def compensate(self, quantity: str, value: float) -> None:
        """The air's pressure (kPa) for the next reads; one the sensor can't use (70-120 kPa) is left out."""
        hpa = round(value * 10)
        if quantity != "pressure" or not _LOWEST_HPA <= hpa <= _HIGHEST_HPA:
            log.debug("event=scd4x.no_compensation quantity=%s value=%g", quantity, value)
            return
        self._wanted_hpa = hpa

    def read(self) -> tuple[Measurement, ...]:
        """The latest conversion, waiting for the first one. Raises ReadError, ChecksumError."""
        if self._sensor is None:
            raise ReadError("the SCD4x isn't started")
        self._send_pressure()
        fresh = self._fetch() if self._word is not None else self._first()
        now = self._board.monotonic()
        if fresh is not None:
            self._word, self._word_at = fresh, now
        if self._word is None or now - self._word_at > _MAX_AGE_S:
            if now - self._word_at > _SILENT_S:
                self._start_again()
            raise ReadError("the SCD4x has no new measurement")
        value = co2_ppm(self._word)
        reasons = ("WARMING_UP",) if now < self._warm_at else ()
        return (Measurement("co2", value, value, reasons=reasons),)

    def stop(self) -> None:
        """End the measurement; a sensor that has gone meanwhile is left alone."""
        sensor, self._sensor = self._sensor, None
        if sensor is not None:
            try:
                sensor.stop_periodic_measurement()
            except (OSError, RuntimeError):
                return

    def description(self) -> dict[str, str | float | bool]:
        """Serial number, variant, self-calibration and the altitude (m) it compensates for, at ``start``."""
        return dict(self._description)

    def _configure(self, sensor: Any) -> dict[str, str | float | bool]:
        """Configure an idle sensor; its properties afterwards."""
        found: dict[str, str | float | bool] = {"serial": bytes(sensor.serial_number).hex()}
        variant = _variant(sensor)
        if variant is not None:
            found["variant"] = variant
            if variant != self._options.variant:
                log.warning("event=scd4x.variant configured=%s found=%s", self._options.variant, variant)
        wanted = self._options.self_calibration
        enabled = bool(sensor.self_calibration_enabled)
        if wanted is not None and wanted != enabled:
            # Else it is lost with the supply; the EEPROM endures 2,000 writes: so once, not at each start.
            sensor.self_calibration_enabled = wanted
            sensor.persist_settings()
            log.warning("event=scd4x.self_calibration enabled=%s", wanted)
            enabled = bool(sensor.self_calibration_enabled)
        found["self_calibration"] = enabled
        altitude = self._options.elevation_m
        if altitude is not None and 0 <= altitude <= _HIGHEST_M:
            sensor.altitude = round(altitude)
        found["altitude_m"] = float(sensor.altitude)
        return found

    def _start_again(self) -> None:
        log.warning("event=scd4x.start_again silent_s=%g", self._board.monotonic() - self._word_at)
        try:
            self.start()
        except DriverError as error:
            # Not at each read: a stopped sensor and its commands take half a second.
            self._word_at = self._board.monotonic()
            raise ReadError(str(error)) from error

    def _send_pressure(self) -> None:
        hpa = self._wanted_hpa
        if hpa is None or hpa == self._set_hpa:
            return
        try:
            self._sensor.set_ambient_pressure(hpa)
        except (OSError, RuntimeError) as error:
            raise ReadError(f"the SCD4x doesn't take the pressure: {error}") from error
        self._set_hpa = hpa

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
            return int(self._sensor.CO2)
        except OSError as error:
            raise ReadError(f"the SCD4x doesn't answer: {error}") from error
        except RuntimeError as error:
            if "CRC" in str(error):
                raise ChecksumError(f"SCD4x: {error}") from error
            raise ReadError(f"SCD4x: {error}") from error


def _variant(sensor: Any) -> str | None:
    """The chip's own variant; None where library or chip are too old to report it."""
    try:
        name = getattr(sensor, "sensor_variant_name", None)
    except RuntimeError:
        return None
    return None if name is None else str(name)


def settle(options: Scd4xOptions, site: Located | None) -> Scd4xOptions:
    """The gateway's elevation where the sensor has none of its own."""
    if options.elevation_m is not None or site is None:
        return options
    return replace(options, elevation_m=site.elevation_m)


def concerns(options: Scd4xOptions, nameplate: Nameplate) -> Iterator[Concern]:
    """Another variant in the model's name; no source of pressure."""
    model = (nameplate.model or "").upper()
    other = next((name for name in CHANNELS if name in model and name != options.variant), None)
    if other is not None:
        yield Concern(("variant",), f"the model is {nameplate.model}, the variant {options.variant}")
    if options.pressure_from is not None:
        return
    if options.elevation_m is None:
        yield Concern(
            ("driver",),
            "it has no source of the air's pressure: set pressure_from, or elevation_m in [gateway]",
        )
    elif not 0 <= options.elevation_m <= _HIGHEST_M:
        yield Concern(
            ("driver",),
            f"it can't compensate for {options.elevation_m:g} m (0 to {_HIGHEST_M}): set pressure_from",
        )


def emulate(hardware: EmulatedHardware, sensor: FittedSensor) -> Remove:
    """An SCD4x in the environment's CO2."""
    # Here: a mast that simulates nothing doesn't load it.
    from drivers.emulation.parts import EmulatedScd4x

    options: Scd4xOptions = sensor.options
    chip = EmulatedScd4x(hardware.now_ns, partial(hardware.value, f"{sensor.name}.co2"), options.variant)
    return hardware.add_chip(options.address, chip)


TYPE = DriverType(
    "scd4x",
    Scd4xOptions,
    lambda options: (CHANNELS[options.variant],),
    PERIOD_S,
    Scd4x,
    lambda options: [Claim(f"I2C address 0x{options.address:02x}", ("address",))],
    concerns,
    settle,
    emulate,
    longest_read_s=3 * _FIRST_TIMEOUT_S,
    needs=lambda options: (
        [Need(("pressure_from",), options.pressure_from, "pressure")] if options.pressure_from else []
    ),
)
