"""Answers HTTP on threads of its own: the page, JSON, events, metrics, health."""

from __future__ import annotations

import logging
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from typing import Any, Final

from gateway.clock.manual_time import ManualTime
from gateway.status.handlers import Request
from gateway.status.tokens import Gate

log = logging.getLogger(__name__)

_MAX_STREAMS: Final = 8
"""Event streams at a time, a thread each; more get 503 and try again by themselves."""
_MAX_CONNECTIONS: Final = 32
"""At a time, a thread each; a further one is closed at once."""

_POLL_S: Final = 0.1
"""Between checks for the end."""


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


class StatusServer(ThreadingHTTPServer):
    """Serves until it is stopped.

    ``free_for_locals``: connections from this machine need no token. Port 0 picks a free one.
    """

    daemon_threads = True

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
        self.stopping = threading.Event()
        self.streams = threading.BoundedSemaphore(_MAX_STREAMS)
        self._room = threading.BoundedSemaphore(_MAX_CONNECTIONS)
        self._thread = threading.Thread(
            target=self.serve_forever, args=(_POLL_S,), name="status", daemon=True
        )
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), Request)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Stop and release the port."""
        self.stopping.set()
        self.shutdown()
        self._thread.join()
        self.server_close()

    def server_bind(self) -> None:
        """As the base class, without resolving a name, which takes long with the uplink down."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """A thread for a connection, within the limit."""
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Release the place of a connection at its end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that breaks is normal; any other error is a defect."""
        error = sys.exception()
        if isinstance(error, OSError):
            log.debug("event=status.broken_off error=%s", error)
        else:
            log.error("event=status.request_failed", exc_info=error)
