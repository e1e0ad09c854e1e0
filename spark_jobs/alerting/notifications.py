"""What became of rules, as records: alerts, commands within their limits, rows of the table."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cloud.wire.alert_records import AlertRecord
from cloud.wire.command_records import Command
from spark_jobs.alerting.alarm import Move
from spark_jobs.alerting.channel_state import Orphan
from spark_jobs.alerting.evaluator import Told
from spark_jobs.alerting.rules import NAMES, CommandRule, Rule, alert_id

_HOUR_US: Final = 3_600_000_000
_LONGEST_DETAIL: Final = 1000


def command_id(alert: str) -> str:
    """The same for the same alert: a gateway executes an id at most once."""
    return hashlib.sha256(f"command\0{alert}".encode()).hexdigest()[:32]


@dataclass
class Teller:
    """Makes the records. ``issued``: when a rule sent commands, and where to, as far as that limits."""

    issued: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    withheld: int = 0
    """Commands not sent because of a limit, since the start."""

    def tell(self, told: Iterable[Told], now_us: int) -> tuple[list[AlertRecord], list[Command]]:
        """Records of alerts, and the commands that go with them."""
        records: list[AlertRecord] = []
        commands: list[Command] = []
        for item in told:
            rule = item.rule
            told_id = alert_id(rule.id, item.gateway, item.channel, item.since_us)
            cleared = item.move is Move.CLEARED
            command = None
            if rule.command is not None and item.live and not cleared:
                command = self._command(rule, rule.command, told_id, item.gateway, now_us)
            if command is not None:
                commands.append(command)
            says = rule.says(item.gateway, item.about or item.channel, item.value)
            records.append(
                AlertRecord(
                    id=told_id,
                    rule=rule.name,
                    rule_version=rule.version,
                    kind=NAMES[type(rule.kind)],
                    severity=rule.severity,
                    gateway=item.gateway,
                    channel=item.channel,
                    state="cleared" if cleared else "raised",
                    raised_us=item.since_us,
                    cleared_us=item.time_us if cleared else None,
                    told_us=item.time_us,
                    value=item.value,
                    historical=not item.live,
                    detail=(f"over: {says}" if cleared else says)[:_LONGEST_DETAIL],
                    command_id=None if command is None else command.id,
                )
            )
        return records, commands

    def _command(
        self, rule: Rule, asked: CommandRule, alert: str, gateway: str, now_us: int
    ) -> Command | None:
        kept_us = max(_HOUR_US, asked.min_interval_us)
        recent = [(at, to) for at, to in self.issued.get(rule.name, []) if now_us - at < kept_us]
        in_hour = sum(now_us - at < _HOUR_US for at, _ in recent)
        too_soon = any(to == gateway and now_us - at < asked.min_interval_us for at, to in recent)
        if too_soon or in_hour >= asked.per_hour:
            self.withheld += 1
            self.issued[rule.name] = recent
            return None
        self.issued[rule.name] = [*recent, (now_us, gateway)]
        return Command(
            id=command_id(alert),
            gateway=gateway,
            target=asked.target,
            action=asked.action,
            args=asked.args,
            issued_us=now_us,
            expires_us=now_us + asked.expires_us,
        )


def closing(orphan: Orphan, rule: Rule | None) -> AlertRecord:
    """The end of an alert whose rule is gone, has another version (``rule``) now, or lost its twin."""
    name, version = orphan.rule_id
    if rule is None:
        why = "the rule was removed"
    elif rule.version != version:
        why = f"the rule has version {rule.version} now"
    else:
        why = "its twin is another one now"
    since_us = orphan.since_us or 0
    return AlertRecord(
        id=alert_id(orphan.rule_id, orphan.gateway, orphan.channel, since_us),
        rule=name,
        rule_version=version,
        kind="" if rule is None else NAMES[type(rule.kind)],
        severity="info" if rule is None else rule.severity,
        gateway=orphan.gateway,
        channel=orphan.channel,
        state="cleared",
        raised_us=since_us,
        cleared_us=max(orphan.last_us, since_us),
        told_us=max(orphan.last_us, since_us),
        value=None,
        historical=not orphan.live,
        detail=f"over: {why}",
    )


def merged_row(before: Mapping[str, Any] | None, record: AlertRecord) -> dict[str, Any]:
    """The table's row after a record: what raised an alert stays, what ended it is added."""
    raised = record.state == "raised"
    row: dict[str, Any] = {
        "id": record.id,
        "rule": record.rule,
        "rule_version": record.rule_version,
        "kind": record.kind or None,
        "severity": record.severity,
        "gateway": record.gateway,
        "channel": record.channel,
        "raised_at": record.raised_us,
        "cleared_at": record.cleared_us,
        "value": record.value if raised else None,
        "detail": record.detail if raised else None,
        "historical": record.historical,
        "command_id": record.command_id,
    }
    if before is None:
        return row
    kept = {name: before[name] if row[name] is None else row[name] for name in row}
    return {**kept, "historical": before["historical"] and row["historical"]}
