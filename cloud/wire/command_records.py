"""A command to a gateway, as ``gateway.commands`` carries it. Pure: no I/O, no clock.

A gateway executes a command at most once, by its id, never after ``expires_at``, never while its clock is
unsynced, and only actions its config allows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from cloud.wire.fields import Decoder, time_of, to_json
from cloud.wire.reading_records import MAX_PAYLOAD_BYTES, GatewayId

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}", re.ASCII)
"""Of an action or a target."""
_Name = Annotated[str, Meta(pattern=f"^{NAME.pattern}\\Z")]


class Command(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """What a gateway is to do; times are RFC 3339."""

    id: Annotated[str, Meta(pattern=r"^[A-Za-z0-9-]{1,64}\Z")]
    gateway: GatewayId
    target: _Name
    action: _Name
    args: Mapping[str, Any]
    issued_at: str
    expires_at: str

    @property
    def key(self) -> bytes:
        """Kafka key: a gateway's commands stay in order."""
        return self.gateway.encode()

    @property
    def issued_us(self) -> int:
        """``issued_at`` in microseconds since the epoch."""
        return time_of("issued_at", self.issued_at)

    def to_json(self) -> bytes:
        """The record's bytes."""
        return to_json(msgspec.structs.asdict(self))

    @staticmethod
    def from_json(payload: bytes) -> Command:
        """The command in a message; unknown fields are ignored. Raises InvalidFields."""
        found, _ = _DECODER.decode(payload)
        time_of("issued_at", found.issued_at)
        time_of("expires_at", found.expires_at)
        return found


_DECODER: Final = Decoder(Command, MAX_PAYLOAD_BYTES)
