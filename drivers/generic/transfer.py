"""Transfer functions from a signal to a value: a line, or a table of points with lines between them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

Point = tuple[float, float]
"""A signal, and the value it stands for."""


def interpolate(points: Sequence[Point], signal: float) -> float:
    """The value at a signal, on the straight lines through points that rise in their signals.

    Beyond the table its first or last line goes on: nothing is clamped, and the ranges flag it.
    """
    lines = tuple(pairwise(points))
    (left, low), (right, high) = next((line for line in lines if signal <= line[1][0]), lines[-1])
    return low + (high - low) * (signal - left) / (right - left)


def invert(points: Sequence[Point], value: float) -> float:
    """The lowest signal with a value; of a value beyond the table on its first or last line.

    Where that line is flat the signal at the table's end: no other has a value as near.
    """
    for (left, low), (right, high) in pairwise(points):
        if low == value or min(low, high) < value <= max(low, high):
            return left if low == value else left + (right - left) * (value - low) / (high - low)
    ends = (points[0], points[1]), (points[-1], points[-2])
    (end, last), (inner, before) = min(ends, key=lambda line: abs(line[0][1] - value))
    return end if last == before else end + (inner - end) * (value - last) / (before - last)


def table_problem(points: Sequence[Point]) -> str | None:
    """What is wrong with a table, or None."""
    if len(points) < 2:
        return "needs two points at least, as in [[4, 0], [20, 10]]"
    for (left, _), (right, _) in pairwise(points):
        if right <= left:
            return f"must rise in its signals: {right:g} comes after {left:g}"
    return None
