"""From a meter's running total to what was added since it was last read: no hardware, no state."""

from __future__ import annotations

from typing import Final

_LONGEST_STEP: Final = 0.1
_ANEW: Final = 0.5


def added(last: float, total: float, end: float) -> float | None:
    """What was added between two totals of a meter that counts up to ``end`` and begins again at 0.

    A lower total went past the end where that is a step of at most a tenth of it. Where it is at most half
    the last one, the meter began anew (replaced, or without power), and all it shows was added since; what it
    had counted after the last total is lost. None where neither explains it: a total below 0 is none, either.
    """
    if total >= last:
        return total - last
    past_the_end = total + end - last
    if past_the_end <= _LONGEST_STEP * end:
        return past_the_end
    return total if 0 <= total <= _ANEW * last else None
