"""What the daemon says of itself, as JSON over HTTP at ``/api/status``."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from gateway.config import StatusConfig

log = logging.getLogger(__name__)


class StatusServer:
    """Serves snapshots on its own threads; ``snapshot`` must be safe to call from any of them."""

    def __init__(self, host: str, port: int, snapshot: Callable[[], dict[str, Any]]) -> None:
        class Request(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path != "/api/status":
                    self.send_error(HTTPStatus.NOT_FOUND, "only /api/status is here")
                    return
                body = json.dumps(snapshot()).encode()
                self.send_response(HTTPStatus.OK)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                log.debug("event=status.request %s", format % args)

        self._server = ThreadingHTTPServer((host, port), Request)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="status", daemon=True)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """End and give the port back."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class StatusPage:
    """The server at the address that is configured, if any. Owned by the main thread."""

    def __init__(self, snapshot: Callable[[], dict[str, Any]]) -> None:
        self._snapshot = snapshot
        self._server: StatusServer | None = None
        self._address = StatusConfig("", 0)

    def listen(self, address: StatusConfig) -> None:
        """Answer here from now on, and nowhere else. Raises OSError; then everything stays as it is."""
        before = self._address
        if self._server is not None and before.port == address.port:
            # The same port on another address may be in the way of itself.
            self.stop()
        try:
            server = self._open(address)
        except OSError:
            if self._server is None and before.enabled:
                self._server = self._open(before)
            raise
        self.stop()
        self._server, self._address = server, address

    def stop(self) -> None:
        """End and give the port back."""
        server, self._server = self._server, None
        if server is not None:
            server.stop()

    def _open(self, address: StatusConfig) -> StatusServer | None:
        if not address.enabled:
            return None
        server = StatusServer(address.host, address.port, self._snapshot)
        server.start()
        return server
