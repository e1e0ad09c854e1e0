"""A command to a gateway, as ``gateway.commands`` carries it. Pure: no I/O, no clock.

A gateway executes a command at most once, by its id, never after ``expires_at``, never while its clock is
unsynced, and only actions its config allows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from cloud.wire.fields import to_json

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}", re.ASCII)
"""Of an action or a target."""


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """What a gateway is to do; times are RFC 3339."""

    id: str
    gateway: str
    target: str
    action: str
    args: Mapping[str, Any]
    issued_at: str
    expires_at: str

    @property
    def key(self) -> bytes:
        """Kafka key: a gateway's commands stay in order."""
        return self.gateway.encode()

    def to_json(self) -> bytes:
        """The record's bytes."""
        return to_json(msgspec.structs.asdict(self))
