"""Directions for tests that know lines alone: differences on the circle, a course without a jump at north."""

from __future__ import annotations

import math
from collections.abc import Sequence


def turned(degrees: float) -> float:
    """A difference of directions as the shorter way round: -180 to below 180 degrees."""
    return (degrees + 180.0) % 360.0 - 180.0


def near(direction: float, other: float) -> float:
    """A direction as so many degrees that the shorter way leads there from another: 361 near 359."""
    return other + turned(direction - other)


def gathered(differences: Sequence[float]) -> list[float]:
    """Differences of directions near their mean on the circle, itself within half a turn of 0.

    However often one of two vanes turned round, and on either side of half a turn.
    """
    radians = [math.radians(each) for each in differences]
    middle = math.degrees(math.atan2(sum(map(math.sin, radians)), sum(map(math.cos, radians))))
    return [near(each, middle) for each in differences]
