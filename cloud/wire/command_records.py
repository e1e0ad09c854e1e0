"""A command to a gateway, as ``gateway.commands`` carries it. Pure: no I/O, no clock.

A gateway executes a command at most once, by its id, never after ``expires_at``, never while its clock is
unsynced, and only actions its config allows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from cloud.wire.fields import Fields, InvalidFields, format_time, load_object
from cloud.wire.schema import GATEWAY_ID

_ID: Final = re.compile(r"[A-Za-z0-9-]{1,64}", re.ASCII)
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}", re.ASCII)
"""Of an action or a target."""


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
        fields: dict[str, Any] = {
            "id": self.id,
            "gateway": self.gateway,
            "target": self.target,
            "action": self.action,
            "args": self.args,
            "issued_at": format_time(self.issued_us),
            "expires_at": format_time(self.expires_us),
        }
        return json.dumps(fields, separators=(",", ":"), allow_nan=False).encode()

    @classmethod
    def from_json(cls, payload: bytes) -> Self:
        """The command in a message; unknown fields are ignored. Raises InvalidFields."""
        fields = Fields(load_object(payload))
        args = fields.take("args")
        if not isinstance(args, dict):
            raise InvalidFields("WRONG_TYPE", "args must be an object")
        return cls(
            id=fields.text("id", _ID),
            gateway=fields.text("gateway", GATEWAY_ID),
            target=fields.text("target", NAME),
            action=fields.text("action", NAME),
            args=args,
            issued_us=fields.time("issued_at"),
            expires_us=fields.time("expires_at"),
        )
