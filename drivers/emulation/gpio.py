"""The RPi.GPIO interface over emulated pins, and the whole pulses that fall on them."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any, Final

from drivers.emulation.environment import SECOND_NS
from drivers.interface import BoardError

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


class EmulatedGpio:
    """Input pins whose falling edges the board makes. Constants have RPi.GPIO's values.

    Whether a counter sets its pin up as the library wants it is a test's over rpi-lgpio itself.
    """

    BCM: Any = 11
    IN: Any = 1
    PUD_UP: Any = 22
    FALLING: Any = 32

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._callbacks: dict[int, Callable[[int], None]] = {}
        self._losses: dict[int, int] = {}

    def setmode(self, mode: Any) -> None:
        """The numbering is BCM."""

    def setup(self, channel: int, direction: Any, pull_up_down: Any = None) -> None:
        """Every pin is an input with pull-up."""

    def add_event_detect(
        self, channel: int, edge: Any, callback: Callable[[int], None] | None = None
    ) -> None:
        """Call back on each falling edge. Raises BoardError where the pin is taken."""
        with self._lock:
            if channel in self._callbacks:
                raise BoardError(f"pin {channel} has edge detection already")
            if callback is not None:
                self._callbacks[channel] = callback

    def remove_event_detect(self, channel: int) -> None:
        """Stop calling back."""
        with self._lock:
            self._callbacks.pop(channel, None)

    def input(self, channel: int) -> int:
        """The level: high, by its pull-up."""
        return 1

    def cleanup(self, channel: int) -> None:
        """Release the pin."""
        self.remove_event_detect(channel)

    def losses(self, channel: int) -> int:
        """How often this pin's edges were unknown."""
        return self._losses.get(channel, 0)

    def fall(self, channel: int, times: int) -> None:
        """Make edges: each calls the pin's callback, if there is one."""
        with self._lock:
            callback = self._callbacks.get(channel)
        if callback is not None:
            for _ in range(times):
                callback(channel)

    def lose(self, channel: int) -> None:
        """Note that edges are unknown for a while."""
        self._losses[channel] = self._losses.get(channel, 0) + 1
