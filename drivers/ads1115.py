"""One input of an ADS1115 converter, read through Adafruit's library.

A conversion is three transactions (start, poll, fetch) and the chip has one multiplexer, so sensors on one
chip hold a lock of it. A fourth transaction reads the settings back: a chip whose supply broke down for a
moment has its defaults, and its codes would be taken for another gain's.

Source of all figures: Texas Instruments' ADS1115 datasheet, SBAS444.
"""

from __future__ import annotations

import errno
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from annotated_types import Ge, Le

from drivers.driver_type import WIRING, Claim, Concern
from drivers.hardware.bus_lock import TimedLock
from drivers.hardware.quiet_import import INSTALL, quiet_import
from drivers.interface import Board, BoardError, I2cBus, ReadError
from drivers.option_docs import Meaning

AdcPins = Literal[0, 1, 2, 3, "0-1", "0-3", "1-3", "2-3"]
AdcGain = Literal["6.144V", "4.096V", "2.048V", "1.024V", "0.512V", "0.256V"]
AdcRate = Literal[8, 16, 32, 64, 128, 250, 475, 860]

FULL_SCALE_V: Final = {
    "6.144V": 6.144, "4.096V": 4.096, "2.048V": 2.048, "1.024V": 1.024, "0.512V": 0.512, "0.256V": 0.256,
}  # fmt: skip
"""Full scale of each gain setting (ADS1115 datasheet, table of the PGA field)."""
_LIBRARY_GAIN: Final = {"6.144V": 2 / 3, "4.096V": 1, "2.048V": 2, "1.024V": 4, "0.512V": 8, "0.256V": 16}

LOWEST_CODE: Final = -0x8000
HIGHEST_CODE: Final = 0x7FFF
ABOVE_SUPPLY_V: Final = 0.3
"""Further above the chip's supply, or below ground, an input is destroyed (absolute maximum ratings)."""
FLOATING_V: Final = (0.3, 0.9)
"""Where an input that nothing drives comes to rest, in V, as users report."""

ADC_WIRING: Final = WIRING | {"adc.data_rate", "adc.vdd_v"}
"""Options that change no value."""
RETRY_AFTER_S: Final = 0.1
"""A transfer that failed once is repeated: noise on the bus is short."""

_CONFIG_REGISTER: Final = 1
_SETTINGS: Final = 0x7FFF
"""All of the configuration register but bit 15, which is clear during a conversion."""
_SETTINGS_MARK: Final = 0x0008
"""The comparator's polarity: of no effect while that is off, and clear in a chip that was reset."""
_CONVERSION_TIMEOUT_S: Final = 0.25
"""Beyond the conversion itself, which takes 7.8 ms at 128 samples a second and 125 ms at 8."""

_BUS_ERRORS: Final = {
    errno.EREMOTEIO: "nothing acknowledges: is it powered, are SDA and SCL connected the right way round?",
    errno.ENXIO: "nothing acknowledges: is it powered, are SDA and SCL connected the right way round?",
    errno.ETIMEDOUT: "the bus is stuck: a wire held low, or a device that lost its supply pulls it down",
    errno.EIO: "the transfer broke off: long wires, weak pull-ups or noise",
}
"""The errors of Linux' I2C drivers."""


@dataclass(frozen=True, slots=True)
class AdcOptions:
    """Where a sensor is wired: ``input`` 2 is single-ended, "2-3" differential."""

    address: Annotated[int, Ge(0x48), Le(0x4B), Meaning("I2C address of the converter, by its ADDR pin")] = (
        0x48
    )
    input: Annotated[AdcPins, Meaning("one input, or two for the difference between them")] = 0
    gain: Annotated[AdcGain, Meaning("full scale; one step is its 32,768th part")] = "6.144V"
    data_rate: Annotated[
        AdcRate, Meaning("conversions a second: 8 damps mains hum thirtyfold, 128 hardly", "1/s")
    ] = 128
    vdd_v: Annotated[
        float, Ge(2), Le(5.5), Meaning("the converter's own supply: no input sees more", "V")
    ] = 5.0

    @property
    def place(self) -> str:
        """The input in words, as messages name it."""
        return f"input {self.input} of the converter at 0x{self.address:02x}"


def adc_pins(adc_input: int | str) -> tuple[int, ...]:
    """The chip's pins an input occupies: one, or the positive and the negative one."""
    return (adc_input,) if isinstance(adc_input, int) else tuple(int(pin) for pin in adc_input.split("-"))


def adc_claims(options: AdcOptions) -> tuple[Claim, ...]:
    """The pins an input occupies, and the address it shares with the chip's other inputs."""
    inputs = (
        Claim(f"input {pin} of converter 0x{options.address:02x}", ("adc",))
        for pin in adc_pins(options.input)
    )
    return (*inputs, Claim(f"I2C address 0x{options.address:02x}", ("adc",), shared="ADS1115"))


