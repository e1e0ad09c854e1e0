"""An alert's records in ``gateway.alerts``, as their readers see them: raised, then cleared.

One alert is published at least twice (raised, cleared) and may be again after a fault: ``id`` names the
alert, the newest record of an id is its state. Pure: no I/O, no clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, Literal, Self

import msgspec
from msgspec import Meta

from cloud.wire.fields import Decoder, InvalidFields, check_label, format_time, time_of, to_json
from cloud.wire.reading_records import MAX_PAYLOAD_BYTES, GatewayId, Version

VERSION: Final = 1
SEVERITIES: Final = ("info", "warning", "critical")

_MAX_CHANNEL: Final = 256
_MAX_DETAIL: Final = 1000


class _Fields(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """An alert's fields by type, in the order in which they are written."""

    v: Version
    id: Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]
    rule: Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9-]{0,62}\Z")]
    rule_version: str | None = None
    kind: str | None = None
    severity: Literal["info", "warning", "critical"]
    gateway: GatewayId
    channel: str | None = None
    state: Literal["raised", "cleared"]
    raised_at: str
    cleared_at: str | None = None
    told_at: str
    value: float | None = None
    historical: bool
    detail: str | None = None
    command_id: str | None = None


_DECODER: Final = Decoder(_Fields, MAX_PAYLOAD_BYTES)


@dataclass(frozen=True, slots=True)
class AlertRecord:
    """An alert that was raised or cleared.

    ``raised_us`` is the event time of its first violation, ``cleared_us`` that of what ended it (null while
    it stands), ``told_us`` that of what brought this record: microseconds since the epoch. ``value`` is what
    was judged: the channel's value, seconds of silence or of standing still, the twins' difference, recovery
    or score, by its ``kind``. ``channel`` is null where the whole gateway is meant. ``historical``
    alerts are of late data: they need no action at once and send no command. ``detail`` is for people.
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
        written = {
            "v": VERSION,
            "raised_at": format_time(self.raised_us),
            "cleared_at": None if self.cleared_us is None else format_time(self.cleared_us),
            "told_at": format_time(self.told_us),
        }
        return to_json(
            {name: written.get(name, getattr(self, name, None)) for name in _Fields.__struct_fields__}
        )

    @classmethod
    def from_json(cls, payload: bytes) -> Self:
        """The record in a message; unknown fields are ignored. Raises InvalidFields."""
        found, _ = _DECODER.decode(payload)
        for name in ("rule_version", "kind", "command_id"):
            check_label(name, getattr(found, name))
        check_label("channel", found.channel, _MAX_CHANNEL)
        check_label("detail", found.detail, _MAX_DETAIL)
        if (found.cleared_at is None) != (found.state == "raised"):
            raise InvalidFields("INCONSISTENT", "cleared_at is null exactly while the alert is raised")
        return cls(
            id=found.id,
            rule=found.rule,
            rule_version=found.rule_version or "",
            kind=found.kind or "",
            severity=found.severity,
            gateway=found.gateway,
            channel=found.channel,
            state=found.state,
            raised_us=time_of("raised_at", found.raised_at),
            cleared_us=None if found.cleared_at is None else time_of("cleared_at", found.cleared_at),
            told_us=time_of("told_at", found.told_at),
            value=found.value,
            historical=found.historical,
            detail=found.detail or "",
            command_id=found.command_id,
        )
