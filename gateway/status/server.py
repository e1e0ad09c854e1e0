"""Answers HTTP on threads of its own: the page, JSON, events, metrics, health."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gateway.clock.given_time import ManualTime
from gateway.status.bounded_server import BoundedServer
from gateway.status.handlers import Request
from gateway.status.tokens import Gate

_MAX_STREAMS: Final = 8
"""Event streams at a time, a thread each; more get 503 and try again by themselves."""


@dataclass(frozen=True, slots=True)
class StatusSource:
    """What the server serves; any thread may call.

    ``recent``: by channel the last readings, ``[time in ms since the epoch, value or null]`` each.
    ``pulses``: by sensor that counts pulses, how many have come since its driver was started.
    ``clock``: takes a phone's time; None where the board has a time of its own.
    """

    status: Callable[[], dict[str, Any]]
    recent: Callable[[], Mapping[str, list[list[Any]]]] = dict
    pulses: Callable[[], Mapping[str, int]] = dict
    clock: ManualTime | None = None


class StatusServer(BoundedServer):
    """``free_for_locals``: connections from this machine need no token."""

    def __init__(
        self,
        host: str,
        port: int,
        source: StatusSource,
        gate: Gate | None = None,
        *,
        free_for_locals: bool = True,
    ) -> None:
        """Listen. Raises OSError."""
        self.source = source
        self.gate = gate or Gate(None)
        self.free_for_locals = free_for_locals
        self.streams = threading.BoundedSemaphore(_MAX_STREAMS)
        super().__init__("status", host, port, Request)
