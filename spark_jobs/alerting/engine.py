"""All rules on all channels: readings in the order they arrive in, alerts out.

Owned by whoever holds the job's lock. Times are microseconds since the epoch; ``now_us`` is the wall clock,
which decides whether something is live, never what the state is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from spark_jobs.alerting.alarm import Alarm, Move, Observation, Verdict
from spark_jobs.alerting.channel_state import (
    ChannelPlace,
    GatewayPlace,
    Orphan,
    Sample,
    Silence,
    orphan,
    restore_silences,
    silences_state,
)
from spark_jobs.alerting.evaluator import JUDGED, PairWatcher, Told, Watcher, track_from
from spark_jobs.alerting.rules import Anomaly, Pair, Recovery, Rule, Rules, Silent, Stuck, Threshold

_LATE_PASS_US: Final = 600_000_000
"""A late pass ends when nothing late came for so long."""
_BEHIND_US: Final = 10_000_000
"""Records that waited longer than this in Kafka are a backlog, during which nobody can tell silence."""


class Interval(NamedTuple):
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
        self._judging = rules.of_kind(Threshold, Stuck)
        self._silent = rules.of_kind(Silent)
        self._pair = rules.of_kind(Pair)
        self._channels: dict[tuple[str, str], ChannelPlace] = {}
        self._gateways: dict[str, GatewayPlace] = {}
        self._intervals: dict[tuple[tuple[str, str], str, str | None], Watcher] = {}
        self._late: dict[int, tuple[ChannelPlace, Watcher]] = {}
        self._twins: dict[tuple[str, str], str] = {}
        self.caught_up = False

    def observe(self, samples: Iterable[Sample], now_us: int) -> list[Told]:
        """Judges readings; each channel's in the order they arrived in."""
        told: list[Told] = []
        arrived: dict[tuple[str, str], int] = {}
        max_age_us = self._rules.max_age_us
        for sample in samples:
            key = sample[:2]
            channel = self._channels.get(key) or self._new_channel(*key)
            gateway = self._gateways[sample.gateway]
            arrived[key] = sample.kafka_us
            live = not sample.replayed and now_us - sample.time_us <= max_age_us
            told += gateway.hear(sample, live=live)
            if sample.value is None:
                continue
            told += channel.hear(sample)
            self._judge(channel, sample, sample.value, live, now_us, told)
        if arrived:
            self.caught_up = now_us - min(arrived.values()) <= _BEHIND_US
        return told

    def _judge(
        self, channel: ChannelPlace, sample: Sample, value: float, live: bool, now_us: int, told: list[Told]
    ) -> None:
        judged = sample.quality in JUDGED
        for watcher in channel.watchers:
            # A value that stands still is flagged suspect for just that.
            if not judged and isinstance(watcher.rule.kind, Threshold):
                continue
            moved = watcher.take(sample.time_us, sample.period_us, value, live=live, now_us=now_us)
            if watcher.late is not None:
                self._late[id(watcher)] = (channel, watcher)
            if moved is not None:
                move, since_us, measure, is_live = moved
                told.append(
                    Told(
                        watcher.rule,
                        channel.gateway,
                        channel.name,
                        move,
                        since_us,
                        sample.time_us,
                        measure,
                        is_live,
                    )
                )
        if judged:
            for pair, side in channel.pairs:
                moved = pair.take(side, sample.time_us, value, live=live)
                if moved is not None:
                    move, since_us, measure, is_live = moved
                    told.append(
                        Told(
                            pair.rule,
                            channel.gateway,
                            pair.first,
                            move,
                            since_us,
                            sample.time_us,
                            measure,
                            is_live,
                        )
                    )

    def _new_channel(self, gateway: str, name: str) -> ChannelPlace:
        watchers = [Watcher(rule) for rule in self._judging if rule.is_of(gateway, name)]
        silences = [Silence(rule) for rule in self._silent if rule.is_of(gateway, name)]
        channel = self._channels[gateway, name] = ChannelPlace(gateway, name, watchers, silences)
        if gateway not in self._gateways:
            whole = [
                Silence(rule)
                for rule in self._silent
                if isinstance(rule.kind, Silent)
                and rule.kind.gateway_us is not None
                and rule.is_of(gateway, None)
            ]
            self._gateways[gateway] = GatewayPlace(gateway, whole)
        self._gateways[gateway].channels.append(channel)
        self._join_pairs(channel)
        return channel

    def judge_silence(self, now_us: int) -> list[Told]:
        """What has been silent for too long; to be called about once a second."""
        if not self.caught_up:
            return []
        return [told for gateway in self._gateways.values() for told in gateway.judge_silence(now_us)]

    # Twins -----------------------------------------------------------------------------------------------

    def set_twins(self, twins: Mapping[tuple[str, str], str]) -> list[Orphan]:
        """Takes which channel of a gateway is whose twin, by the table ``channels``.

        Raised alerts of those that are no twins any more are returned: nobody watches them further.
        """
        if twins == self._twins:
            return []
        self._twins = dict(twins)
        parted = [each for channel in self._channels.values() for each in self._part(channel)]
        for channel in list(self._channels.values()):
            self._join_pairs(channel)
        return [each for each in parted if each.since_us is not None]

    def _part(self, channel: ChannelPlace) -> Iterator[Orphan]:
        """Ends the pair watchers of a channel whose twin is another one now; each is told of its first."""
        gateway, kept = channel.gateway, []
        for pair, side in channel.pairs:
            kind: Any = pair.rule.kind
            named = (self._twins.get((gateway, pair.first)), self._twins.get((gateway, pair.second)))
            if kind.pairs or pair.second == named[0] or pair.first == named[1]:
                kept.append((pair, side))
            elif channel.name == pair.first:
                yield orphan(pair.rule.id, gateway, pair.first, pair.alarm)
        channel.pairs = kept

    def _join_pairs(self, channel: ChannelPlace) -> None:
        """Makes the pair watchers of a channel, and its twin where that has not come yet."""
        for rule in self._pair:
            for first, second in self._pairs_of(rule, channel):
                name = second if channel.name == first else first
                # Made now: the first one's windows are to be there when it comes.
                twin = self._channels.get((channel.gateway, name)) or self._new_channel(channel.gateway, name)
                if any(
                    pair.rule is rule and (pair.first, pair.second) == (first, second)
                    for pair, _ in channel.pairs
                ):
                    # Before, or just now: twins name each other, but it suffices that one does.
                    continue
                watcher = PairWatcher(rule, first, second)
                channel.pairs.append((watcher, 0 if channel.name == first else 1))
                twin.pairs.append((watcher, 0 if twin.name == first else 1))

    def _pairs_of(self, rule: Rule, channel: ChannelPlace) -> Iterator[tuple[str, str]]:
        kind: Any = rule.kind
        if not rule.is_of(channel.gateway, channel.name):
            return
        if kind.pairs:
            yield from (pair for pair in kind.pairs if channel.name in pair)
            return
        twin = self._twins.get((channel.gateway, channel.name))
        if twin is not None:
            yield min(channel.name, twin), max(channel.name, twin)

    # Tables ----------------------------------------------------------------------------------------------

    def observe_intervals(self, kind: type[Any], rows: Iterable[Interval], now_us: int) -> list[Told]:
        """Judges closed intervals in the order of time; a later version corrects what the first one said."""
        told: list[Told] = []
        rules = self._rules.of_kind(kind)
        for row in sorted(rows, key=lambda row: (row.start_us, row.version)):
            for rule in rules:
                if rule.is_of(row.gateway, row.channel):
                    self._judge_interval(rule, row, now_us, told)
        return told

    def _judge_interval(self, rule: Rule, row: Interval, now_us: int, told: list[Told]) -> None:
        key = (rule.id, row.gateway, row.channel)
        watcher = self._intervals.setdefault(key, Watcher(rule))
        alarm = watcher.main.alarm
        if row.start_us < alarm.last_us:
            return
        live = row.version <= 1 and now_us - row.start_us - row.length_us <= self._rules.max_age_us
        was_since_us, was_live = alarm.since_us, alarm.live
        verdict = _interval_verdict(rule.kind, row.measure)
        seen = Observation(row.start_us, verdict, row.measure, live, row.length_us)
        move = alarm.step(seen, rule.hold_us)
        if move is not None:
            cleared = move is Move.CLEARED
            since_us = was_since_us if cleared else alarm.since_us
            is_live = was_live if cleared else alarm.live
            told.append(
                Told(
                    rule,
                    row.gateway,
                    row.channel,
                    move,
                    since_us or 0,
                    row.start_us,
                    row.measure,
                    is_live,
                    row.about,
                )
            )

    # What time brings --------------------------------------------------------------------------------------

    def end_late_passes(self, now_us: int, after_us: int = _LATE_PASS_US) -> list[Told]:
        """Ends late passes that nothing came to for so long."""
        told: list[Told] = []
        for mark, (channel, watcher) in list(self._late.items()):
            if now_us - watcher.late_touched_us < after_us:
                continue
            del self._late[mark]
            last_us = watcher.late.alarm.last_us if watcher.late is not None else 0
            if (moved := watcher.end_late()) is not None:
                move, since_us, value, live = moved
                told.append(
                    Told(watcher.rule, channel.gateway, channel.name, move, since_us, last_us, value, live)
                )
        return told

    def forget_readings(self) -> None:
        """Begins anew with the readings; what is known of the tables' intervals stays."""
        self._channels.clear()
        self._gateways.clear()
        self._late.clear()

    # Keeping -----------------------------------------------------------------------------------------------

    def to_state(self) -> dict[str, Any]:
        """All that counts, as JSON; what is well and nothing else is not listed."""
        pairs = {
            id(pair): (channel, pair) for channel in self._channels.values() for pair, _ in channel.pairs
        }
        return {
            "gateways": [
                [name, g.horizon_us, g.heard_since_us, g.arrived_us, silences_state(g.silences)]
                for name, g in self._gateways.items()
            ],
            "channels": [
                [
                    c.gateway,
                    c.name,
                    c.last_us,
                    c.period_us,
                    [
                        [
                            *w.rule.id,
                            w.main.to_state(),
                            None if w.late is None else [w.late.to_state(), w.late_touched_us],
                        ]
                        for w in c.watchers
                        if w.late is not None or not w.main.idle
                    ],
                    silences_state(c.silences),
                ]
                for c in self._channels.values()
            ],
            "pairs": [[c.gateway, *p.rule.id, p.first, p.second, p.to_state()] for c, p in pairs.values()],
            "intervals": [
                [*rule_id, gateway, channel, w.main.alarm.to_state()]
                for (rule_id, gateway, channel), w in self._intervals.items()
            ],
            "twins": [[*key, twin] for key, twin in self._twins.items()],
        }

    def restore(self, state: Mapping[str, Any]) -> list[Orphan]:
        """Takes what ``to_state`` gave, under other rules perhaps: alerts whose rule is gone are returned."""
        orphans: list[Orphan] = []
        self._twins = {(gateway, channel): twin for gateway, channel, twin in state["twins"]}
        for gateway, name, last_us, period_us, watched, silent in state["channels"]:
            channel = self._channels.get((gateway, name)) or self._new_channel(gateway, name)
            channel.last_us, channel.period_us = last_us, period_us
            there = {watcher.rule.id: watcher for watcher in channel.watchers}
            for watcher in channel.watchers:
                watcher.main.alarm.last_us = last_us
            for rule, version, main, late in watched:
                watcher_of = there.get((rule, version))
                tracks = [track_from(main), *([track_from(late[0])] if late else [])]
                if watcher_of is None:
                    orphans += (orphan((rule, version), gateway, name, track.alarm) for track in tracks)
                    continue
                watcher_of.main = tracks[0]
                if late:
                    watcher_of.late, watcher_of.late_touched_us = tracks[1], late[1]
                    self._late[id(watcher_of)] = (channel, watcher_of)
            orphans += restore_silences(channel.silences, silent, gateway, name, last_us)
        for gateway, horizon_us, heard_since_us, arrived_us, silent in state["gateways"]:
            of = self._gateways[gateway]
            of.horizon_us, of.heard_since_us, of.arrived_us = horizon_us, heard_since_us, arrived_us
            orphans += restore_silences(of.silences, silent, gateway, None, horizon_us)
        for gateway, rule, version, first, second, kept in state["pairs"]:
            pair = self._find_pair(gateway, (rule, version), first, second)
            if pair is None:
                orphans.append(orphan((rule, version), gateway, first, Alarm.from_state(kept[0])))
            else:
                pair.restore(kept)
        by_id = {rule.id: rule for rule in self._rules.of_kind(Recovery, Anomaly)}
        for rule, version, gateway, name, kept in state["intervals"]:
            found = by_id.get((rule, version))
            alarm = Alarm.from_state(kept)
            if found is None or not found.is_of(gateway, name):
                orphans.append(orphan((rule, version), gateway, name, alarm))
            else:
                watcher = self._intervals[found.id, gateway, name] = Watcher(found)
                watcher.main.alarm = alarm
        return [each for each in orphans if each.since_us is not None]

    def _find_pair(
        self, gateway: str, rule_id: tuple[str, str], first: str, second: str
    ) -> PairWatcher | None:
        channel = self._channels.get((gateway, first))
        pairs = [] if channel is None else channel.pairs
        same = (pair for pair, _ in pairs if pair.rule.id == rule_id and pair.second == second)
        return next(same, None)

    @property
    def size(self) -> int:
        """Channels with a state."""
        return len(self._channels)


def _interval_verdict(kind: Any, measure: float) -> Verdict:
    if isinstance(kind, Recovery):
        well = measure >= kind.clear
        return Verdict.VIOLATED if measure < kind.below else Verdict.WELL if well else Verdict.BETWEEN
    return Verdict.VIOLATED if measure > kind.factor else Verdict.WELL
