"""All rules on all channels: readings in the order they arrive in, alert events out.

Owned by whoever holds the job's lock. Times are microseconds since the epoch; ``now_us`` is the wall clock,
which decides whether something is live, never what the state is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec

from spark_jobs.alerting.alarm import Alarm, Change, Level, Observation, OpenAlert
from spark_jobs.alerting.evaluator import EVALUATED, AlertEvent, Evaluator, PairEvaluator, is_direction, level
from spark_jobs.alerting.gateway_state import (
    NO_BOOM,
    ChannelState,
    GatewayState,
    Sample,
    Silence,
    restore_silences,
)
from spark_jobs.alerting.rules import (
    Anomaly,
    Calibration,
    Cloned,
    Event,
    Health,
    Pair,
    Recovery,
    Rule,
    Rules,
    Silent,
    Stuck,
    Threshold,
    Wear,
)

_LATE_PASS_US: Final = 600_000_000
"""A late pass ends when nothing late came for so long."""
_BEHIND_US: Final = 10_000_000
"""Records that waited longer than this in Kafka are a backlog, during which silence can't be evaluated."""
PARTS: Final = 64
"""Of each state that is stored one part has all its gateways, the others those that changed."""
_DAY_US: Final = 86_400_000_000
OfTable = Recovery | Anomaly | Cloned | Event | Health | Wear | Calibration
"""Rules on what the tables have, not on readings as they arrive."""


class IntervalRow(NamedTuple):
    """A row of a table that rules are about.

    ``measure`` is recovery, score over threshold, 1 of a gateway that there is twice, a figure of a report,
    or the days until a calibration expires or a trend is at its limit. ``name`` is that of the figure, or the
    kind of an event or a trend; ``slope`` is the figure's change a day, None where it has no trend.
    ``detail`` describes an event. ``arrived_us`` is when Kafka had what a gateway reports, however long
    before it was made.
    """

    gateway: str
    channel: str | None
    start_us: int
    length_us: int
    measure: float
    version: int
    about: str | None = None
    name: str | None = None
    slope: float | None = None
    detail: str = ""
    arrived_us: int | None = None


def judged(rule: OfTable, row: IntervalRow) -> Observation | None:
    """What a row is by a rule, not yet live; None where it is about something else."""
    value, since_us = row.measure, None
    match rule:
        case Recovery():
            found = level(value, None, rule.below, rule.clear)
        case Anomaly():
            found = level(value, rule.factor, None, rule.clear)
        case Cloned():
            found = level(value, 0.5, None, 0.5)
        case Event():
            if rule.is_cleared_by(row.name or ""):
                found = Level.NORMAL
            elif rule.is_named(row.name or ""):
                found = Level.VIOLATED
            else:
                return None
        case Health():
            if row.name != rule.field:
                return None
            limit, slope, within_us = rule.above or rule.below or 0.0, row.slope or 0.0, rule.within_us or 0
            ahead = value + slope * within_us / _DAY_US
            worse = max(value, ahead) if rule.above is not None else min(value, ahead)
            found = level(worse, rule.above, rule.below, rule.clear)
            if within_us and found is Level.VIOLATED:
                value = 0.0 if value == worse else max((limit - value) / slope, 0.0)
        case Wear():
            if not rule.is_about(row.name or ""):
                return None
            days = rule.within_us / _DAY_US
            found = level(value, None, days, days)
        case Calibration():
            found = level(value, None, rule.days, rule.days)
            if found is Level.VIOLATED:
                # Since the first day with so few, whenever it was noticed.
                since_us = row.start_us // _DAY_US * _DAY_US - round(rule.days - 1 - value) * _DAY_US
    return Observation(row.start_us, found, value, live=False, period_us=row.length_us, since_us=since_us)


