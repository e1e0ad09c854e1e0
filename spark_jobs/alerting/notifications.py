"""Alert events as records: alerts, commands within their limits, rows of the table."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cloud.wire.alert_records import AlertRecord
from cloud.wire.command_records import Command
from cloud.wire.fields import format_time
from spark_jobs.alerting.alarm import OpenAlert, Transition
from spark_jobs.alerting.evaluator import AlertEvent
from spark_jobs.alerting.rules import CommandRule, Rule, alert_id

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
            text = rule.text(event.gateway, event.about or event.channel, event.value)
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
