"""Alert events as records: alerts, commands within their limits, rows of the table; and crowds of alerts."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from cloud.wire.alert_records import AlertRecord
from cloud.wire.command_records import Command
from cloud.wire.fields import format_time
from spark_jobs.alerting.alarm import OpenAlert, RuleId, Transition
from spark_jobs.alerting.evaluator import AlertEvent
from spark_jobs.alerting.rules import CommandRule, Event, Pair, Rule, Threshold, alert_id

_HOUR_US: Final = 3_600_000_000
_LONGEST_DETAIL: Final = 1000
_AS_IN_RECORD: Final = (
    *("id", "rule", "rule_version", "severity", "gateway", "channel"),
    *("value", "detail", "historical", "command_id"),
)
"""Columns of ``alerts`` that are a record's fields."""


def command_id(alert: str) -> str:
    """The same for the same alert: a gateway executes an id at most once."""
    return hashlib.sha256(f"command\0{alert}".encode()).hexdigest()[:32]


@dataclass
class Notifier:
    """Makes the records. ``issued``: when and where to a rule sent commands, as far as that limits it.

    ``shard``: which of how many shards of the fleet this is; each has its part of a rule's hourly limit.
    """

    issued: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    shard: tuple[int, int] = (1, 1)
    withheld: int = 0
    """Commands not sent because of a limit, since the start."""

    def records(self, events: Iterable[AlertEvent], now_us: int) -> tuple[list[AlertRecord], list[Command]]:
        """Records of alerts, and the commands that go with them."""
        records: list[AlertRecord] = []
        commands: list[Command] = []
        for event in events:
            rule = event.rule
            alert = alert_id(rule.id, event.gateway, event.channel, event.since_us)
            cleared = event.transition is Transition.CLEARED
            command = None
            if rule.command is not None and event.live and not cleared:
                command = self._command(rule.name, rule.command, alert, event.gateway, now_us)
            if command is not None:
                commands.append(command)
            text = rule.text(event.gateway, event.about or event.channel, event.value, event.detail)
            if cleared and not isinstance(rule, Event | Threshold | Pair):
                # Its words are about what is wrong, or how long it has been, or the days that are left.
                text = f"{event.gateway}: {' '.join(filter(None, (rule.name, event.channel)))}"
            records.append(
                AlertRecord(
                    id=alert,
                    rule=rule.name,
                    rule_version=rule.version,
                    kind=rule.kind,
                    severity=rule.severity,
                    gateway=event.gateway,
                    channel=event.channel,
                    state="cleared" if cleared else "raised",
                    raised_at=format_time(event.since_us),
                    cleared_at=format_time(event.time_us) if cleared else None,
                    reported_at=format_time(event.time_us),
                    value=event.value if math.isfinite(event.value) else None,
                    historical=not event.live,
                    detail=(f"over: {text}" if cleared else text)[:_LONGEST_DETAIL],
                    command_id=None if command is None else command.id,
                )
            )
        return records, commands

    def _command(
        self, rule: str, limits: CommandRule, alert: str, gateway: str, now_us: int
    ) -> Command | None:
        kept_us = max(_HOUR_US, limits.min_interval_us)
        recent = [(at, to) for at, to in self.issued.get(rule, []) if now_us - at < kept_us]
        in_hour = sum(now_us - at < _HOUR_US for at, _ in recent)
        too_soon = any(to == gateway and now_us - at < limits.min_interval_us for at, to in recent)
        part, parts = self.shard
        per_hour = limits.per_hour * part // parts - limits.per_hour * (part - 1) // parts
        if too_soon or in_hour >= per_hour:
            self.withheld += 1
            self.issued[rule] = recent
            return None
        self.issued[rule] = [*recent, (now_us, gateway)]
        return Command(
            id=command_id(alert),
            gateway=gateway,
            target=limits.target,
            action=limits.action,
            args=limits.args,
            issued_at=format_time(now_us),
            expires_at=format_time(now_us + limits.expires_us),
        )


