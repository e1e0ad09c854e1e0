"""Rate of change and spike tests: a value too far from the level before it. Pure; one thread at a time.

QARTOD's spike test compares a value with the one before and the one after. A live reading can't wait for the
one after, so a spike is one by the scatter of the last minutes, and the reading after it decides on the
level: one close to the suspect value confirms a new level, which is flagged no more.
"""

from __future__ import annotations

import math
from typing import Final

from gateway.config import QualityRules

_CONFIRMS: Final = 0.5
"""A suspect value is confirmed by a next one this share of the limit away from it, at most."""
_ROUNDING: Final = 1e-9
"""Rounding of decimal figures as doubles."""
_MEMORY: Final = 60
"""Readings over which mean and scatter are taken (their weight falls off exponentially)."""
_WARM_UP: Final = 20
"""Readings before the scatter is used."""
_SIGMA: Final = 1.2533
"""Standard deviation over mean absolute deviation, of a normal distribution."""
_GAP_NS: Final = 60_000_000_000
"""WMO's limits are for readings up to a minute apart."""


class SpikeTest:
    """The level of one channel, and how much it scatters.

    ``scale`` widens the limits where one reading's resolution is coarse.
    """

    def __init__(self, scale: float = 1.0) -> None:
        self._scale = scale
        self._at_ns: int | None = None
        self._level = 0.0
        self._suspect: float | None = None
        self._count = 0
        self._mean = 0.0
        self._scatter = 0.0

    def test(self, at_ns: int, value: float, rules: QualityRules) -> tuple[str, ...]:
        """STEP_TOO_HIGH and SPIKE, where they apply; ``at_ns`` is time since boot, which only grows."""
        before_ns, self._at_ns = self._at_ns, at_ns
        if before_ns is None or not 0 < at_ns - before_ns <= _GAP_NS:
            self._reset(value)
            return ()
        reasons: tuple[str, ...] = ()
        limit = math.inf
        if rules.max_step is not None:
            limit = rules.max_step * self._scale
            if abs(value - self._level) > limit + _ROUNDING:
                reasons = ("STEP_TOO_HIGH",)
        if rules.spike is not None and self._count >= _WARM_UP:
            factor = rules.spike_factor or 0.0
            deviation = max(rules.spike * self._scale, factor * _SIGMA * self._scatter)
            limit = min(limit, deviation)
            if abs(value - self._mean) > deviation:
                reasons = (*reasons, "SPIKE")
        if not reasons:
            self._take(value)
        elif self._suspect is not None and abs(value - self._suspect) <= _CONFIRMS * limit:
            self._reset(value)
            return ()
        else:
            self._suspect = value
        return reasons

    def _take(self, value: float) -> None:
        self._level, self._suspect = value, None
        self._count += 1
        weight = 1 / min(self._count, _MEMORY)
        deviation = value - self._mean
        self._mean += weight * deviation
        if self._count > 1:
            self._scatter += weight * (abs(deviation) - self._scatter)

    def _reset(self, value: float) -> None:
        self._level, self._suspect = value, None
        self._count, self._mean, self._scatter = 1, value, 0.0
