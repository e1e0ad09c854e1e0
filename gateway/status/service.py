"""Serves the page where it is configured, and beside it a phone's, for an hour with a token of its own."""

from __future__ import annotations

import errno
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from ipaddress import ip_address
from typing import Any, Final

from gateway.config import StatusConfig
from gateway.ports import Snapshot
from gateway.status.bounded_server import Listener
from gateway.status.server import StatusServer, StatusSource
from gateway.status.tokens import Gate, new_token

log = logging.getLogger(__name__)

OPEN: Final = "phone-open"
CLOSE: Final = "phone-close"
LONGEST_MINUTES: Final = 24 * 60
# Pages that were left open with an earlier token.
_REMEMBERED: Final = 8


@dataclass(frozen=True, slots=True)
class Opened:
    """Names where the page is open: ``url`` without its token; ``seconds`` until it closes."""

    url: str
    token: str
    seconds: float


class TemporaryAccess:
    """Opens one listener at a time; opening it again closes the one before. Any thread may call it."""

    def __init__(self, source: StatusSource, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._monotonic = monotonic
        self._server: StatusServer | None = None
        self._port = 0
        self._earlier: deque[str] = deque(maxlen=_REMEMBERED)
        self._lock = threading.Lock()

    def open(self, address: str, port: int, minutes: float) -> Opened:
        """Listens on an address of this machine; on another port where this one is taken. Raises OSError."""
        seconds, token = 60.0 * min(minutes, LONGEST_MINUTES), new_token()
        with self._lock:
            self._end()
            gate = Gate(token, self._monotonic() + seconds, self._monotonic, tuple(self._earlier))
            self._earlier.append(token)
            server = self._listen(address, (port, self._port, 0), gate)
            server.start()
            self._server, self._port = server, server.server_port
        host = f"[{address}]" if ":" in address else address
        log.warning("event=phone.opened address=%s:%d minutes=%g", host, server.server_port, seconds / 60)
        return Opened(f"http://{host}:{server.server_port}/", token, seconds)

    def _listen(self, address: str, ports: tuple[int, ...], gate: Gate) -> StatusServer:
        """Listens on the first free port. Local requests need the token, too: they have the other page."""
        for port in ports[:-1]:
            try:
                return StatusServer(address, port, self._source, gate, free_for_locals=False)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
        return StatusServer(address, ports[-1], self._source, gate, free_for_locals=False)

    @property
    def is_open(self) -> bool:
        """Returns True while a phone has access."""
        server = self._server
        return server is not None and server.gate.is_open

    def close(self) -> bool:
        """Closes it now; False where it wasn't open."""
        with self._lock:
            return self._end()

    def check(self) -> None:
        """Closes it once its time is over; the main loop calls it each second."""
        with self._lock:
            if self._server is not None and not self._server.gate.is_open:
                self._end()

    def _end(self) -> bool:
        server, self._server = self._server, None
        if server is None:
            return False
        server.stop()
        log.warning("event=phone.closed")
        return True


class StatusPage:
    """Runs the server at the address that is configured, if any. Owned by the main thread."""

    def __init__(self, source: StatusSource) -> None:
        self._source = source
        self._listener = Listener(self._open, StatusConfig(""))
        self.phone = TemporaryAccess(source)

    @property
    def port(self) -> int:
        """Returns the configured port; 0 is any free one."""
        return self._listener.address.port

    def listen(self, address: StatusConfig) -> None:
        """Listens there from now on, and nowhere else. Raises OSError; then everything stays as it is."""
        self._listener.listen(address)

    def tick(self, _snapshot: Snapshot) -> None:
        """Closes the phone's page once its time is over."""
        self.phone.check()

    def stop(self) -> None:
        """Ends and releases the ports."""
        self.phone.close()
        self._listener.stop()

    def _open(self, config: StatusConfig) -> StatusServer | None:
        if config.address is None:
            return None
        return StatusServer(*config.address, self._source, Gate(config.token))


def phone_control(page: StatusPage, request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Carries out a request of ``fieldgate phone``. Raises ValueError and OSError, with the user's text."""
    if request.get("do") == CLOSE:
        return {"was_open": page.phone.close()}
    if request.get("do") != OPEN:
        raise ValueError(f"requests are {OPEN} and {CLOSE}")
    address = str(ip_address(str(request.get("address"))))
    minutes: Any = request.get("minutes")
    if type(minutes) not in (int, float) or not 0 < minutes <= LONGEST_MINUTES:
        raise ValueError(f"minutes must be above 0 and at most {LONGEST_MINUTES}")
    return asdict(page.phone.open(address, page.port, minutes))
