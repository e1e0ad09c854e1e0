"""An alert's records in ``gateway.alerts``: raised, then cleared.

One alert is published at least twice (raised, cleared) and may be again after a fault: ``id`` names the
alert, the newest record of an id is its state. Pure: no I/O, no clock.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from cloud.wire.fields import parse_time, to_json
from cloud.wire.reading_records import VERSION


class AlertRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An alert that was raised or cleared; the fields in the order in which they are written.

    Times are RFC 3339: ``raised_at`` the event time of its first violation, ``cleared_at`` that of what ended
    it (null while it stands), ``reported_at`` that of what brought this record. ``value`` is what was judged,
    by ``kind``: the channel's value, seconds of silence or of standing still, the twins' difference, recovery
    or score. ``channel`` is null where the whole gateway is meant. ``historical`` alerts are of late data:
    they need no action at once and send no command. ``detail`` is for people.
    """

    v: int = VERSION
    id: str
    rule: str
    rule_version: str = ""
    kind: str = ""
    severity: str
    gateway: str
    channel: str | None = None
    state: Literal["raised", "cleared"]
    raised_at: str
    cleared_at: str | None = None
    reported_at: str
    value: float | None = None
    historical: bool
    detail: str = ""
    command_id: str | None = None

    @property
    def key(self) -> bytes:
        """Kafka key: a gateway's alerts of one rule stay in order."""
        return f"{self.gateway}/{self.rule}".encode()

    @property
    def raised_us(self) -> int:
        """``raised_at`` in microseconds since the epoch."""
        return parse_time(self.raised_at)

    @property
    def cleared_us(self) -> int | None:
        """``cleared_at`` in microseconds since the epoch."""
        return None if self.cleared_at is None else parse_time(self.cleared_at)

    def to_json(self) -> bytes:
        """The record's bytes."""
        return to_json(msgspec.structs.asdict(self))
