"""Delays between attempts that double up to a bound. Pure."""

from __future__ import annotations


def backoff_s(failures: int, first_s: float, longest_s: float) -> float:
    """The delay after so many failures in a row, 1 or more: twice the one before, up to the longest."""
    return min(first_s * 2.0 ** min(failures - 1, 60), longest_s)


class Backoff:
    """``delay_s`` is the next delay, in seconds from ``first_s`` to ``longest_s``."""

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self.delay_s = first_s

    def next(self) -> float:
        """The delay before the next attempt; the one after that is twice as long."""
        delay_s = self.delay_s
        self.delay_s = min(2 * delay_s, self._longest_s)
        return delay_s

    def reset(self) -> None:
        """Begin again at ``first_s``."""
        self.delay_s = self._first_s
