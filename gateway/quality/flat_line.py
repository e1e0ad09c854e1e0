"""Flat line test: a value that doesn't change where it should. Pure; one thread at a time."""

from __future__ import annotations

from typing import Final

from gateway.config import QualityRules

_ROUNDING: Final = 1e-9
"""Decimal figures as doubles: 7.2 - 7.0 is a little more than 0.2."""
_FEWEST_READINGS: Final = 6
"""Fewer readings are no flat line, however long they took."""


class FlatLineTest:
    """How long a channel's value has not changed, and how long it has been at rest."""

    def __init__(self, interval_ns: int) -> None:
        self._longest_gap_ns = max(600_000_000_000, 3 * interval_ns)
        self._at_ns: int | None = None
        self._flat_since_ns = 0
        self._flat_count = 0
        self._lowest = self._highest = 0.0
        self._rest_since_ns: int | None = None

    def test(self, at_ns: int, value: float, rules: QualityRules) -> bool:
        """Whether the value is stuck; ``at_ns`` is time since boot, which only grows.

        At or below ``rest_below`` no change is expected: there only the time at rest is bounded.
        """
        before_ns, self._at_ns = self._at_ns, at_ns
        if before_ns is None or not 0 < at_ns - before_ns <= self._longest_gap_ns:
            # Its values in between are unknown.
            self._flat_count, self._rest_since_ns = 0, None
        lowest, highest = min(self._lowest, value), max(self._highest, value)
        if self._flat_count and highest - lowest <= (rules.flat_within or 0.0) + _ROUNDING:
            self._lowest, self._highest = lowest, highest
            self._flat_count += 1
        else:
            self._lowest = self._highest = value
            self._flat_since_ns, self._flat_count = at_ns, 1
        if rules.rest_below is not None and value <= rules.rest_below:
            if self._rest_since_ns is None:
                self._rest_since_ns = at_ns
            return rules.rest_s is not None and at_ns - self._rest_since_ns >= rules.rest_s * 1e9
        self._rest_since_ns = None
        return (
            rules.flat_s is not None
            and self._flat_count >= _FEWEST_READINGS
            and at_ns - self._flat_since_ns >= rules.flat_s * 1e9
        )
