"""Turns a meter's running total into what was added since it was last read: no hardware, no state."""

from __future__ import annotations

from typing import Final, NamedTuple

_LONGEST_STEP: Final = 0.1
_ANEW: Final = 0.5
_MOMENT: Final = 10


class Total(NamedTuple):
    """A meter's last total. One that is 0 has the total ``before`` it, and how many ``zeros`` came since."""

    number: float
    before: float = 0.0
    zeros: int = 0

    def then(self, number: float) -> Total:
        """The next one."""
        if number != 0 or (self.number <= 0 and not self.zeros):
            return Total(number)
        return Total(0.0, self.before or self.number, self.zeros + 1)


def added(last: Total, total: float, end: float) -> float | None:
    """What was added between two totals of a meter that counts up to ``end`` and begins again at 0.

    A lower total went past the end where that is a step of at most a tenth of it. Where it is at most half
    the last one, the meter began anew (replaced, or without power), and all it shows was added since; what it
    had counted after the last total is lost. None where neither explains it: a total below 0 is none, either.
    Up to ten readings of 0 add nothing yet (it may boot): the total after them is compared with the one
    before them, and so is the eleventh 0.
    """
    waits = 0 < last.zeros <= _MOMENT
    base = last.before if waits else last.number
    if total == 0 and base > 0 and last.zeros < _MOMENT:
        return 0.0
    if total >= base:
        return total - base
    past_the_end = total + end - base
    if past_the_end <= _LONGEST_STEP * end:
        return past_the_end
    return total if total >= 0 and (waits or total <= _ANEW * base) else None
