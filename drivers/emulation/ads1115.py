"""An ADS1115 at the level of its registers (Texas Instruments datasheet SBAS444)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from drivers.ads1115 import adc_pins

_CONVERSION, _CONFIG = 0, 1
_START: Final = 0x8000
_READY: Final = 0x8000
_POWER_UP_CONFIG: Final = 0x8583

_MUX_INPUTS: Final[tuple[int | str, ...]] = ("0-1", "0-3", "1-3", "2-3", 0, 1, 2, 3)
FLOATING_V: Final = 0.57
"""The voltage of a pin that nothing drives, as users of the chip report."""
_FULL_SCALE_V: Final = (6.144, 4.096, 2.048, 1.024, 0.512, 0.256, 0.256, 0.256)

Volts = Callable[[], float | None]
"""Voltage at an input now; None where the sensor behind it is dead."""


def code_for(volts: float, full_scale_v: float) -> int:
    """The converter's output code: steps of full scale / 32768, clipped at full scale as the chip does."""
    return max(-32768, min(32767, round(volts / full_scale_v * 32768)))


class EmulatedAds1115:
    """The chip with a voltage source at each wired input; an unwired one reads 0 V, as if it were grounded.

    Conversions end at once. A dead sensor's input answers no conversion request, so that a driver notices.
    A ``loose`` pin's wire is broken while its function returns True: it floats, whatever is wired to it, or
    has the voltage of ``open_v`` where something at the chip ties it.
    """

    def __init__(self, inputs: Mapping[int | str, Volts]) -> None:
        self.loose: dict[int, Callable[[], bool]] = {}
        self.open_v: dict[int, float] = {}
        self.inputs = dict(inputs)
        self.brown_out()

    def brown_out(self) -> None:
        """Reset every register, as after a moment without supply."""
        self._registers = [0, _POWER_UP_CONFIG, 0x8000, 0x7FFF]
        self._pointer = _CONVERSION

    def write(self, sent: bytes) -> None:
        """Set the register pointer and, with two more bytes, the register."""
        if not sent:
            return
        self._pointer = sent[0] & 0x03
        if len(sent) < 3 or self._pointer == _CONVERSION:
            return
        word = int.from_bytes(sent[1:3], "big")
        if self._pointer == _CONFIG:
            if word & _START:
                self._convert(word)
            word |= _READY
        self._registers[self._pointer] = word

    def read(self, count: int) -> bytes:
        """The register pointed to."""
        return self._registers[self._pointer].to_bytes(2, "big")[:count]

    def _convert(self, config: int) -> None:
        code = code_for(self._volts(_MUX_INPUTS[config >> 12 & 0x07]), _FULL_SCALE_V[config >> 9 & 0x07])
        self._registers[_CONVERSION] = code & 0xFFFF

    def _floats(self, pin: int) -> bool:
        loose = self.loose.get(pin)
        return loose is not None and loose()

    def _volts(self, adc_input: int | str) -> float:
        pins = adc_pins(adc_input)
        positive, negative = self._floats(pins[0]), self._floats(pins[-1])
        if len(pins) == 1 and positive:
            return self.open_v.get(pins[0], FLOATING_V)
        if positive != negative:
            return FLOATING_V if positive else -FLOATING_V
        if positive:
            return 0.0
        source = self.inputs.get(adc_input)
        volts = source() if source is not None else 0.0
        if volts is None:
            raise OSError(121, "the sensor at this input is dead")
        return volts
