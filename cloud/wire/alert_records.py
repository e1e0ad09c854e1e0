"""An alert's records in ``gateway.alerts``: raised, then cleared.

One alert is published at least twice (raised, cleared) and may be again after a fault: ``id`` names the
alert, the newest record of an id is its state. Pure: no I/O, no clock.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from cloud.wire.fields import Decoder, InvalidFields, check_label, time_of, to_json
from cloud.wire.reading_records import MAX_PAYLOAD_BYTES, GatewayId, Version

VERSION: Final = 1
SEVERITIES: Final = ("info", "warning", "critical")

_MAX_CHANNEL: Final = 256
_MAX_DETAIL: Final = 1000


class AlertRecord(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """An alert that was raised or cleared; the fields in the order in which they are written.

    Times are RFC 3339: ``raised_at`` the event time of its first violation, ``cleared_at`` that of what ended
    it (null while it stands), ``told_at`` that of what brought this record. ``value`` is what was judged: the
    channel's value, seconds of silence or of standing still, the twins' difference, recovery or score, by its
    ``kind``. ``channel`` is null where the whole gateway is meant. ``historical`` alerts are of late data:
    they need no action at once and send no command. ``detail`` is for people.
    """

    v: Version = VERSION
    id: Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]
    rule: Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9-]{0,62}\Z")]
    rule_version: str = ""
    kind: str = ""
    severity: Annotated[str, Meta(pattern=f"^(?:{'|'.join(SEVERITIES)})\\Z")]
    gateway: GatewayId
    channel: str | None = None
    state: Literal["raised", "cleared"]
    raised_at: str
    cleared_at: str | None = None
    told_at: str
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
        return time_of("raised_at", self.raised_at)

    @property
    def cleared_us(self) -> int | None:
        """``cleared_at`` in microseconds since the epoch."""
        return None if self.cleared_at is None else time_of("cleared_at", self.cleared_at)

    @property
    def told_us(self) -> int:
        """``told_at`` in microseconds since the epoch."""
        return time_of("told_at", self.told_at)

    def to_json(self) -> bytes:
        """The record's bytes."""
        return to_json(msgspec.structs.asdict(self))

    @staticmethod
    def from_json(payload: bytes) -> AlertRecord:
        """The record in a message; unknown fields are ignored. Raises InvalidFields."""
        found, _ = _DECODER.decode(payload)
        for name in ("rule_version", "kind", "command_id"):
            check_label(name, getattr(found, name))
        check_label("channel", found.channel, _MAX_CHANNEL)
        check_label("detail", found.detail, _MAX_DETAIL)
        if (found.cleared_at is None) != (found.state == "raised"):
            raise InvalidFields("INCONSISTENT", "cleared_at is null exactly while the alert is raised")
        for name in ("raised_at", "cleared_at", "told_at"):
            if (text := getattr(found, name)) is not None:
                time_of(name, text)
        return found


_DECODER: Final = Decoder(AlertRecord, MAX_PAYLOAD_BYTES)
