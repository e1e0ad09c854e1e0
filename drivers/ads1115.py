"""One input of an ADS1115 converter, read through Adafruit's library.

A conversion is three transactions (start, poll, fetch) and the chip has one multiplexer: sensors that share a
chip take turns under a lock of that chip; the bus lock alone would let one fetch the other's conversion.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from annotated_types import Ge, Le

from drivers.driver_type import Claim
from drivers.interface import Board, BoardError, I2cBus, ReadError
from drivers.meaning import Meaning
from drivers.quiet_import import quiet_import

INSTALL: Final = "install fieldgate with the extra 'pi'"

AdcPins = Literal[0, 1, 2, 3, "0-1", "0-3", "1-3", "2-3"]
AdcGain = Literal["6.144V", "4.096V", "2.048V", "1.024V", "0.512V", "0.256V"]

FULL_SCALE_V: Final = {
    "6.144V": 6.144,
    "4.096V": 4.096,
    "2.048V": 2.048,
    "1.024V": 1.024,
    "0.512V": 0.512,
    "0.256V": 0.256,
}
"""Full scale of each gain setting (ADS1115 datasheet, table of the PGA field)."""
_LIBRARY_GAIN: Final = {"6.144V": 2 / 3, "4.096V": 1, "2.048V": 2, "1.024V": 4, "0.512V": 8, "0.256V": 16}

_CONVERSION_TIMEOUT_S: Final = 0.25
"""A conversion takes 7.8 ms at the library's 128 samples a second."""


@dataclass(frozen=True, slots=True)
class AdcOptions:
    """Where a sensor is wired.

    Chip address, input (``2`` is single-ended, ``"2-3"`` differential) and full scale.
    """

    address: Annotated[int, Ge(0x48), Le(0x4B), Meaning("I2C address of the converter, by its ADDR pin")] = (
        0x48
    )
    input: Annotated[AdcPins, Meaning("one input, or two for the difference between them")] = 0
    gain: Annotated[AdcGain, Meaning("full scale; one step is its 32,768th part")] = "6.144V"


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


_chip_locks: weakref.WeakKeyDictionary[I2cBus, dict[int, threading.Lock]] = weakref.WeakKeyDictionary()
_chip_locks_guard = threading.Lock()


def _chip_lock(bus: I2cBus, address: int) -> threading.Lock:
    with _chip_locks_guard:
        return _chip_locks.setdefault(bus, {}).setdefault(address, threading.Lock())


class AdcInput:
    """An opened input."""

    def __init__(self, board: Board, options: AdcOptions) -> None:
        """Find the chip. Raises BoardError where none answers."""
        ads1115 = quiet_import("adafruit_ads1x15.ads1115", INSTALL)
        analog_in = quiet_import("adafruit_ads1x15.analog_in", INSTALL)
        bus = board.i2c()
        self._address = options.address
        self._lock = _chip_lock(bus, options.address)
        try:
            with self._lock:
                chip = ads1115.ADS1115(bus, gain=_LIBRARY_GAIN[options.gain], address=options.address)
        except (ValueError, OSError) as error:
            raise BoardError(
                f"no ADS1115 answers at 0x{options.address:02x} ({error}): check the wiring and the ADDR pin"
            ) from error
        self._deadline = 0.0
        chip._conversion_complete = self._bounded(chip._conversion_complete)
        self._input: Any = analog_in.AnalogIn(chip, *adc_pins(options.input))

    def volts(self) -> float:
        """One conversion, in V at the chip's pins. Raises ReadError."""
        with self._lock:
            self._deadline = time.monotonic() + _CONVERSION_TIMEOUT_S
            try:
                return float(self._input.voltage)
            except OSError as error:
                raise ReadError(f"the ADS1115 at 0x{self._address:02x} doesn't answer: {error}") from error

    def _bounded(self, conversion_complete: Callable[[], int]) -> Callable[[], int]:
        """The library polls the ready bit for ever: a chip that never gets ready would hang the thread."""

        def complete() -> int:
            done = conversion_complete()
            if not done and time.monotonic() > self._deadline:
                raise ReadError(f"the ADS1115 at 0x{self._address:02x} never ends its conversion")
            return done

        return complete
