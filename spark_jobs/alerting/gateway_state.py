"""The state of each gateway and channel: their newest reading, the rules on them, how long they are silent.

Silence needs a clock, and has two. A channel is silent in the event time of its own gateway: while the
gateway's other channels go on, by so many of the channel's periods. That needs no wall clock, and an outage
of the gateway is no silence of its channels. A gateway as a whole is silent by the wall clock, from its last
arrival in Kafka to its next, whatever arrives: nothing else goes on there. Both are evaluated only while no
records wait in Kafka, and are always live: of the past, the recovery shows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from spark_jobs.alerting.alarm import MIN_GAP_US, Alarm, OpenAlert, RuleId, Transition
from spark_jobs.alerting.evaluator import AlertEvent, Evaluator, PairEvaluator
from spark_jobs.alerting.rules import Silent

_SETTLE_US: Final = 5_000_000
"""Silence counts only when it is still there so much later: a gateway's channels come one after another."""


class Sample(NamedTuple):
    """What is evaluated of a reading; ``value`` is None where it is missing, ``kafka_us`` its arrival."""

    gateway: str
    channel: str
    time_us: int
    period_us: int
    value: float | None
    quality: int
    replayed: bool
    kafka_us: int


@dataclass(slots=True)
class Silence:
    """A silent rule on one channel, or on a whole gateway. ``since_us`` is None while readings come."""

    rule: Silent
    since_us: int | None = None
    noticed_us: int | None = None

    def begin(
        self, gateway: str, channel: str | None, since_us: int, at_us: int, quiet_us: int
    ) -> AlertEvent:
        """Raises the alert."""
        self.since_us = since_us
        return AlertEvent(
            self.rule, gateway, channel, Transition.RAISED, since_us, at_us, quiet_us / 1e6, True
        )

    def end(self, gateway: str, channel: str | None, at_us: int) -> tuple[AlertEvent, ...]:
        """A reading of this time: clears an alert that was raised before it."""
        self.noticed_us = None
        if self.since_us is None or at_us <= self.since_us:
            return ()
        since_us, self.since_us = self.since_us, None
        return (AlertEvent(self.rule, gateway, channel, Transition.CLEARED, since_us, at_us, 0.0, True),)

    @property
    def raised(self) -> bool:
        """Whether its alert is."""
        return self.since_us is not None

    def resume(self, alert: OpenAlert) -> None:
        """Goes on with an alert that was raised before."""
        self.since_us = alert.since_us


def silences_state(silences: Iterable[Silence]) -> list[Any]:
    """Returns those that are raised, for JSON."""
    return [[*silence.rule.id, silence.since_us] for silence in silences if silence.since_us is not None]


def restore_silences(silences: Iterable[Silence], kept: Iterable[Any]) -> None:
    """Takes over what ``silences_state`` wrote, as far as its rules are there."""
    since = {(rule, version): since_us for rule, version, since_us in kept}
    for silence in silences:
        silence.since_us = since.get(silence.rule.id)


@dataclass(slots=True)
class ChannelState:
    """One channel: its newest reading that has a value, and the rules on it."""

    gateway: str
    name: str
    evaluators: list[Evaluator]
    silences: list[Silence]
    pairs: list[tuple[PairEvaluator, int]] = field(default_factory=list)
    last_us: int = -1
    period_us: int = 1_000_000

    def receive(self, sample: Sample) -> list[AlertEvent]:
        """Notes a reading that has a value."""
        if sample.time_us <= self.last_us:
            return []
        self.last_us, self.period_us = sample.time_us, sample.period_us
        return [
            event
            for silence in self.silences
            for event in silence.end(self.gateway, self.name, sample.time_us)
        ]


NO_BOOM: Final[tuple[str, Mapping[str, float]]] = ("", MappingProxyType({}))
"""What is known of a gateway without a vane or booms."""