def adc_concerns(
    options: AdcOptions, upper_v: float, interval_s: float, at: Callable[[float], str]
) -> Iterator[Concern]:
    """Likely mistakes with a sensor of up to ``upper_v`` at the pins; ``at`` is its value there, as text."""
    full_scale_v = FULL_SCALE_V[options.gain]
    if upper_v > full_scale_v:
        enough = next((gain for gain, volts in reversed(FULL_SCALE_V.items()) if volts >= upper_v), None)
        remedy = f'use "{enough}" or a divider' if enough is not None else "use a divider"
        yield Concern(
            ("adc",),
            f"the sensor outputs up to {upper_v:.3g} V; gain {options.gain!r} clips it at {at(full_scale_v)}:"
            f" {remedy}".replace("'", '"'),
        )
    if upper_v > options.vdd_v:
        yield Concern(
            ("adc",),
            f"the sensor outputs up to {upper_v:.3g} V; an input sees no more than the converter's supply"
            f" (vdd_v), {options.vdd_v:g} V or {at(options.vdd_v)}, and is destroyed"
            f" {ABOVE_SUPPLY_V:g} V above it: use a divider",
        )
    if 1 / options.data_rate > interval_s / 2:
        yield Concern(
            ("adc",),
            f"a conversion takes {1000 / options.data_rate:.0f} ms at data_rate = {options.data_rate},"
            f" the interval is {interval_s * 1000:.0f} ms",
        )


_chip_locks: weakref.WeakKeyDictionary[I2cBus, dict[int, TimedLock]] = weakref.WeakKeyDictionary()
_chip_locks_guard = threading.Lock()


@contextmanager
def _chip_locked(bus: I2cBus, address: int) -> Iterator[None]:
    """Hold the chip's lock. Raises ReadError where another input's conversion doesn't end."""
    with _chip_locks_guard:
        lock = _chip_locks.setdefault(bus, {}).setdefault(address, TimedLock())
    if not lock.acquire():
        raise ReadError(f"another input's conversion on the ADS1115 at 0x{address:02x} doesn't end")
    try:
        yield
    finally:
        lock.release()


@dataclass(frozen=True, slots=True)
class Conversion:
    """One conversion, in V at the chip's pins; ``reasons`` where that isn't the voltage there."""

    volts: float
    reasons: tuple[str, ...] = ()


class AdcInput:
    """An opened input."""

    def __init__(self, board: Board, options: AdcOptions) -> None:
        """Find the chip. Raises BoardError where none answers."""
        ads1115 = quiet_import("adafruit_ads1x15.ads1115", INSTALL)
        analog_in = quiet_import("adafruit_ads1x15.analog_in", INSTALL)
        bus = board.i2c()
        self._options = options
        self._bus = bus
        try:
            with _chip_locked(bus, options.address):
                chip = ads1115.ADS1115(
                    bus,
                    gain=_LIBRARY_GAIN[options.gain],
                    data_rate=options.data_rate,
                    comparator_polarity=_SETTINGS_MARK,
                    address=options.address,
                )
        except (ValueError, OSError) as error:
            raise BoardError(
                f"no ADS1115 answers at 0x{options.address:02x} ({error}): check the wiring and the ADDR pin"
            ) from error
        self._chip: Any = chip
        self._deadline = 0.0
        self._settings = 0
        chip._conversion_complete = self._bounded(chip._conversion_complete)
        chip._write_register = self._noted(chip._write_register)
        self._input: Any = analog_in.AnalogIn(chip, *adc_pins(options.input))

    def convert(self) -> Conversion:
        """One conversion. Raises ReadError.

        OVER_RANGE and UNDER_RANGE are the ends of the code range and, single-ended, the chip's supply.
        """
        timeout_s = 1 / self._options.data_rate + _CONVERSION_TIMEOUT_S
        with _chip_locked(self._bus, self._options.address):
            self._deadline = time.monotonic() + timeout_s
            try:
                code = int(self._input.value)
                settings = int(self._chip._read_register(_CONFIG_REGISTER))
            except OSError as error:
                why = _BUS_ERRORS.get(error.errno or 0, str(error))
                raise ReadError(f"{self._name} doesn't answer: {why}") from error
        if (settings ^ self._settings) & _SETTINGS:
            raise ReadError(
                f"{self._name} has lost its settings (0x{settings & _SETTINGS:04x} instead of"
                f" 0x{self._settings & _SETTINGS:04x}): its supply breaks down, or another program uses it"
            )
        volts = float(self._input.convert_to_voltage(code))
        single_ended = isinstance(self._options.input, int)
        if code == HIGHEST_CODE or (single_ended and volts > self._options.vdd_v + ABOVE_SUPPLY_V):
            return Conversion(volts, ("OVER_RANGE",))
        return Conversion(volts, ("UNDER_RANGE",) if code == LOWEST_CODE else ())

    @property
    def _name(self) -> str:
        return f"the ADS1115 at 0x{self._options.address:02x}"

    def _bounded(self, conversion_complete: Callable[[], int]) -> Callable[[], int]:
        """Bounds the library's endless polling of the ready bit: a dead chip would hang the thread."""

        def complete() -> int:
            done = conversion_complete()
            if not done and time.monotonic() > self._deadline:
                raise ReadError(f"{self._name} never ends its conversion")
            return done

        return complete

    def _noted(self, write_register: Callable[[int, int], None]) -> Callable[[int, int], None]:
        """Keeps what the library sets, for the comparison afterwards."""

        def write(register: int, value: int) -> None:
            if register == _CONFIG_REGISTER:
                self._settings = value
            write_register(register, value)

        return write
