"""A vane's angles from electrical ratios and codes, and back. Pure.

Angles are in degrees from the vane's own mark, ratios are shares of its supply.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

_MISFIT: Final = 0.4
"""A ratio this share of the way to the next step belongs to none for certain: half way is between both."""


def circle(degrees: float) -> float:
    """An angle in 0 to below 360 degrees."""
    turned = degrees % 360.0
    # A tiny negative angle is 360.0 after rounding.
    return 0.0 if turned == 360.0 else turned


def unloaded(ratio: float, load: float) -> float:
    """The wiper's place, 0 to 1, from its voltage's share of the supply.

    ``load`` is the potentiometer's resistance over the pull-down's: y = x / (1 + load·x·(1 − x)), by
    Ohm's law, solved for x. Beyond 0 and 1 the ratio stays as it is.
    """
    if not 0 < ratio < 1:
        return ratio
    half = (1 - load * ratio) / 2
    return ratio / (half + math.sqrt(half * half + load * ratio * ratio))


def loaded(place: float, load: float) -> float:
    """The wiper's share of the supply at a place of 0 to 1: ``unloaded`` inverted."""
    return place / (1 + load * place * (1 - place))


def step_angle(ratio: float, steps: Sequence[tuple[float, float]]) -> tuple[float, tuple[str, ...]]:
    """Degrees from the mark of the step next to a share of the supply; NOISY about half way between two."""
    ordered = sorted(steps, key=lambda step: abs(step[0] - ratio))
    (nearest, angle), (second, _) = ordered[:2]
    return angle, ("NOISY",) if abs(ratio - nearest) > _MISFIT * abs(second - nearest) else ()


def off_steps(ratio: float, steps: Sequence[tuple[float, float]]) -> bool:
    """Whether a share of the supply is outside all steps, by more than half of the way between the last."""
    ratios = sorted(each for each, _ in steps)
    below, above = (ratios[1] - ratios[0]) / 2, (ratios[-1] - ratios[-2]) / 2
    return not ratios[0] - below <= ratio <= ratios[-1] + above


def gray_number(bits: Sequence[bool]) -> int:
    """The number of a Gray code, its highest bit first: each bit is the sum of those before it."""
    number = 0
    for bit in bits:
        number = number << 1 | (bit ^ (number & 1))
    return number


def gray_code(number: int, width: int) -> tuple[bool, ...]:
    """The bits of a number's Gray code, the highest first: ``gray_number`` inverted."""
    code = number ^ number >> 1
    return tuple(bool(code >> bit & 1) for bit in reversed(range(width)))
