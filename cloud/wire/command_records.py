"""A command to a gateway, as ``gateway.commands`` carries it. Pure: no I/O, no clock.

A gateway executes a command at most once, by its id, never after ``expires_at``, never while its clock is
unsynced, and only actions its config allows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Self

import msgspec
from msgspec import Meta

from cloud.wire.fields import Decoder, format_time, time_of, to_json
from cloud.wire.reading_records import MAX_PAYLOAD_BYTES, GatewayId

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}", re.ASCII)
"""Of an action or a target."""
_Name = Annotated[str, Meta(pattern=f"^{NAME.pattern}\\Z")]


class _Fields(msgspec.Struct, forbid_unknown_fields=True):
    id: Annotated[str, Meta(pattern=r"^[A-Za-z0-9-]{1,64}\Z")]
    gateway: GatewayId
    target: _Name
    action: _Name
    args: dict[str, Any]
    issued_at: str
    expires_at: str


_DECODER: Final = Decoder(_Fields, MAX_PAYLOAD_BYTES)


@dataclass(frozen=True, slots=True)
class Command:
    """What a gateway is to do; times are microseconds since the epoch."""

    id: str
    gateway: str
    target: str
    action: str
    args: Mapping[str, Any]
    issued_us: int
    expires_us: int

    @property
    def key(self) -> bytes:
        """Kafka key: a gateway's commands stay in order."""
        return self.gateway.encode()

    def to_json(self) -> bytes:
        """The record's bytes."""
        return to_json(
            {
                "id": self.id,
                "gateway": self.gateway,
                "target": self.target,
                "action": self.action,
                "args": self.args,
                "issued_at": format_time(self.issued_us),
                "expires_at": format_time(self.expires_us),
            }
        )

    @classmethod
    def from_json(cls, payload: bytes) -> Self:
        """The command in a message; unknown fields are ignored. Raises InvalidFields."""
        found, _ = _DECODER.decode(payload)
        return cls(
            found.id,
            found.gateway,
            found.target,
            found.action,
            found.args,
            issued_us=time_of("issued_at", found.issued_at),
            expires_us=time_of("expires_at", found.expires_at),
        )
