"""Waits between attempts."""

from __future__ import annotations


def backoff_s(failures: int, first_s: float, longest_s: float) -> float:
    """The wait after so many failures in a row: twice the one before, up to the longest."""
    return min(longest_s, first_s * 2.0 ** min(failures - 1, 60))
