"""Mean and spread of directions by other means than the program's."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def by_pairs(degrees: Sequence[float]) -> tuple[float | None, float | None]:
    """Direction of the vector mean by sums without rounding; Yamartino's sd by the angles between all pairs.

    1 - (mean sin)^2 - (mean cos)^2 is the mean of 2 sin^2 of half the angle between any two.
    """
    n = len(degrees)
    east, north = (math.fsum(f(math.radians(each)) for each in degrees) / n for f in (math.sin, math.cos))
    mean = math.degrees(math.atan2(east, north)) % 360
    angles = np.radians(np.asarray(degrees, np.longdouble))
    square = float(2 * (np.sin((angles[:, None] - angles) / 2) ** 2).mean())
    epsilon = math.sqrt(min(square, 1.0))
    sd = math.degrees(math.asin(epsilon) * (1 + (2 / math.sqrt(3) - 1) * epsilon**3))
    return None if math.hypot(east, north) < 1e-5 else mean, sd if n > 1 else None


def apart(one: float, other: float) -> float:
    """How far two directions are apart, in degrees."""
    return abs((one - other + 180) % 360 - 180)
