"""Means over a minute of all channels of a mast, for comparing them. Any thread.

A channel adds the mean of a minute (a bin, counted in time since boot) when it is over. Comparisons use bins
up to the one before the last: every sampler has added those, so that a comparison doesn't depend on how
threads are scheduled.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

SETTLED_AFTER: Final = 2
"""All samplers have added the bins that are this many before the one under way."""


@dataclass(frozen=True, slots=True)
class Bin:
    """A channel's mean over one bin, and whether it was at rest all the time."""

    mean: float
    at_rest: bool


class MinuteMeans:
    """The latest bins of each channel."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bins: dict[tuple[str, str, int], dict[int, Bin]] = {}

    def add(self, sensor: str, quantity: str, bin_ns: int, index: int, added: Bin, kept: int) -> None:
        """Add a bin that is over; ``kept`` is how many bins the channel needs."""
        with self._lock:
            bins = self._bins.setdefault((sensor, quantity, bin_ns), {})
            bins[index] = added
            for old in [old for old in bins if not index - kept < old <= index]:
                del bins[old]

    def clear(self, sensor: str) -> None:
        """Delete the bins of a sensor that is replaced or gone."""
        with self._lock:
            for key in [key for key in self._bins if key[0] == sensor]:
                del self._bins[key]

    def bins(self, sensor: str, quantity: str, bin_ns: int, indices: Iterable[int]) -> list[Bin | None]:
        """A channel's bins, None where it added none."""
        with self._lock:
            found = self._bins.get((sensor, quantity, bin_ns), {})
            return [found.get(index) for index in indices]

    def others(self, sensor: str, quantity: str, bin_ns: int) -> list[str]:
        """The other sensors of a quantity."""
        with self._lock:
            return [
                other
                for other, theirs, length_ns in self._bins
                if (theirs, length_ns) == (quantity, bin_ns) and other != sensor
            ]
