"""From a meter's running total to what was added since it was last read: no hardware, no state."""

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
    A meter that shows 0 for up to ten readings (it boots), and then at least what it showed before, did not
    begin anew.
    """
    if total >= last.number:
        back = 0 < last.zeros <= _MOMENT and total >= last.before
        return total - (last.before if back else last.number)
    past_the_end = total + end - last.number
    if past_the_end <= _LONGEST_STEP * end:
        return past_the_end
    return total if 0 <= total <= _ANEW * last.number else None
