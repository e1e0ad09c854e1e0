"""The state of each gateway and channel: their newest reading, the rules on them, how long they are silent.

Silence needs a clock, and has two. A channel is silent in the event time of its own gateway: while the
gateway's other channels go on, by so many of the channel's periods. That needs no wall clock, and an outage
of the gateway is no silence of its channels. A gateway as a whole is silent by the wall clock: nothing else
goes on there. Both are evaluated only while no records wait in Kafka, and are always live: of the past, the
recovery shows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from spark_jobs.alerting.alarm import MIN_GAP_US, Alarm, Transition
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


class Orphan(NamedTuple):
    """A raised alert whose rule, or twin, is gone or changed."""

    rule_id: tuple[str, str]
    gateway: str
    channel: str | None
    since_us: int
    last_us: int
    live: bool


def orphans(rule_id: tuple[str, str], gateway: str, channel: str | None, *alarms: Alarm) -> Iterator[Orphan]:
    """What alarms leave behind: those that are raised."""
    for alarm in alarms:
        if alarm.raised and alarm.since_us is not None:
            yield Orphan(rule_id, gateway, channel, alarm.since_us, alarm.last_us, alarm.live)


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

    def end(self, gateway: str, channel: str | None, at_us: int) -> Iterator[AlertEvent]:
        """A reading came: clears the alert where one was raised."""
        self.noticed_us = None
        if self.since_us is not None:
            since_us, self.since_us = self.since_us, None
            yield AlertEvent(self.rule, gateway, channel, Transition.CLEARED, since_us, at_us, 0.0, True)


def silences_state(silences: Iterable[Silence]) -> list[Any]:
    """As JSON: those that are raised."""
    return [[*silence.rule.id, silence.since_us] for silence in silences if silence.since_us is not None]


def restore_silences(
    silences: Iterable[Silence], kept: Iterable[Any], gateway: str, channel: str | None, last_us: int
) -> Iterator[Orphan]:
    """Takes over what ``silences_state`` wrote."""
    there = {silence.rule.id: silence for silence in silences}
    for rule, version, since_us in kept:
        if (silence := there.get((rule, version))) is not None:
            silence.since_us = since_us
        else:
            yield Orphan((rule, version), gateway, channel, since_us, max(last_us, since_us), True)


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

    def receive(self, sample: Sample) -> Iterator[AlertEvent]:
        """Notes a reading that has a value."""
        if sample.time_us > self.last_us:
            for silence in self.silences:
                yield from silence.end(self.gateway, self.name, sample.time_us)
            self.last_us, self.period_us = sample.time_us, sample.period_us


@dataclass(slots=True)
class GatewayState:
    """One gateway.

    ``horizon_us``: newest live event time; ``received_since_us``: since when readings came without a gap;
    ``arrived_us``: when Kafka had its newest record.
    """

    name: str
    silences: list[Silence]
    channels: list[ChannelState] = field(default_factory=list)
    horizon_us: int = -1
    received_since_us: int = -1
    arrived_us: int = -1

    def receive(self, sample: Sample, *, live: bool) -> Iterator[AlertEvent]:
        """Notes any reading, a missing value too: it shows that the gateway works."""
        self.arrived_us = max(self.arrived_us, sample.kafka_us)
        if not live or sample.time_us <= self.horizon_us:
            return
        if sample.time_us - self.horizon_us > max(MIN_GAP_US, 3 * sample.period_us):
            self.received_since_us = sample.time_us
        self.horizon_us = sample.time_us
        for silence in self.silences:
            yield from silence.end(self.name, None, sample.time_us)

    def evaluate_silence(self, now_us: int) -> Iterator[AlertEvent]:
        """Raises what has been silent for too long."""
        quiet_us = now_us - self.arrived_us
        for silence in self.silences if self.horizon_us >= 0 else ():
            limit_us = silence.rule.gateway_us
            if limit_us is not None and silence.since_us is None and quiet_us > limit_us:
                since_us = self.horizon_us + limit_us
                yield silence.begin(self.name, None, since_us, since_us, quiet_us)
        for channel in self.channels:
            for silence in channel.silences:
                yield from self._evaluate_channel(channel, silence, now_us)

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
