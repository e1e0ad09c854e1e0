"""An alert's records in ``gateway.alerts``, as their readers see them: raised, then cleared.

One alert is told at least twice (raised, cleared) and may be told again after a fault: ``id`` says which
alert, the newest record of an id is its state. Pure: no I/O, no clock.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final, Literal, Self

from cloud.wire.fields import Fields, InvalidFields, format_time, load_object
from cloud.wire.schema import GATEWAY_ID

VERSION: Final = 1
SEVERITIES: Final = ("info", "warning", "critical")

_ID: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)
_RULE: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}", re.ASCII)


@dataclass(frozen=True, slots=True)
class AlertRecord:
    """An alert that was raised or cleared.

    ``raised_us`` is the event time of its first violation, ``cleared_us`` that of what ended it (null while
    it stands), ``told_us`` that of what brought this record: microseconds since the epoch. ``value`` is what
    was judged: the channel's value, seconds of silence or of standing still, the twins' difference, recovery
    or score, as the ``kind`` says. ``channel`` is null where the whole gateway is meant. ``historical``
    alerts are of late data: nobody needs to run, and they send no command. ``detail`` is for people.
    """

    id: str
    rule: str
    rule_version: str
    kind: str
    severity: str
    gateway: str
    channel: str | None
    state: Literal["raised", "cleared"]
    raised_us: int
    cleared_us: int | None
    told_us: int
    value: float | None
    historical: bool
    detail: str
    command_id: str | None = None

    @property
    def key(self) -> bytes:
        """Kafka key: a gateway's alerts of one rule stay in order."""
        return f"{self.gateway}/{self.rule}".encode()

    def to_json(self) -> bytes:
        """The record's bytes."""
        fields: dict[str, Any] = {
            "v": VERSION,
            "id": self.id,
            "rule": self.rule,
            "rule_version": self.rule_version,
            "kind": self.kind,
            "severity": self.severity,
            "gateway": self.gateway,
            "channel": self.channel,
            "state": self.state,
            "raised_at": format_time(self.raised_us),
            "cleared_at": None if self.cleared_us is None else format_time(self.cleared_us),
            "told_at": format_time(self.told_us),
            "value": self.value,
            "historical": self.historical,
            "detail": self.detail,
            "command_id": self.command_id,
        }
        return json.dumps(fields, separators=(",", ":"), allow_nan=False).encode()

    @classmethod
    def from_json(cls, payload: bytes) -> Self:
        """The record in a message; unknown fields are ignored. Raises InvalidFields."""
        fields = Fields(load_object(payload))
        fields.integer("v", VERSION, VERSION)
        state = fields.label("state")
        if state not in ("raised", "cleared"):
            raise InvalidFields("BAD_NAME", f"state {state!r} is neither raised nor cleared")
        severity = fields.label("severity")
        if severity not in SEVERITIES:
            raise InvalidFields("BAD_NAME", f"severity {severity!r} is none of {', '.join(SEVERITIES)}")
        historical = fields.take("historical")
        if not isinstance(historical, bool):
            raise InvalidFields("WRONG_TYPE", "historical must be true or false")
        cleared = fields.left.get("cleared_at")
        if (cleared is None) != (state == "raised"):
            raise InvalidFields("INCONSISTENT", "cleared_at is null exactly while the alert is raised")
        return cls(
            id=fields.text("id", _ID),
            rule=fields.text("rule", _RULE),
            rule_version=fields.label("rule_version") or "",
            kind=fields.label("kind") or "",
            severity=severity,
            gateway=fields.text("gateway", GATEWAY_ID),
            channel=fields.label("channel", 256),
            state="raised" if state == "raised" else "cleared",
            raised_us=fields.time("raised_at"),
            cleared_us=None if cleared is None else fields.time("cleared_at"),
            told_us=fields.time("told_at"),
            value=fields.number("value"),
            historical=historical,
            detail=fields.label("detail", 1000) or "",
            command_id=fields.label("command_id"),
        )
