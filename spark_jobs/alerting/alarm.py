"""The alarm of one rule on one channel: normal, violated for a while, or raised.

It moves in event time alone: neither the wall clock nor batches matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from msgspec import Struct

MIN_GAP_US: Final = 60_000_000
"""A violation that isn't raised yet starts over after a gap of this, or of three periods if that is more:
there is no data of the time between."""
_SPANS: Final = 8
"""How many past alerts are kept, so that late data of their time doesn't raise them again."""


class Level(IntEnum):
    """What one observation is by its rule."""

    NORMAL = 0
    BETWEEN = 1
    """Neither violated nor normal again: hysteresis."""
    VIOLATED = 2


@dataclass(slots=True)
class Observation:
    """A level at an event time (microseconds). ``live``: not replayed, and young when it was evaluated.

    ``since_us`` is where the violation starts if that isn't this observation's own time.
    """

    time_us: int
    level: Level
    value: float
    live: bool
    period_us: int = 1_000_000
    since_us: int | None = None


class Transition(IntEnum):
    """What an observation changed."""

    RAISED = 1
    PROMOTED = 2
    """An alert that late data raised is still violated by live data: now it is a live one."""
    CLEARED = 3


RuleId = tuple[str, str]
"""A rule's name and version."""


class OpenAlert(NamedTuple):
    """An alert that was raised and not cleared; ``last_us``: time of the last reading that it is known of."""

    rule: RuleId
    gateway: str
    channel: str | None
    since_us: int
    last_us: int
    live: bool


class Change(NamedTuple):
    """A transition at ``time_us`` of the violation that started at ``since_us``."""

    transition: Transition
    since_us: int
    time_us: int
    value: float
    live: bool


class Alarm(Struct, array_like=True):
    """``since_us`` is the start of the violation under way, None while normal. Stored as it is."""

    last_us: int = -1
    since_us: int | None = None
    raised: bool = False
    live: bool = False
    spans: list[tuple[int, int]] = []

    def step(self, seen: Observation, hold_us: int) -> Change | None:
        """Takes an observation newer than all before it; an older one must not come here."""
        gap_us = seen.time_us - self.last_us
        self.last_us = seen.time_us
        if self.raised:
            if seen.level == Level.NORMAL:
                cleared = self._change(Transition.CLEARED, seen)
                self.close(seen.time_us)
                return cleared
            if seen.level == Level.VIOLATED and seen.live and not self.live:
                self.live = True
                return self._change(Transition.PROMOTED, seen)
            return None
        if seen.level != Level.VIOLATED:
            self.since_us = None
            return None
        if self.since_us is None or gap_us > max(MIN_GAP_US, 3 * seen.period_us):
            self.since_us = seen.time_us if seen.since_us is None else seen.since_us
        if seen.time_us - self.since_us < hold_us:
            return None
        self.raised, self.live = True, seen.live
        return self._change(Transition.RAISED, seen)

    def _change(self, transition: Transition, seen: Observation) -> Change:
        return Change(transition, self.since_us or 0, seen.time_us, seen.value, self.live)

    def close(self, time_us: int) -> None:
        """Ends a raised alert; its ``since_us`` is in the last of ``spans`` then."""
        if self.since_us is not None:
            self.spans = [*self.spans, (self.since_us, time_us)][-_SPANS:]
        self.since_us, self.raised, self.live = None, False, False

    def resume(self, alert: OpenAlert) -> None:
        """Goes on with an alert that was raised before."""
        self.since_us, self.raised, self.live = alert.since_us, True, alert.live
        self.last_us = max(self.last_us, alert.since_us)

    def covers(self, time_us: int) -> bool:
        """Whether a time not after ``last_us`` lies within an alert that was published already."""
        if self.since_us is not None and time_us >= self.since_us:
            return True
        return any(first <= time_us <= end for first, end in self.spans)

    @property
    def idle(self) -> bool:
        """Whether a new alarm at the same ``last_us`` would do the same."""
        return self.since_us is None and not self.spans
