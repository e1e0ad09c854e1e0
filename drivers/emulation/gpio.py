"""Emulated pins: the whole pulses that fall on them, and what counts these."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from drivers.emulation.environment import SECOND_NS
from drivers.interface import BoardError, Edges

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

    def instants(self, frequency_hz: float, duration_ns: int) -> list[int]:
        """The pulses of ``advance``, each in ns since the duration's begin."""
        carry = self._carry
        return [
            round((number + 0.5 - carry) / frequency_hz * SECOND_NS)
            for number in range(self.advance(frequency_hz, duration_ns))
        ]


class EmulatedCounter:
    """Counts the edges that the board makes on one pin: ``pins`` has those that are claimed."""

    method = "emulated edges"
    timed = True

    def __init__(
        self,
        pins: dict[int, EmulatedCounter],
        pin: int,
        levels: Mapping[int, Callable[[], bool]] = MappingProxyType({}),
    ) -> None:
        """Claim the pin. Raises BoardError where it is taken. ``levels`` are of pins that have one."""
        if pins.setdefault(pin, self) is not self:
            raise BoardError(f"BCM pin {pin} is in use")
        self._pins = pins
        self._pin = pin
        self._levels = levels
        self._count = self._taken = 0
        self._losses = self._taken_losses = 0
        self._times_ns: deque[int] = deque()

    def fall(self, times: int) -> None:
        """Make edges."""
        self._count += times

    def fall_at(self, times_ns: Sequence[int]) -> None:
        """Make edges at these times."""
        self._times_ns.extend(times_ns)
        self._count += len(times_ns)

    def lose(self) -> None:
        """Note that edges are unknown for a while."""
        self._losses += 1

    def take(self) -> Edges:
        """The edges since the call before."""
        # Snapshots, for the thread that moves the clock may make edges meanwhile.
        count, losses = self._count, self._losses
        times_ns = [self._times_ns.popleft() for _ in range(len(self._times_ns))]
        edges = Edges(count - self._taken, losses != self._taken_losses, times_ns)
        self._taken, self._taken_losses = count, losses
        return edges

    def total(self) -> int:
        """All edges since the pin was claimed."""
        return self._count

    def is_high(self) -> bool:
        """The pin's own level; else True: a pull-up, and no magnet before the switch."""
        level = self._levels.get(self._pin)
        return level is None or level()

    def close(self) -> None:
        """Release the pin."""
        if self._pins.get(self._pin) is self:
            del self._pins[self._pin]
