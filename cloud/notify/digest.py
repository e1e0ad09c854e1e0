"""Which alerts a target gets, when, and in what words. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from cloud.config.model import TargetConfig
from cloud.wire.alert_records import AlertRecord

_SHOWN: Final = 50
"""Alerts in a message; the others are counted."""


class Message(NamedTuple):
    """One message to people."""

    title: str
    body: str


def wanted(alert: AlertRecord, target: TargetConfig) -> bool:
    """Whether a target is to get it at all; what late data raised is nobody's business at once."""
    return (
        not alert.historical
        and (target.cleared or alert.state == "raised")
        and (not target.severities or alert.severity in target.severities)
        and any(fnmatchcase(alert.gateway, each) for each in target.gateways)
    )


def is_quiet(target: TargetConfig, now: datetime) -> bool:
    """Whether ``now``, in the target's time zone, is in its quiet hours; they may go over midnight."""
    if target.quiet is None:
        return False
    begin, end = target.quiet
    at = now.time().replace(tzinfo=None)
    return begin <= at < end if begin <= end else at >= begin or at < end


def is_urgent(alert: AlertRecord, target: TargetConfig) -> bool:
    """Whether it is sent in quiet hours too."""
    return alert.severity in target.urgent


def message(alerts: Sequence[AlertRecord]) -> Message:
    """Alerts in one message, in the order in which they came; one that came twice stands there once."""
    each = list({(alert.id, alert.state): alert for alert in alerts}.values())
    counts = {state: sum(alert.state == state for alert in each) for state in ("raised", "cleared")}
    gateways = list(dict.fromkeys(alert.gateway for alert in each))
    where = gateways[0] if len(gateways) == 1 else f"{len(gateways)} gateways"
    what = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    lines = [_line(alert) for alert in each[:_SHOWN]]
    if len(each) > _SHOWN:
        lines.append(f"and {len(each) - _SHOWN} more")
    return Message(f"{where}: {what}", "\n".join(lines))


def _line(alert: AlertRecord) -> str:
    at = alert.cleared_at if alert.state == "cleared" and alert.cleared_at else alert.raised_at
    channel = f" {alert.channel}" if alert.channel else ""
    what = f"{alert.gateway}{channel} {alert.rule}, {_minute(at)}"
    return f"{alert.state} {alert.severity}: {what}: {alert.detail}"


def _minute(text: str) -> str:
    return f"{text[:10]} {text[11:16]} UTC"