class Engine:
    """The state of all rules. ``caught_up``: no records wait, so that silence means something."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._by_id: dict[tuple[str, str], Rule] = {rule.id: rule for rule in rules.rules}
        self._value_rules = [rule for rule in rules.rules if isinstance(rule, Threshold | Stuck)]
        self._silent = [rule for rule in rules.rules if isinstance(rule, Silent)]
        self._pair = [rule for rule in rules.rules if isinstance(rule, Pair)]
        self._interval_rules = [rule for rule in rules.rules if isinstance(rule, OfTable)]
        self._gateways: dict[str, GatewayState] = {}
        self._changed: set[str] = set()
        self._stored: dict[str, msgspec.Raw] = {}
        # Gateways with a late pass under way.
        self._late: set[str] = set()
        self.caught_up = False

    def observe(self, samples: Iterable[Sample], now_us: int) -> list[AlertEvent]:
        """Evaluates readings; each channel's in the order they arrived in."""
        events: list[AlertEvent] = []
        arrived: dict[tuple[str, str], int] = {}
        max_age_us = self._rules.max_age_us
        for sample in samples:
            gateway = self._gateways.get(sample.gateway) or self._gateway(sample.gateway)
            channel = gateway.channels.get(sample.channel) or self._new_channel(gateway, sample.channel)
            arrived[sample[:2]] = sample.kafka_us
            live = not sample.replayed and now_us - sample.time_us <= max_age_us
            events += gateway.receive(sample, live=live)
            if sample.value is None:
                continue
            events += channel.receive(sample)
            self._evaluate(channel, sample, sample.value, live, now_us, events)
        if arrived:
            self.caught_up = now_us - min(arrived.values()) <= _BEHIND_US
            self._changed.update(gateway for gateway, _ in arrived)
        return events

    def _evaluate(
        self,
        channel: ChannelState,
        sample: Sample,
        value: float,
        live: bool,
        now_us: int,
        events: list[AlertEvent],
    ) -> None:
        good = sample.quality in EVALUATED
        for evaluator in channel.evaluators:
            # A value that doesn't move is flagged suspect for just that.
            if not good and isinstance(evaluator.rule, Threshold):
                continue
            change = evaluator.take(sample.time_us, sample.period_us, value, live=live, now_us=now_us)
            if evaluator.late is not None:
                self._late.add(channel.gateway)
            if change is not None:
                events.append(AlertEvent(evaluator.rule, channel.gateway, channel.name, *change))
        for pair, side in channel.pairs if good else ():
            if (change := pair.take(side, sample.time_us, value, live=live)) is not None:
                events.append(AlertEvent(pair.rule, channel.gateway, pair.first, *change, detail=pair.means))

    def _gateway(self, name: str) -> GatewayState:
        if (there := self._gateways.get(name)) is not None:
            return there
        whole = [Silence(rule) for rule in self._silent if rule.gateway_us and rule.applies_to(name, None)]
        gateway = self._gateways[name] = GatewayState(name, whole)
        return gateway

    def _new_channel(self, gateway: GatewayState, name: str) -> ChannelState:
        rules = [rule for rule in self._value_rules if rule.applies_to(gateway.name, name)]
        evaluators = [Evaluator(rule, is_direction(name)) for rule in rules]
        silences = [Silence(rule) for rule in self._silent if rule.applies_to(gateway.name, name)]
        channel = gateway.channels[name] = ChannelState(gateway.name, name, evaluators, silences)
        self._join_pairs(gateway, channel)
        for rule, of in list(gateway.opened):
            gateway.resume(rule, of)
        return channel

    def evaluate_silence(self, now_us: int) -> list[AlertEvent]:
        """Raises what has been silent for too long; to be called about once a second."""
        if not self.caught_up:
            return []
        events = [event for gateway in self._gateways.values() for event in gateway.evaluate_silence(now_us)]
        self._changed.update(event.gateway for event in events)
        return events

    # Twins -----------------------------------------------------------------------------------------------

    def set_twins(
        self,
        twins: Mapping[str, Mapping[str, str]],
        booms: Mapping[str, tuple[str, Mapping[str, float]]] = MappingProxyType({}),
    ) -> list[OpenAlert]:
        """Takes over the pairs of the table ``channels``: by gateway a twin's name by channel, and ``booms``.

        Returns raised alerts of those that are no twins any more: nothing evaluates them further.
        """
        parted: list[OpenAlert] = []
        for name in {*twins, *(each.name for each in self._gateways.values() if each.twins)}:
            gateway, now = self._gateway(name), dict(twins.get(name, {}))
            if gateway.twins == now:
                continue
            gateway.twins = now
            self._changed.add(name)
            for key, pair in list(gateway.pairs.items()):
                rule, first, second = key
                if now.get(first) == second or now.get(second) == first or pair.rule.pairs:
                    continue
                del gateway.pairs[key]
                if (since_us := pair.alarm.since_us) is not None and pair.alarm.raised:
                    parted.append(OpenAlert(rule, name, first, since_us, pair.alarm.last_us, pair.alarm.live))
                for channel in gateway.channels.values():
                    channel.pairs = [each for each in channel.pairs if each[0] is not pair]
            for channel in list(gateway.channels.values()):
                self._join_pairs(gateway, channel)
        for name in {*booms, *(each.name for each in self._gateways.values() if each.booms != NO_BOOM)}:
            gateway, known = self._gateway(name), booms.get(name, NO_BOOM)
            if gateway.booms != known:
                gateway.booms = known
                for channel in gateway.channels.values():
                    channel.pairs = [each for each in channel.pairs if each[1] != PairEvaluator.VANE]
                for pair in list(gateway.pairs.values()):
                    self._shade(gateway, pair)
        return parted

    def _join_pairs(self, gateway: GatewayState, channel: ChannelState) -> None:
        """Makes the pairs of a channel, and the state of its twin where that has not come yet."""
        for rule in self._pair:
            for first, second in _pairs_of(rule, gateway, channel.name):
                key = (rule.id, first, second)
                if key in gateway.pairs:
                    # Twins name each other, but it suffices that one does.
                    continue
                pair = gateway.pairs[key] = PairEvaluator(rule, first, second)
                gateway.resume(rule.id, first)
                for side, name in enumerate((first, second)):
                    # Made now: the first one's windows are to be there when its twin comes.
                    twin = gateway.channels.get(name) or self._new_channel(gateway, name)
                    twin.pairs.append((pair, side))
                self._shade(gateway, pair)

    def _shade(self, gateway: GatewayState, pair: PairEvaluator) -> None:
        """Has twins compared outside the tower's shadow, where their booms and a vane are known."""
        vane, boom_deg = gateway.booms
        twins_deg = [boom_deg[each] for each in (pair.first, pair.second) if each in boom_deg]
        pair.shadows = [each + 180.0 for each in twins_deg] if pair.rule.shadow else []
        if pair.shadows:
            side = gateway.channels.get(vane) or self._new_channel(gateway, vane)
            side.pairs.append((pair, pair.VANE))

    # Tables ----------------------------------------------------------------------------------------------

    def observe_intervals(
        self, kind: type[Rule], rows: Iterable[IntervalRow], now_us: int
    ) -> list[AlertEvent]:
        """Evaluates closed intervals in the order of time; a later version corrects the newest one."""
        return [
            event
            # The worst of a channel's trends counts on a day.
            for row in sorted(rows, key=lambda row: (row.start_us, row.version, kind is Wear and row.measure))
            for rule in self._interval_rules
            if isinstance(rule, kind) and rule.applies_to(row.gateway, row.channel)
            for event in self._evaluate_interval(rule, row, now_us)
        ]

    def _evaluate_interval(self, rule: OfTable, row: IntervalRow, now_us: int) -> Iterator[AlertEvent]:
        seen, key = judged(rule, row), (rule.id, row.channel)
        if seen is None:
            return
        gateway = self._gateway(row.gateway)
        alarm = gateway.intervals.get(key)
        is_raised = alarm is not None and alarm.raised
        # All channels' calibrations are looked at again and again: what is as it was is no change.
        is_same = key not in gateway.opened and (seen.level is Level.VIOLATED) == is_raised
        if isinstance(rule, Calibration) and is_same:
            return
        if alarm is None:
            alarm = gateway.intervals[key] = Alarm()
            gateway.resume(*key)
        end_us = row.start_us + row.length_us if row.arrived_us is None else row.arrived_us
        seen.live = row.version <= 1 and now_us - end_us <= self._rules.max_age_us
        changes: list[Change | None]
        if isinstance(rule, Event) and not rule.cleared_by:
            changes = self._of_itself(alarm, seen)
        # An event that is announced again has been evaluated; an interval's later version corrects it.
        elif row.start_us < alarm.last_us + isinstance(rule, Event | Wear):
            return
        else:
            changes = [alarm.step(seen, rule.hold_us)]
        self._changed.add(row.gateway)
        for change in filter(None, changes):
            yield AlertEvent(rule, row.gateway, row.channel, *change, row.about, row.detail)

    @staticmethod
    def _of_itself(alarm: Alarm, seen: Observation) -> list[Change | None]:
        """Returns an alert that is over at once, wherever in time it is; none for one that was there."""
        if alarm.covers(seen.time_us):
            return []
        last_us, alarm.last_us = alarm.last_us, -1
        raised = alarm.step(seen, 0)
        seen.level = Level.NORMAL
        cleared = alarm.step(seen, 0)
        alarm.last_us = max(last_us, alarm.last_us)
        return [raised, cleared]

    # The wall clock ----------------------------------------------------------------------------------------

    def end_late_passes(self, now_us: int, after_us: int = _LATE_PASS_US) -> list[AlertEvent]:
        """Ends late passes that nothing came to for so long."""
        events: list[AlertEvent] = []
        for name in sorted(self._late):
            self._late.discard(name)
            for channel in self._gateways[name].channels.values():
                for evaluator in channel.evaluators:
                    if evaluator.late is None:
                        continue
                    if now_us - evaluator.late_touched_us < after_us:
                        self._late.add(name)
                        continue
                    self._changed.add(name)
                    if (change := evaluator.end_late()) is not None:
                        events.append(AlertEvent(evaluator.rule, name, channel.name, *change))
        return events

    # Storing -----------------------------------------------------------------------------------------------

    def to_state(self, part: int | None = None) -> dict[str, msgspec.Raw]:
        """States by gateway, as JSON: of all, or of one of PARTS and those changed since the last."""
        named = list(self._gateways)
        wanted = named if part is None else {*named[part % PARTS :: PARTS], *self._changed}
        for name in self._changed:
            self._stored.pop(name, None)
        self._changed.clear()
        return {name: self._stored.get(name) or self._encode(name) for name in wanted}

    def _encode(self, name: str) -> msgspec.Raw:
        # One at a time: the lists of a whole fleet at once would have Python's collector go through all of
        # the engine, batch after batch.
        raw = self._stored[name] = msgspec.Raw(msgspec.json.encode(self._gateways[name].to_state()))
        return raw

    def restore(self, states: Mapping[str, Any]) -> None:
        """Takes over what ``to_state`` gave, but for what has no rule any more."""
        for name, (*times, silent, channels, pairs, intervals, twins) in states.items():
            gateway = self._gateway(name)
            gateway.horizon_us, gateway.received_since_us, gateway.arrived_us = times
            gateway.twins = twins
            restore_silences(gateway.silences, silent)
            for of, last_us, period_us, evaluated, quiet in channels:
                channel = gateway.channels.get(of) or self._new_channel(gateway, of)
                channel.last_us, channel.period_us = last_us, period_us
                restore_silences(channel.silences, quiet)
                kept = {(rule, version): tracks for rule, version, *tracks in evaluated}
                for evaluator in channel.evaluators:
                    evaluator.main.alarm.last_us = last_us
                    if (tracks := kept.get(evaluator.rule.id)) is not None:
                        evaluator.restore(*tracks)
                    if evaluator.late is not None:
                        self._late.add(name)
            for rule, version, first, second, *sides in pairs:
                if (pair := gateway.pairs.get(((rule, version), first, second))) is not None:
                    pair.restore(sides)
            for rule, version, of, alarm in intervals:
                now = self._by_id.get((rule, version))
                if now is not None and now.applies_to(name, of):
                    gateway.intervals[now.id, of] = msgspec.convert(alarm, Alarm)

    def adopt(self, alerts: Iterable[OpenAlert]) -> list[OpenAlert]:
        """Goes on with alerts that are open by the table: where the state was lost they keep their ids.

        Gives those that nothing evaluates: their rule is gone, or another alert of it is open there, too.
        """
        left: list[OpenAlert] = []
        groups: dict[tuple[str, tuple[str, str], str | None], list[OpenAlert]] = {}
        for alert in alerts:
            groups.setdefault((alert.gateway, alert.rule, alert.channel), []).append(alert)
        for (name, rule_id, channel), group in groups.items():
            rule, gateway = self._by_id.get(rule_id), self._gateway(name)
            raised = {alarm.since_us for alarm in gateway.alarms(rule_id, channel) if alarm.raised}
            stays = [alert for alert in group if alert.since_us in raised]
            if rule is None or not rule.applies_to(name, channel):
                stays = []
            elif raised and not stays:
                # The state is older than the table: it gets there by the same readings.
                continue
            elif not raised:
                stays = [max(group, key=lambda each: (each.live, each.since_us))]
                gateway.opened[rule_id, channel] = stays[0]
                gateway.resume(rule_id, channel)
                self._changed.add(name)
            seen = gateway.channels.get(channel or "")
            last_us = -1 if seen is None else seen.last_us
            left += [
                alert._replace(last_us=max(alert.since_us, last_us)) for alert in group if alert not in stays
            ]
        return left

    @property
    def size(self) -> int:
        """Channels with a state."""
        return sum(len(gateway.channels) for gateway in self._gateways.values())


def _pairs_of(rule: Pair, gateway: GatewayState, channel: str) -> Iterator[tuple[str, str]]:
    if not rule.applies_to(gateway.name, channel):
        return
    if rule.pairs:
        yield from (pair for pair in rule.pairs if channel in pair)
        return
    twin = gateway.twins.get(channel)
    if twin is not None:
        yield min(channel, twin), max(channel, twin)
