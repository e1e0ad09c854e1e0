"""The state of one rule on one channel: well, violated for a while, raised.

It moves in event time alone: nothing here knows what time it is, or in which batch something came.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, Self

MIN_GAP_US: Final = 60_000_000
"""A violation that isn't raised yet begins anew after a gap of this, or of three periods if that is more:
what was in between nobody knows."""
_SPANS: Final = 8
"""How many past alerts are remembered, so that late data of their time doesn't raise them again."""


class Verdict(IntEnum):
    """What a rule says of one observation."""

    WELL = 0
    BETWEEN = 1
    """Neither violated nor well again: hysteresis."""
    VIOLATED = 2


@dataclass(slots=True)
class Observation:
    """A verdict at an event time (microseconds). ``live``: not replayed, and young when it was judged.

    ``since_us`` is where the violation begins if that isn't this observation's own time.
    """

    time_us: int
    verdict: Verdict
    value: float
    live: bool
    period_us: int = 1_000_000
    since_us: int | None = None


class Move(IntEnum):
    """What an observation brought about."""

    RAISED = 1
    PROMOTED = 2
    """An alert that late data raised is still violated by live data: now it is a live one."""
    CLEARED = 3


@dataclass(slots=True)
class Alarm:
    """``since_us`` is the first violation of the one that lasts, null while well."""

    last_us: int = -1
    since_us: int | None = None
    raised: bool = False
    live: bool = False
    spans: list[tuple[int, int]] = field(default_factory=list)

    def step(self, seen: Observation, hold_us: int) -> Move | None:
        """Takes an observation newer than all before it; an older one must not come here."""
        gap_us = seen.time_us - self.last_us
        self.last_us = seen.time_us
        if self.raised:
            if seen.verdict == Verdict.WELL:
                self.close(seen.time_us)
                return Move.CLEARED
            if seen.verdict == Verdict.VIOLATED and seen.live and not self.live:
                self.live = True
                return Move.PROMOTED
            return None
        if seen.verdict != Verdict.VIOLATED:
            self.since_us = None
            return None
        if self.since_us is None or gap_us > max(MIN_GAP_US, 3 * seen.period_us):
            self.since_us = seen.time_us if seen.since_us is None else seen.since_us
        if seen.time_us - self.since_us < hold_us:
            return None
        self.raised, self.live = True, seen.live
        return Move.RAISED

    def close(self, time_us: int) -> None:
        """Ends a raised alert; ``since_us`` of it is in the last of ``spans`` then."""
        if self.since_us is not None:
            self.spans = [*self.spans, (self.since_us, time_us)][-_SPANS:]
        self.since_us, self.raised, self.live = None, False, False

    def knows(self, time_us: int) -> bool:
        """Whether a time not after ``last_us`` lies within an alert that was told: it says nothing new."""
        if self.since_us is not None and time_us >= self.since_us:
            return True
        return any(first <= time_us <= end for first, end in self.spans)

    @property
    def idle(self) -> bool:
        """Whether a new alarm at the same ``last_us`` would do the same."""
        return self.since_us is None and not self.spans

    def to_state(self) -> list[Any]:
        """As JSON."""
        return [self.last_us, self.since_us, self.raised, self.live, self.spans]

    @classmethod
    def from_state(cls, state: list[Any]) -> Self:
        """What ``to_state`` gave."""
        last_us, since_us, raised, live, spans = state
        return cls(last_us, since_us, raised, live, [(first, end) for first, end in spans])
