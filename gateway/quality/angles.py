"""Directions for tests that know lines alone: differences on the circle, a course without a jump at north."""

from __future__ import annotations


def turned(degrees: float) -> float:
    """A difference of directions as the shorter way round: -180 to below 180 degrees."""
    return (degrees + 180.0) % 360.0 - 180.0


def near(direction: float, other: float) -> float:
    """A direction as so many degrees that the shorter way leads there from another: 361 near 359."""
    return other + turned(direction - other)
