"""All rules on all channels: readings in the order they arrive in, alert events out.

Owned by whoever holds the job's lock. Times are microseconds since the epoch; ``now_us`` is the wall clock,
which decides whether something is live, never what the state is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from spark_jobs.alerting.alarm import Alarm, Observation
from spark_jobs.alerting.channel_state import (
    ChannelState,
    GatewayState,
    Orphan,
    Sample,
    Silence,
    orphans,
    restore_silences,
    silences_state,
)
from spark_jobs.alerting.evaluator import EVALUATED, AlertEvent, Evaluator, PairEvaluator, Track, level
from spark_jobs.alerting.rules import Anomaly, Pair, Recovery, Rule, Rules, Silent, Stuck, Threshold

_LATE_PASS_US: Final = 600_000_000
"""A late pass ends when nothing late came for so long."""
_BEHIND_US: Final = 10_000_000
"""Records that waited longer than this in Kafka are a backlog, during which silence can't be evaluated."""


class IntervalRow(NamedTuple):
    """A row of ``statistics`` or ``anomalies``: ``measure`` is recovery, or score over threshold."""

    gateway: str
    channel: str | None
    start_us: int
    length_us: int
    measure: float
    version: int
    about: str | None = None


class Engine:
    """The state of all rules. ``caught_up``: no records wait, so that silence means something."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._value_rules = [rule for rule in rules.rules if isinstance(rule, Threshold | Stuck)]
        self._silent = [rule for rule in rules.rules if isinstance(rule, Silent)]
        self._pair = [rule for rule in rules.rules if isinstance(rule, Pair)]
        self._interval_rules = [rule for rule in rules.rules if isinstance(rule, Recovery | Anomaly)]
        self._channels: dict[tuple[str, str], ChannelState] = {}
        self._gateways: dict[str, GatewayState] = {}
        self._pairs: dict[tuple[tuple[str, str], str, str, str], PairEvaluator] = {}
        self._intervals: dict[tuple[tuple[str, str], str, str | None], Alarm] = {}
        self._twins: dict[tuple[str, str], str] = {}
        self.caught_up = False

    def observe(self, samples: Iterable[Sample], now_us: int) -> list[AlertEvent]:
        """Evaluates readings; each channel's in the order they arrived in."""
        events: list[AlertEvent] = []
        arrived: dict[tuple[str, str], int] = {}
        max_age_us = self._rules.max_age_us
        for sample in samples:
            key = sample[:2]
            channel = self._channels.get(key) or self._new_channel(*key)
            gateway = self._gateways[sample.gateway]
            arrived[key] = sample.kafka_us
            live = not sample.replayed and now_us - sample.time_us <= max_age_us
            events += gateway.receive(sample, live=live)
            if sample.value is None:
                continue
            events += channel.receive(sample)
            events += self._evaluate(channel, sample, sample.value, live, now_us)
        if arrived:
            self.caught_up = now_us - min(arrived.values()) <= _BEHIND_US
        return events

    def _evaluate(
        self, channel: ChannelState, sample: Sample, value: float, live: bool, now_us: int
    ) -> Iterator[AlertEvent]:
        good = sample.quality in EVALUATED
        for evaluator in channel.evaluators:
            # A value that doesn't move is flagged suspect for just that.
            if not good and isinstance(evaluator.rule, Threshold):
                continue
            change = evaluator.take(sample.time_us, sample.period_us, value, live=live, now_us=now_us)
            if change is not None:
                yield AlertEvent(evaluator.rule, channel.gateway, channel.name, *change)
        for pair, side in channel.pairs if good else ():
            if (change := pair.take(side, sample.time_us, value, live=live)) is not None:
                yield AlertEvent(pair.rule, channel.gateway, pair.first, *change)

    def _new_channel(self, gateway: str, name: str) -> ChannelState:
        evaluators = [Evaluator(rule) for rule in self._value_rules if rule.applies_to(gateway, name)]
        silences = [Silence(rule) for rule in self._silent if rule.applies_to(gateway, name)]
        channel = self._channels[gateway, name] = ChannelState(gateway, name, evaluators, silences)
        if gateway not in self._gateways:
            whole = [
                Silence(rule) for rule in self._silent if rule.gateway_us and rule.applies_to(gateway, None)
            ]
            self._gateways[gateway] = GatewayState(gateway, whole)
        self._gateways[gateway].channels.append(channel)
        self._join_pairs(channel)
        return channel

    def evaluate_silence(self, now_us: int) -> list[AlertEvent]:
        """Raises what has been silent for too long; to be called about once a second."""
        if not self.caught_up:
            return []
        return [event for gateway in self._gateways.values() for event in gateway.evaluate_silence(now_us)]

    # Twins -----------------------------------------------------------------------------------------------

    def set_twins(self, twins: Mapping[tuple[str, str], str]) -> list[Orphan]:
        """Takes over the pairs of the table ``channels``: a twin's name by gateway and channel.

        Returns raised alerts of those that are no twins any more: nothing evaluates them further.
        """
        if twins == self._twins:
            return []
        self._twins = dict(twins)
        parted: list[Orphan] = []
        for key, pair in list(self._pairs.items()):
            rule_id, gateway, first, second = key
            named = twins.get((gateway, first)) == second or twins.get((gateway, second)) == first
            if named or pair.rule.pairs:
                continue
            del self._pairs[key]
            parted += orphans(rule_id, gateway, first, pair.alarm)
            for name in (first, second):
                channel = self._channels[gateway, name]
                channel.pairs = [each for each in channel.pairs if each[0] is not pair]
        for channel in list(self._channels.values()):
            self._join_pairs(channel)
        return parted

    def _join_pairs(self, channel: ChannelState) -> None:
        """Makes the pairs of a channel, and the state of its twin where that has not come yet."""
        gateway = channel.gateway
        for rule in self._pair:
            for first, second in self._pairs_of(rule, channel):
                key = (rule.id, gateway, first, second)
                if key in self._pairs:
                    # Twins name each other, but it suffices that one does.
                    continue
                pair = self._pairs[key] = PairEvaluator(rule, first, second)
                for side, name in enumerate((first, second)):
                    # Made now: the first one's windows are to be there when its twin comes.
                    twin = self._channels.get((gateway, name)) or self._new_channel(gateway, name)
                    twin.pairs.append((pair, side))

    def _pairs_of(self, rule: Pair, channel: ChannelState) -> Iterator[tuple[str, str]]:
        if not rule.applies_to(channel.gateway, channel.name):
            return
        if rule.pairs:
            yield from (pair for pair in rule.pairs if channel.name in pair)
            return
        twin = self._twins.get((channel.gateway, channel.name))
        if twin is not None:
            yield min(channel.name, twin), max(channel.name, twin)

    # Tables ----------------------------------------------------------------------------------------------

    def observe_intervals(
        self, kind: type[Rule], rows: Iterable[IntervalRow], now_us: int
    ) -> list[AlertEvent]:
        """Evaluates closed intervals in the order of time; a later version corrects the newest one."""
        return [
            event
            for row in sorted(rows, key=lambda row: (row.start_us, row.version))
            for rule in self._interval_rules
            if isinstance(rule, kind) and rule.applies_to(row.gateway, row.channel)
            for event in self._evaluate_interval(rule, row, now_us)
        ]

    def _evaluate_interval(
        self, rule: Recovery | Anomaly, row: IntervalRow, now_us: int
    ) -> Iterator[AlertEvent]:
        alarm = self._intervals.setdefault((rule.id, row.gateway, row.channel), Alarm())
        if row.start_us < alarm.last_us:
            return
        live = row.version <= 1 and now_us - row.start_us - row.length_us <= self._rules.max_age_us
        if isinstance(rule, Recovery):
            found = level(row.measure, None, rule.below, rule.clear)
        else:
            found = level(row.measure, rule.factor, None, rule.factor)
        change = alarm.step(Observation(row.start_us, found, row.measure, live, row.length_us), rule.hold_us)
        if change is not None:
            yield AlertEvent(rule, row.gateway, row.channel, *change, row.about)

    # The wall clock ----------------------------------------------------------------------------------------

    def end_late_passes(self, now_us: int, after_us: int = _LATE_PASS_US) -> list[AlertEvent]:
        """Ends late passes that nothing came to for so long."""
        events: list[AlertEvent] = []
        for channel in self._channels.values():
            for evaluator in channel.evaluators:
                over = evaluator.late is not None and now_us - evaluator.late_touched_us >= after_us
                if over and (change := evaluator.end_late()) is not None:
                    events.append(AlertEvent(evaluator.rule, channel.gateway, channel.name, *change))
        return events

    def forget_readings(self) -> None:
        """Drops the state of all readings; that of the tables' intervals stays."""
        self._channels.clear()
        self._gateways.clear()
        self._pairs.clear()

    # Storing -----------------------------------------------------------------------------------------------

    def to_state(self) -> dict[str, Any]:
        """All that counts, as JSON; what is normal and nothing else is not listed."""
        state: dict[str, Any] = msgspec.to_builtins(
            {
                "gateways": [
                    (g.name, g.horizon_us, g.received_since_us, g.arrived_us, silences_state(g.silences))
                    for g in self._gateways.values()
                ],
                "channels": [
                    (c.gateway, c.name, c.last_us, c.period_us, _evaluated(c), silences_state(c.silences))
                    for c in self._channels.values()
                ],
                "pairs": [
                    (gateway, *rule_id, first, second, (pair.alarm, pair.sides))
                    for (rule_id, gateway, first, second), pair in self._pairs.items()
                ],
                "intervals": [
                    (*rule_id, gateway, channel, alarm)
                    for (rule_id, gateway, channel), alarm in self._intervals.items()
                ],
                "twins": [(*key, twin) for key, twin in self._twins.items()],
            }
        )
        return state

    def restore(self, state: Mapping[str, Any]) -> list[Orphan]:
        """Takes over what ``to_state`` wrote, perhaps under other rules; gives alerts whose rule is gone."""
        left: list[Orphan] = []
        self._twins = {(gateway, channel): twin for gateway, channel, twin in state["twins"]}
        for gateway, name, last_us, period_us, evaluated, silent in state["channels"]:
            channel = self._channels.get((gateway, name)) or self._new_channel(gateway, name)
            channel.last_us, channel.period_us = last_us, period_us
            there = {evaluator.rule.id: evaluator for evaluator in channel.evaluators}
            for evaluator in channel.evaluators:
                evaluator.main.alarm.last_us = last_us
            for rule, version, main, late in evaluated:
                tracks = msgspec.convert([main, *late[:1]] if late else [main], list[Track])
                if (found := there.get((rule, version))) is None:
                    left += orphans((rule, version), gateway, name, *(track.alarm for track in tracks))
                    continue
                found.main = tracks[0]
                if late:
                    found.late, found.late_touched_us = tracks[1], late[1]
            left += restore_silences(channel.silences, silent, gateway, name, last_us)
        for gateway, horizon_us, received_since_us, arrived_us, silent in state["gateways"]:
            of = self._gateways[gateway]
            of.horizon_us, of.received_since_us, of.arrived_us = horizon_us, received_since_us, arrived_us
            left += restore_silences(of.silences, silent, gateway, None, horizon_us)
        for gateway, rule, version, first, second, kept in state["pairs"]:
            if (pair := self._pairs.get(((rule, version), gateway, first, second))) is None:
                left += orphans((rule, version), gateway, first, msgspec.convert(kept[0], Alarm))
            else:
                pair.restore(kept)
        by_id = {rule.id: rule for rule in self._interval_rules}
        for rule, version, gateway, name, kept in state["intervals"]:
            now, alarm = by_id.get((rule, version)), msgspec.convert(kept, Alarm)
            if now is None or not now.applies_to(gateway, name):
                left += orphans((rule, version), gateway, name, alarm)
            else:
                self._intervals[now.id, gateway, name] = alarm
        return left

    @property
    def size(self) -> int:
        """Channels with a state."""
        return len(self._channels)


def _evaluated(channel: ChannelState) -> list[Any]:
    """What is stored of its value rules: name, version, track, and the late pass with when it was touched."""
    return [
        (*each.rule.id, each.main, None if each.late is None else (each.late, each.late_touched_us))
        for each in channel.evaluators
        if each.late is not None or not each.main.idle
    ]
