"""Whole pulses from a frequency that changes piece by piece."""

from __future__ import annotations

import math
from typing import Final

from drivers.emulation.environment import SECOND_NS

_WHOLE_TOLERANCE: Final = 1e-3
"""Pulses in a piece this near to a whole number are meant to be it: files print speeds with few digits."""


def pulse_frequency_hz(speed_mps: float, slope: float, offset: float, piece_ns: int) -> float:
    """The frequency in Hz behind a speed (slope in m/s per Hz, offset in m/s) that holds for a piece.

    Zero at and below the offset, where the cup rests. A frequency whose pulses in the piece are whole within
    rounding is made exactly so.
    """
    frequency_hz = (speed_mps - offset) / slope
    if frequency_hz <= 0:
        return 0.0
    pulses = frequency_hz * piece_ns / SECOND_NS
    whole = round(pulses)
    return whole * SECOND_NS / piece_ns if abs(pulses - whole) < _WHOLE_TOLERANCE else frequency_hz


class PulseTrain:
    """Counts a rotor's pulses: what doesn't make up a whole one is carried over, so no turn is lost."""

    def __init__(self) -> None:
        self._carry = 0.0

    def advance(self, frequency_hz: float, duration_ns: int) -> int:
        """Whole pulses of the next ``duration_ns``; the sum stays within half a pulse of the exact phase."""
        phase = self._carry + frequency_hz * duration_ns / SECOND_NS
        pulses = math.floor(phase + 0.5)
        self._carry = phase - pulses
        return pulses