@dataclass(slots=True)
class GatewayState:
    """One gateway: its channels, their pairs, and the alarms of intervals.

    ``twins``: a twin's name by channel. ``booms``, read at each start: the vane by which twins are compared,
    and by channel the degrees where its boom points to. ``opened``: alerts that are open, of what has not
    come yet.
    ``horizon_us``: newest live event time, at most its arrival; ``received_since_us``: since when readings
    came without a gap; ``arrived_us``: when Kafka had its newest record. ``moving``: a channel's silence may
    change.
    """

    name: str
    silences: list[Silence]
    channels: dict[str, ChannelState] = field(init=False, default_factory=dict)
    pairs: dict[tuple[RuleId, str, str], PairEvaluator] = field(init=False, default_factory=dict)
    intervals: dict[tuple[RuleId, str | None], Alarm] = field(init=False, default_factory=dict)
    twins: dict[str, str] = field(init=False, default_factory=dict)
    booms: tuple[str, Mapping[str, float]] = field(init=False, default=NO_BOOM)
    opened: dict[tuple[RuleId, str | None], OpenAlert] = field(init=False, default_factory=dict)
    horizon_us: int = field(init=False, default=-1)
    received_since_us: int = field(init=False, default=-1)
    arrived_us: int = field(init=False, default=-1)
    moving: bool = field(init=False, default=True)

    def receive(self, sample: Sample, *, live: bool) -> list[AlertEvent]:
        """Notes any reading, a missing value too: it shows that the gateway works."""
        self.moving = True
        events: list[AlertEvent] = []
        if sample.kafka_us > self.arrived_us:
            self.arrived_us = sample.kafka_us
            for silence in self.silences:
                # What comes first is often a backlog, of the time before the alert.
                since_us = silence.since_us or 0
                at_us = sample.time_us if sample.time_us > since_us else sample.kafka_us
                events += silence.end(self.name, None, at_us)
        # A device's clock may be ahead: no reading is of later than its arrival.
        reached_us = min(sample.time_us, sample.kafka_us)
        if live and reached_us > self.horizon_us:
            if reached_us - self.horizon_us > max(MIN_GAP_US, 3 * sample.period_us):
                self.received_since_us = reached_us
            self.horizon_us = reached_us
        return events

    def evaluate_silence(self, now_us: int) -> Iterator[AlertEvent]:
        """Raises what has been silent for too long."""
        quiet_us = now_us - self.arrived_us
        for silence in self.silences if self.horizon_us >= 0 else ():
            limit_us = silence.rule.gateway_us
            if limit_us is not None and not silence.raised and quiet_us > limit_us:
                since_us = self.arrived_us + limit_us
                yield silence.begin(self.name, None, since_us, since_us, quiet_us)
        if not self.moving:
            return
        self.moving = False
        for channel in self.channels.values():
            for silence in channel.silences:
                yield from self._evaluate_channel(channel, silence, now_us)
                self.moving |= silence.noticed_us is not None and not silence.raised

    def _evaluate_channel(self, channel: ChannelState, silence: Silence, now_us: int) -> Iterator[AlertEvent]:
        if silence.since_us is not None or channel.last_us < 0:
            return
        allowed_us = round(silence.rule.periods * channel.period_us)
        # Only time in which the gateway sent: its own outage is no silence of a channel.
        quiet_us = self.horizon_us - max(channel.last_us, self.received_since_us)
        if quiet_us <= allowed_us:
            silence.noticed_us = None
        elif silence.noticed_us is None:
            silence.noticed_us = now_us
        elif now_us - silence.noticed_us >= _SETTLE_US:
            last_us = channel.last_us
            yield silence.begin(
                self.name, channel.name, last_us + allowed_us, self.horizon_us, self.horizon_us - last_us
            )

    # Alerts that are open ----------------------------------------------------------------------------------

    def alarms(self, rule: RuleId, channel: str | None) -> list[Alarm | Silence]:
        """What evaluates a rule on a channel by now, or on the gateway; what follows the newest first."""
        found: list[Alarm | Silence] = []
        state = None if channel is None else self.channels.get(channel)
        for evaluator in () if state is None else state.evaluators:
            if evaluator.rule.id == rule:
                found += [track.alarm for track in (evaluator.main, evaluator.late) if track is not None]
        silences = self.silences if channel is None else () if state is None else state.silences
        found += [silence for silence in silences if silence.rule.id == rule]
        found += [pair.alarm for (of, first, _), pair in self.pairs.items() if (of, first) == (rule, channel)]
        found += [alarm for key, alarm in self.intervals.items() if key == (rule, channel)]
        return found

    def resume(self, rule: RuleId, channel: str | None) -> None:
        """Goes on with the open alert of a rule on a channel, where that has come by now."""
        alarms = self.alarms(rule, channel)
        if alarms and (alert := self.opened.pop((rule, channel), None)) is not None:
            alarms[0].resume(alert)

    def to_state(self) -> list[Any]:
        """All that counts, for JSON; what is normal and nothing else is not listed."""
        return [
            self.horizon_us,
            self.received_since_us,
            self.arrived_us,
            silences_state(self.silences),
            [
                (c.name, c.last_us, c.period_us, _evaluated(c), silences_state(c.silences))
                for c in self.channels.values()
            ],
            [
                (*rule, first, second, pair.alarm, pair.sides)
                for (rule, first, second), pair in self.pairs.items()
            ],
            [(*rule, channel, alarm) for (rule, channel), alarm in self.intervals.items()],
            self.twins,
        ]


def _evaluated(channel: ChannelState) -> list[Any]:
    """What is stored of its value rules: name, version, track, and the late pass with when it was touched."""
    return [
        (*each.rule.id, each.main, None if each.late is None else (each.late, each.late_touched_us))
        for each in channel.evaluators
        if each.late is not None or not each.main.idle
    ]