def closing(alert: OpenAlert, rule: Rule | None) -> AlertRecord:
    """The end of an alert that nothing evaluates any more. ``rule``: that of its name by now."""
    name, version = alert.rule
    if rule is None:
        why = "the rule was removed"
    elif rule.version != version:
        why = f"the rule has version {rule.version} now"
    elif not rule.applies_to(alert.gateway, alert.channel):
        why = "the rule leaves it out now"
    elif rule.kind == "pair":
        why = "its twin is another one now"
    else:
        why = "another alert of the rule stands in its place"
    cleared_at = format_time(max(alert.last_us, alert.since_us))
    return AlertRecord(
        id=alert_id(alert.rule, alert.gateway, alert.channel, alert.since_us),
        rule=name,
        rule_version=version,
        kind="" if rule is None else rule.kind,
        severity="info" if rule is None else rule.severity,
        gateway=alert.gateway,
        channel=alert.channel,
        state="cleared",
        raised_at=format_time(alert.since_us),
        cleared_at=cleared_at,
        reported_at=cleared_at,
        value=None,
        historical=not alert.live,
        detail=f"over: {why}",
    )


def merged_row(before: Mapping[str, Any] | None, record: AlertRecord) -> dict[str, Any]:
    """The table's row after a record: what raised an alert stays, what ended it is added."""
    row: dict[str, Any] = {name: getattr(record, name) for name in _AS_IN_RECORD}
    row |= {"kind": record.kind or None, "raised_at": record.raised_us, "cleared_at": record.cleared_us}
    if record.state != "raised":
        row |= {"value": None, "detail": None}
    if before is None:
        return row
    kept = {name: before[name] if row[name] is None else row[name] for name in row}
    return {**kept, "historical": before["historical"] and row["historical"]}


MOST: Final = 40
"""Channels of a large mast, each with an alert, are below it."""
CROWD: Final = ("too-many-alerts", "1")
"""Rule and version of the one alert."""
_SEVERITIES: Final = ("info", "warning", "critical")
PER_HOUR: Final = 120
"""Alerts of a severity that a gateway raises within an hour: one that comes and goes is many."""
FLEET, FLEET_PER_HOUR = "*", 1200


class _Withheld(msgspec.Struct, array_like=True):
    """``record``: to publish it later; None where too many wait for that."""

    rule: RuleId
    severity: str
    record: AlertRecord | None = None


class _Gateway(msgspec.Struct, array_like=True):
    """``shown``: severity by id. ``withheld``: by id.

    ``since_us`` is None while none is withheld; ``reported`` is how many were published, and the worst.
    ``raised``: when so within the hour, by severity.
    """

    shown: dict[str, str] = msgspec.field(default_factory=dict)
    withheld: dict[str, _Withheld] = msgspec.field(default_factory=dict)
    since_us: int | None = None
    reported: tuple[int, str] = (0, "info")
    raised: dict[str, list[int]] = msgspec.field(default_factory=dict)

    def has_hour(self, severity: str, most: int, at_us: int) -> bool:
        """Whether it may raise one more within the hour."""
        kept = self.raised[severity] = [
            each for each in self.raised.get(severity, ()) if at_us - each < _HOUR_US
        ]
        return len(kept) < most

    def withhold(self, record: AlertRecord) -> None:
        """Counts one in, and keeps it while few wait."""
        kept = record if len(self.withheld) < MOST else None
        rule = record.rule, record.rule_version
        self.withheld[record.id] = _Withheld(rule, record.severity, kept)


