"""Commands to a gateway (``gateway.commands``) and their results. Pure: no I/O, no clock.

A gateway executes a command at most once, by its id, never after ``expires_at``, never while its clock is
unsynced, and only actions its config allows. Key of both topics is the gateway.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from cloud.wire.fields import InvalidFields, check_name, convert, load_object, time_of, to_json

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}", re.ASCII)
"""The form of an id or an action."""
TARGET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./-]{0,127}", re.ASCII)
"""A relay, a sensor, or an MQTT topic without wildcards."""
ACTIONS: Final = ("switch", "read", "interval", "reload", "self-test", "publish")
"""What a gateway can be commanded, as ``[commands] allow`` names it."""
WITH_TARGET: Final = ("switch", "read", "interval", "publish")
"""Those of a relay, a sensor or a topic."""
MOST_BYTES: Final = 16_384
LONGEST_US: Final = 86_400_000_000
"""How long a command may be valid: so long a gateway stores its id."""

Outcome = Literal["done", "refused", "failed", "unknown"]
"""``unknown``: begun, then the gateway was killed; it is not begun again."""


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

    @property
    def expires_us(self) -> int:
        """Microseconds since the epoch."""
        return time_of("expires_at", self.expires_at)

    def to_json(self) -> bytes:
        """The record's bytes."""
        return to_json(msgspec.structs.asdict(self))


class CommandResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a command; ``id`` is None where the command's could not be read.

    ``reason`` is a word where it was not done, ``detail`` for people, ``result`` what was requested.
    """

    id: str | None
    gateway: str
    outcome: Outcome
    time: str
    run: str
    target: str = ""
    action: str = ""
    reason: str | None = None
    detail: str = ""
    result: Mapping[str, Any] | None = None
    v: int = 1

    def to_json(self) -> bytes:
        """The record's bytes."""
        return to_json(msgspec.structs.asdict(self))


def parse_command(payload: bytes) -> Command:
    """A command as it was published. Raises InvalidFields."""
    if len(payload) > MOST_BYTES:
        raise InvalidFields("TOO_LARGE", f"{len(payload)} bytes, at most {MOST_BYTES}")
    command = convert(load_object(payload), Command)
    check_name("id", command.id, NAME)
    check_name("action", command.action, NAME)
    if command.target:
        check_name("target", command.target, TARGET)
    lasts_us = command.expires_us - time_of("issued_at", command.issued_at)
    if not 0 < lasts_us <= LONGEST_US:
        raise InvalidFields("BAD_TIME", "expires_at must be after issued_at, at most a day")
    return command


def parse_result(payload: bytes) -> CommandResult:
    """A result as a gateway published it. Raises InvalidFields."""
    return convert(load_object(payload), CommandResult)
