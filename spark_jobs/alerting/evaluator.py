"""Rules on one channel: from values to verdicts, on time and late."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from spark_jobs.alerting.alarm import MIN_GAP_US, Alarm, Move, Observation, Verdict
from spark_jobs.alerting.rules import Rule, Stuck, Threshold

JUDGED: Final = frozenset({1, 2})
"""QARTOD flags whose values may raise: good, not evaluated."""


class Told(NamedTuple):
    """One move of one alert; ``time_us`` is that of what brought it, ``since_us`` of the first violation."""

    rule: Rule
    gateway: str
    channel: str | None
    move: Move
    since_us: int
    time_us: int
    value: float
    live: bool
    about: str | None = None
    """The channel a message names where the alert is of the whole gateway."""


def threshold_verdict(limit: Threshold, value: float) -> Verdict:
    """A value against its limit; on the limit is not beyond it."""
    if limit.above is not None:
        beyond, well = value > limit.above, value <= limit.clear
    else:
        beyond, well = limit.below is not None and value < limit.below, value >= limit.clear
    return Verdict.VIOLATED if beyond else Verdict.WELL if well else Verdict.BETWEEN


@dataclass(slots=True)
class Track:
    """One pass through event time; ``anchor`` is the value that stands still, since ``anchor_us``."""

    alarm: Alarm = field(default_factory=Alarm)
    anchor: float | None = None
    anchor_us: int = 0

    def observe(self, rule: Rule, time_us: int, period_us: int, value: float, live: bool) -> Observation:
        """The rule's verdict on a value newer than all before it."""
        if isinstance(rule.kind, Threshold):
            return Observation(time_us, threshold_verdict(rule.kind, value), value, live, period_us)
        return self._stands_still(rule.kind, time_us, period_us, value, live)

    def _stands_still(self, kind: Any, time_us: int, period_us: int, value: float, live: bool) -> Observation:
        stuck: Stuck = kind
        gap = time_us - self.alarm.last_us > max(MIN_GAP_US, 3 * period_us)
        if stuck.moving_above is not None and value <= stuck.moving_above:
            self.anchor = None
        elif self.anchor is None or gap or abs(value - self.anchor) > stuck.tolerance:
            self.anchor, self.anchor_us = value, time_us
        else:
            return Observation(
                time_us,
                Verdict.VIOLATED,
                (time_us - self.anchor_us) / 1e6,
                live,
                period_us,
                self.anchor_us,
            )
        return Observation(time_us, Verdict.WELL, 0.0, live, period_us)

    @property
    def idle(self) -> bool:
        """Whether a new track would go on the same."""
        return self.anchor is None and self.alarm.idle

    def to_state(self) -> list[Any]:
        """As JSON."""
        return [self.alarm.to_state(), self.anchor, self.anchor_us]


def track_from(state: list[Any]) -> Track:
    """What ``Track.to_state`` gave."""
    alarm, anchor, anchor_us = state
    return Track(Alarm.from_state(alarm), anchor, anchor_us)


@dataclass(slots=True)
class Watcher:
    """A threshold or stuck rule on one channel.

    ``main`` goes with the newest readings. What is older than its last one was late: it goes through
    ``late``, a pass of its own, whose alerts are historical; what lies within an alert of ``main`` says
    nothing new.
    """

    rule: Rule
    main: Track = field(default_factory=Track)
    late: Track | None = None
    late_touched_us: int = 0

    def take(
        self, time_us: int, period_us: int, value: float, *, live: bool, now_us: int
    ) -> tuple[Move, int, float, bool] | None:
        """Move, first violation, value and whether live; None where nothing changed."""
        alarm = self.main.alarm
        if time_us > alarm.last_us:
            return self._step(self.main, time_us, period_us, value, live)
        if time_us == alarm.last_us or alarm.knows(time_us):
            return None
        if self.late is None:
            self.late = Track()
        elif time_us <= self.late.alarm.last_us:
            return None
        self.late_touched_us = now_us
        return self._step(self.late, time_us, period_us, value, False)

    def _step(
        self, track: Track, time_us: int, period_us: int, value: float, live: bool
    ) -> tuple[Move, int, float, bool] | None:
        alarm = track.alarm
        seen = track.observe(self.rule, time_us, period_us, value, live)
        was_since_us, was_live = alarm.since_us, alarm.live
        move = alarm.step(seen, self.rule.hold_us)
        if move is None:
            return None
        if move is Move.CLEARED:
            return move, was_since_us or 0, seen.value, was_live
        return move, alarm.since_us or 0, seen.value, alarm.live

    def end_late(self) -> tuple[Move, int, float, bool] | None:
        """Ends the late pass, when nothing late comes any more; a standing alert ends with it."""
        late, self.late = self.late, None
        if late is None or not late.alarm.raised:
            return None
        return Move.CLEARED, late.alarm.since_us or 0, 0.0, False


