"""Rules on one channel: from values to levels, on time and late."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, NamedTuple

import msgspec
from msgspec import Struct

from cloud.wire.quantities import QUANTITIES
from spark_jobs.alerting.alarm import MIN_GAP_US, Alarm, Change, Level, Observation, Transition
from spark_jobs.alerting.rules import Pair, Rule, Stuck, Threshold

EVALUATED: Final = frozenset({1, 2})
"""QARTOD flags whose values may raise: good, not evaluated."""


class AlertEvent(NamedTuple):
    """A transition of an alert; ``time_us`` is that of what caused it, ``since_us`` of the first violation.

    ``about``: the channel a message names where the alert is of the whole gateway. ``detail`` describes the
    event of a gateway that changed it.
    """

    rule: Rule
    gateway: str
    channel: str | None
    transition: Transition
    since_us: int
    time_us: int
    value: float
    live: bool
    about: str | None = None
    detail: str = ""


def level(value: float, above: float | None, below: float | None, clear: float) -> Level:
    """A value against its limit, one of ``above`` and ``below``; on the limit is not beyond it."""
    if above is not None:
        beyond, normal = value > above, value <= clear
    else:
        beyond, normal = below is not None and value < below, value >= clear
    return Level.VIOLATED if beyond else Level.NORMAL if normal else Level.BETWEEN


_STANDS: Final = 5
"""Periods that a value stands for at least: of a slow channel two are alike by chance."""


class Track(Struct, array_like=True):
    """One pass through event time; ``anchor`` is the value that doesn't move, since ``anchor_us``."""

    alarm: Alarm = msgspec.field(default_factory=Alarm)
    anchor: float | None = None
    anchor_us: int = 0

    def step(
        self,
        rule: Threshold | Stuck,
        time_us: int,
        period_us: int,
        value: float,
        live: bool,
        *,
        direction: bool = False,
    ) -> Change | None:
        """Takes a value newer than all before it."""
        alarm, since_us, hold_us = self.alarm, None, rule.hold_us
        if isinstance(rule, Threshold):
            found = level(value, rule.above, rule.below, rule.clear)
        else:
            found, value, since_us = self._movement(rule, time_us, period_us, value, direction)
            hold_us = max(hold_us, _STANDS * period_us)
        if found != Level.VIOLATED and not alarm.raised:
            # As nearly all are: the alarm's own step comes to the same, in three times the time.
            alarm.last_us, alarm.since_us = time_us, None
            return None
        return alarm.step(Observation(time_us, found, value, live, period_us, since_us), hold_us)

    def _movement(
        self, rule: Stuck, time_us: int, period_us: int, value: float, direction: bool
    ) -> tuple[Level, float, int | None]:
        """Its level, how many seconds it has stood, and since when if not since this value."""
        # What stands for days stands through a restart or two.
        gap = time_us - self.alarm.last_us > max(MIN_GAP_US, 3 * period_us, rule.hold_us // 10)
        if rule.moving_above is not None and value <= rule.moving_above:
            self.anchor = None
        elif self.anchor is None and self.alarm.raised and self.alarm.since_us is not None:
            # An alert from before the state was lost: it stands by the value it is found at.
            self.anchor, self.anchor_us = value, self.alarm.since_us
            return Level.VIOLATED, (time_us - self.anchor_us) / 1e6, None
        elif self.anchor is None or gap or _apart(value, self.anchor, direction) > rule.tolerance:
            self.anchor, self.anchor_us = value, time_us
        else:
            return Level.VIOLATED, (time_us - self.anchor_us) / 1e6, self.anchor_us
        return Level.NORMAL, 0.0, None

    @property
    def idle(self) -> bool:
        """Whether a new track would go on the same."""
        return self.anchor is None and self.alarm.idle


@dataclass(slots=True)
class Evaluator:
    """A threshold or stuck rule on one channel.

    ``main`` follows the newest readings. What is older than its last one is late and goes through ``late``,
    a pass of its own whose alerts are historical; what lies within an alert of ``main`` changes nothing.
    """

    rule: Threshold | Stuck
    direction: bool = False
    main: Track = field(default_factory=Track)
    late: Track | None = None
    late_touched_us: int = 0

    def take(self, time_us: int, period_us: int, value: float, *, live: bool, now_us: int) -> Change | None:
        """Evaluates a value; None where nothing changed."""
        alarm = self.main.alarm
        if time_us > alarm.last_us:
            return self.main.step(self.rule, time_us, period_us, value, live, direction=self.direction)
        if time_us == alarm.last_us or alarm.covers(time_us):
            return None
        if self.late is None:
            self.late = Track()
        elif time_us <= self.late.alarm.last_us:
            return None
        self.late_touched_us = now_us
        return self.late.step(self.rule, time_us, period_us, value, False, direction=self.direction)

    def restore(self, main: Any, late: Any) -> None:
        """Takes over the stored tracks; the late one with when it was touched."""
        self.main = msgspec.convert(main, Track)
        if late is not None:
            self.late, self.late_touched_us = msgspec.convert(late, tuple[Track, int])

    def end_late(self) -> Change | None:
        """Ends the late pass, when nothing late comes any more; a raised alert ends with it."""
        late, self.late = self.late, None
        if late is None or not late.alarm.raised:
            return None
        return Change(Transition.CLEARED, late.alarm.since_us or 0, late.alarm.last_us, 0.0, False)


_KEPT_WINDOWS: Final = 64
"""How many windows one twin may be ahead of the other: partitions aren't read in step."""


class _Window(NamedTuple):
    number: int
    mean: float
    readings: int


class _Side(Struct, array_like=True):
    """One twin's readings in the window they are in now, and its last whole windows."""

    number: int = -1
    total: float = 0.0
    count: int = 0
    done: list[_Window] = []

    def add(self, number: int, value: float, *, direction: bool) -> _Window | None:
        """Takes a value; the window that was completed by it. A value older than its window is left out."""
        if number < self.number:
            return None
        completed = None
        if number > self.number:
            if self.count:
                completed = _Window(self.number, self.total / self.count, self.count)
                self.done = [*self.done, completed][-_KEPT_WINDOWS:]
            self.number, self.total, self.count = number, 0.0, 0
        if direction and self.count:
            # Beyond north, so that the mean is no direction between 359 and 1.
            mean = self.total / self.count
            value = mean + _turned(value - mean)
        self.total = _bounded(self.total + value)
        self.count += 1
        return completed


def is_direction(channel: str) -> bool:
    """Whether a channel has directions; one of a quantity that isn't built in counts as plain numbers."""
    known = QUANTITIES.get(channel.rpartition(".")[2])
    return known is not None and known.kind == "direction"


def _turned(degrees: float) -> float:
    """A difference of directions as the shorter way round."""
    return (degrees + 180.0) % 360.0 - 180.0


def _apart(value: float, other: float, direction: bool) -> float:
    return _bounded(abs(_turned(value - other) if direction else value - other))


def _bounded(value: float) -> float:
    """The value, or the largest number: neither a record nor the state can hold what is beyond it."""
    return min(max(value, -sys.float_info.max), sys.float_info.max)


@dataclass(slots=True)
class PairEvaluator:
    """A pair rule on two twins: their means over the same windows of event time.

    ``shadows`` are the directions of the wind, in degrees, in which the tower shades one of them.
    """

    VANE: ClassVar = 2
    rule: Pair
    first: str
    second: str
    shadows: Sequence[float] = ()
    alarm: Alarm = field(default_factory=Alarm)
    means: str = field(init=False, default="")
    sides: list[_Side] = field(default_factory=lambda: [_Side(), _Side(), _Side()])
    direction: bool = field(init=False)

    def __post_init__(self) -> None:
        self.direction = is_direction(self.first)

    def take(self, side: int, time_us: int, value: float, *, live: bool) -> Change | None:
        """Takes a value as ``Evaluator.take`` does; ignores late readings of windows that are over."""
        rule, direction = self.rule, self.direction
        own = self.sides[side].add(time_us // rule.window_us, value, direction=direction or side == self.VANE)
        if own is None or own.number * rule.window_us <= self.alarm.last_us:
            return None
        number = own.number
        one, other, wind = (next((it for it in by.done if it.number == number), None) for by in self.sides)
        if one is None or other is None or (self.shadows and wind is None and self._vane_comes()):
            return None
        if 2 * min(one.readings, other.readings) < max(one.readings, other.readings):
            # Means of different times: gusts, not the twins, would differ.
            return None
        if wind is not None and any(_apart(wind.mean, each, True) <= rule.shadow for each in self.shadows):
            return None
        difference = _apart(one.mean, other.mean, direction)
        found = level(difference, rule.difference, None, rule.clear)
        # The alert is of the window; what caused it is the reading that completed it.
        change = self.alarm.step(
            Observation(own.number * rule.window_us, found, difference, live, rule.window_us), rule.hold_us
        )
        self.means = f"{one.mean:.2f} beside {other.mean:.2f} at {self.second}"
        return None if change is None else change._replace(time_us=time_us)

    def _vane_comes(self) -> bool:
        """Whether the vane may still have the windows that are kept: one that is dead mutes nothing."""
        windows = self.sides[0].done
        return len(windows) < _KEPT_WINDOWS or self.sides[self.VANE].number >= windows[0].number

    def restore(self, state: list[Any]) -> None:
        """Takes over the stored alarm and sides."""
        self.alarm, sides = msgspec.convert(state, tuple[Alarm, list[_Side]])
        # Earlier versions stored two.
        self.sides = [*sides, _Side()][: self.VANE + 1]