class Crowds:
    """Publishes a bounded number of open alerts of a gateway and severity; one alert counts all the others.

    Whoever may publish for a gateway can name thousands of channels, and a mast that breaks as a whole has a
    fault in each: people are to see both as one. A critical alert never waits behind others' notes. In an
    hour a gateway raises a bounded number, and so does the fleet, whose own alert for the rest names ``*``
    for a gateway.

    An alert that was published is cleared by its own record. One that was withheld is published when there is
    a place again, if it is one of the first ``MOST`` that wait, and not at all when it ends before.
    The thread that holds the job's lock uses it.
    """

    def __init__(self) -> None:
        self._gateways: dict[str, _Gateway] = {}

    def pass_on(self, records: Iterable[AlertRecord], at_us: int) -> list[AlertRecord]:
        """The records to publish: those not withheld, and how many are where that has changed much.

        To be called without any too, about once a second: an hour ends without a record.
        """
        passed: list[AlertRecord] = []
        fleet = self._gateways.setdefault(FLEET, _Gateway())
        for record in records:
            own = self._gateways.setdefault(record.gateway, _Gateway())
            is_withheld = record.id in own.withheld or record.id in fleet.withheld
            if record.state == "cleared":
                own.shown.pop(record.id, None)
                own.withheld.pop(record.id, None)
                fleet.withheld.pop(record.id, None)
                if not is_withheld:
                    passed.append(record)
            elif record.id in own.shown:
                own.shown[record.id] = record.severity
                passed.append(record)
            elif not is_withheld and (full := self._full(own, record.severity, at_us)) is not None:
                full.withhold(record)
            elif not is_withheld:
                passed.append(self._shown(record, at_us))
        for waiting in [each for each in self._gateways.values() if each.withheld]:
            kept = [each.record for each in waiting.withheld.values() if each.record is not None]
            for record in sorted(kept, key=lambda each: -_SEVERITIES.index(each.severity)):
                own = self._gateways.setdefault(record.gateway, _Gateway())
                if self._full(own, record.severity, at_us) is None:
                    del waiting.withheld[record.id]
                    passed.append(self._shown(record, at_us))
        for gateway in list(self._gateways):
            passed += self._one_for_all(gateway, at_us)
        return passed

    def _full(self, own: _Gateway, severity: str, at_us: int) -> _Gateway | None:
        """What has no place for one more, the gateway or the fleet."""
        fleet = self._gateways[FLEET]
        of_kind = list(own.shown.values()).count(severity)
        if of_kind >= MOST or not own.has_hour(severity, PER_HOUR, at_us):
            return own
        return None if fleet.has_hour(severity, FLEET_PER_HOUR, at_us) else fleet

    def _shown(self, record: AlertRecord, at_us: int) -> AlertRecord:
        self._gateways[record.gateway].shown[record.id] = record.severity
        for each in (self._gateways[record.gateway], self._gateways[FLEET]):
            each.raised[record.severity].append(at_us)
        return record

    def _one_for_all(self, gateway: str, at_us: int) -> Iterator[AlertRecord]:
        own = self._gateways[gateway]
        number = len(own.withheld)
        if own.since_us is None and number:
            own.since_us, own.reported = at_us, (0, "info")
        severities = {each.severity for each in own.withheld.values()}
        worst = max(severities, key=_SEVERITIES.index, default="info")
        before, worst_before = own.reported
        is_worse = _SEVERITIES.index(worst) > _SEVERITIES.index(worst_before)
        if own.since_us is not None and (not number or is_worse or number >= 2 * before):
            own.reported = max(1, number), worst
            yield _record(gateway, own.since_us, at_us, number, worst)
        if not number:
            own.since_us = None
            if not own.shown and all(own.has_hour(each, 1, at_us) for each in list(own.raised)):
                del self._gateways[gateway]

    def forget_rules(self, kept: Iterable[RuleId], at_us: int) -> list[AlertRecord]:
        """Drops withheld alerts of other rules; returns the records that this leads to."""
        rules = set(kept)
        found: list[AlertRecord] = []
        for gateway, own in list(self._gateways.items()):
            own.withheld = {each: what for each, what in own.withheld.items() if what.rule in rules}
            found += self._one_for_all(gateway, at_us)
        return found

    def adopt(self, gateway: str, alert: str, severity: str) -> None:
        """Counts an alert that is open by the table."""
        self._gateways.setdefault(gateway, _Gateway()).shown[alert] = severity

    def ended(self, gateway: str, since_us: int, at_us: int) -> list[AlertRecord]:
        """The end of an open alert of ``CROWD`` that no state has any more."""
        own = self._gateways.get(gateway)
        return [] if own is not None and own.since_us == since_us else [_record(gateway, since_us, at_us, 0)]

    def to_state(self) -> dict[str, _Gateway]:
        """Returns what JSON stores."""
        return self._gateways

    def restore(self, state: Any) -> None:
        """Takes over what ``to_state`` gave."""
        self._gateways = msgspec.convert(state, dict[str, _Gateway])


def _record(gateway: str, since_us: int, at_us: int, number: int, severity: str = "info") -> AlertRecord:
    at = format_time(max(at_us, since_us))
    limit = f"the {FLEET_PER_HOUR} of an hour" if gateway == FLEET else f"the {MOST} that are listed"
    who, over = "the fleet" if gateway == FLEET else gateway, f"over: no alert beyond {limit}"
    return AlertRecord(
        id=alert_id(CROWD, gateway, None, since_us), rule=CROWD[0], rule_version=CROWD[1], kind="crowd",
        severity=severity, gateway=gateway, state="raised" if number else "cleared",
        raised_at=format_time(since_us), cleared_at=None if number else at, reported_at=at,
        value=float(number), historical=False,
        detail=f"{who}: {number} alerts or more beyond {limit}" if number else over,
    )  # fmt: skip
