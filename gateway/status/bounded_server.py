"""Limits the connections of an HTTP server, and moves a server to another address."""

from __future__ import annotations

import logging
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from typing import Any, Final, Generic, Protocol, TypeVar
from urllib.parse import urlsplit

from gateway.config.bridges.model import Listening

log = logging.getLogger(__name__)

_MAX_CONNECTIONS: Final = 32
"""Most connections at a time, a thread each; a further one is closed at once."""


def is_own_name(host: str, listens_as: str) -> bool:
    """Returns True for a Host header with an address or a name of this machine, or none (no browser's).

    The owner of any other name may let it point to this machine, so that their page reads this one.
    """
    try:
        name = urlsplit(f"//{host}").hostname or ""
        own = socket.gethostname().lower()
        short = own.partition(".")[0]
        if name in ("", "localhost", own, short, f"{short}.local", listens_as.lower()):
            return True
        ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True


class BoundedServer(ThreadingHTTPServer):
    """Serves until it is stopped, in threads that begin with ``name``. Port 0 picks a free one."""

    daemon_threads = True

    def __init__(
        self,
        name: str,
        host: str,
        port: int,
        handler: type[BaseHTTPRequestHandler],
        most_of_one: int = _MAX_CONNECTIONS,
    ) -> None:
        """Listens; ``most_of_one`` limits the connections of one address. Raises OSError."""
        self.stopping = threading.Event()
        self.listens_as = host
        self._name = name
        self._most_of_one = most_of_one
        self._open: Counter[str] = Counter()
        self._opening = threading.Lock()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), handler)

    def start(self) -> None:
        """Begins to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Stops and releases the port."""
        self.stopping.set()
        # The base class would have the thread look ten times a second whether it shall end. This wakes it.
        self.socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self.server_close()

    def _serve(self) -> None:
        while not self.stopping.is_set():
            self.handle_request()

    def server_bind(self) -> None:
        """Binds without resolving a name as the base class does: that takes long with the uplink down."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """Starts a thread for a connection, within the limit."""
        if not self._has_room(client_address[0]):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            # There is no thread that would do so.
            self._give_back(client_address[0])
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Releases the place of a connection at its end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._give_back(client_address[0])

    def _has_room(self, peer: str) -> bool:
        with self._opening:
            if self._open.total() >= _MAX_CONNECTIONS or self._open[peer] >= self._most_of_one:
                return False
            self._open[peer] += 1
            return True

    def _give_back(self, peer: str) -> None:
        with self._opening:
            self._open[peer] -= 1
            # Addresses without a connection are forgotten.
            self._open += Counter()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Logs an error: a connection that breaks is normal, anything else is a defect."""
        error = sys.exception()
        if isinstance(error, OSError):
            log.debug("event=server.broken_off server=%s error=%s", self._name, error)
        else:
            log.error("event=server.request_failed server=%s", self._name, exc_info=error)


class Server(Protocol):
    """Listens from its construction on."""

    def start(self) -> None:
        """Begins to answer."""

    def stop(self) -> None:
        """Stops and releases the port."""


_A = TypeVar("_A", bound=Listening)
_S = TypeVar("_S", bound=Server)


class Listener(Generic[_A, _S]):
    """Runs the server at the address that is configured, if any. ``open_`` makes it, or returns None."""

    def __init__(self, open_: Callable[[_A], _S | None], nowhere: _A) -> None:
        self._open = open_
        self.address = nowhere
        self.server: _S | None = None

    def listen(self, address: _A) -> None:
        """Listens there from now on, and nowhere else. Raises OSError; then everything stays as it is."""
        before = self.address
        if before.port == address.port:
            # The same port on another address may be in the way of itself.
            self.stop()
        try:
            server = self._started(address)
        except OSError:
            if self.server is None:
                self.server = self._started(before)
            raise
        self.stop()
        self.server, self.address = server, address

    def stop(self) -> None:
        """Ends and releases the port."""
        server, self.server = self.server, None
        if server is not None:
            server.stop()

    def _started(self, address: _A) -> _S | None:
        server = self._open(address)
        if server is not None:
            server.start()
        return server