_KEPT_WINDOWS: Final = 64
"""How many windows one twin may be ahead of the other: partitions aren't read in step."""


@dataclass(slots=True)
class _Side:
    """One twin's readings in the window they are in now, and mean and count of its last whole windows."""

    bucket: int = -1
    total: float = 0.0
    count: int = 0
    done: dict[int, tuple[float, int]] = field(default_factory=dict)

    def add(self, bucket: int, value: float) -> int | None:
        """Takes a value; the window that was completed by it. What is older than its window is left out."""
        if bucket < self.bucket:
            return None
        completed = None
        if bucket > self.bucket:
            if self.count:
                completed = self.bucket
                self.done[completed] = (self.total / self.count, self.count)
                if len(self.done) > _KEPT_WINDOWS:
                    del self.done[next(iter(self.done))]
            self.bucket, self.total, self.count = bucket, 0.0, 0
        self.total += value
        self.count += 1
        return completed


@dataclass(slots=True)
class PairWatcher:
    """A pair rule on two twins: their means over the same windows of event time."""

    rule: Rule
    first: str
    second: str
    alarm: Alarm = field(default_factory=Alarm)
    sides: tuple[_Side, _Side] = field(default_factory=lambda: (_Side(), _Side()))

    def take(
        self, side: int, time_us: int, value: float, *, live: bool
    ) -> tuple[Move, int, float, bool] | None:
        """As ``Watcher.take``; late readings of windows that are over are not judged."""
        kind: Any = self.rule.kind
        own, other = self.sides[side], self.sides[1 - side]
        window = own.add(time_us // kind.window_us, value)
        if window is None or window not in other.done or window * kind.window_us <= self.alarm.last_us:
            return None
        (mean, count), (other_mean, other_count) = own.done[window], other.done[window]
        if 2 * min(count, other_count) < max(count, other_count):
            # Means of different times: gusts, not the twins, would differ.
            return None
        difference = abs(mean - other_mean)
        verdict = (
            Verdict.VIOLATED
            if difference > kind.difference
            else Verdict.WELL
            if difference <= kind.clear
            else Verdict.BETWEEN
        )
        was_since_us, was_live = self.alarm.since_us, self.alarm.live
        seen = Observation(window * kind.window_us, verdict, difference, live, kind.window_us)
        move = self.alarm.step(seen, self.rule.hold_us)
        if move is None:
            return None
        if move is Move.CLEARED:
            return move, was_since_us or 0, difference, was_live
        return move, self.alarm.since_us or 0, difference, self.alarm.live

    def to_state(self) -> list[Any]:
        """As JSON."""
        sides = [[s.bucket, s.total, s.count, [[w, *done] for w, done in s.done.items()]] for s in self.sides]
        return [self.alarm.to_state(), sides]

    def restore(self, state: list[Any]) -> None:
        """Takes what ``to_state`` gave."""
        self.alarm = Alarm.from_state(state[0])
        first, second = (
            _Side(bucket, total, count, {window: (mean, n) for window, mean, n in done})
            for bucket, total, count, done in state[1]
        )
        self.sides = (first, second)
