"""Answers HTTP on threads of its own: the page, JSON, events, metrics, health. Changes nothing."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any, Final

from gateway.config import StatusConfig
from gateway.status import metrics
from gateway.status.vitals import resident_bytes
from gateway.status.words import QUALITIES, REASONS

log = logging.getLogger(__name__)

Snapshot = Callable[[], dict[str, Any]]
Recent = Callable[[], Mapping[str, list[list[Any]]]]

_EVENT_EVERY_S: Final = 1.0
_MAX_STREAMS: Final = 8
"""Pages that follow at a time, a thread each; more are told to look again (and do, by themselves)."""
_TIMEOUT_S: Final = 10.0
"""Who takes longer to ask, or to take what was sent, is let go."""
_STUCK_S: Final = 15.0
"""A main loop that has not come round for so long is not healthy; it does each second."""

# All that the page needs is in it: no other host is asked, whatever gets into it.
_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; img-src data:"
)


@dataclass(frozen=True, slots=True)
class Answers:
    """What the server tells: each is safe to call from any thread.

    ``recent``: by channel the last readings, ``[time in ms since the epoch, value or null]`` each.
    """

    status: Snapshot
    recent: Recent = dict


@cache
def page() -> bytes:
    """The page with the words for flags and reasons in it."""
    text = files("gateway.status").joinpath("page.html").read_text(encoding="utf-8")
    words = json.dumps({"qualities": QUALITIES, "reasons": REASONS})
    return text.replace("/*WORDS*/", f"const WORDS = {words};").encode()


def problems(status: Mapping[str, Any]) -> list[str]:
    """Why the daemon is not healthy: what a new process might mend, so not a lost signal or a dead sensor."""
    found = []
    if status.get("main_loop_ago_s", 0.0) > _STUCK_S:
        found.append(f"the main loop has not come round for {status['main_loop_ago_s']:.0f} s")
    if status.get("forwarder_stuck"):
        found.append("the forwarder does not come round")
    return found


class StatusServer:
    """Serves until it is stopped."""

    def __init__(self, host: str, port: int, answers: Answers) -> None:
        self._stopping = stopping = threading.Event()
        streams = threading.BoundedSemaphore(_MAX_STREAMS)

        class Request(BaseHTTPRequestHandler):
            timeout = _TIMEOUT_S
            server_version = "fieldgate"
            sys_version = ""

            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                if path == "/":
                    self._send("text/html; charset=utf-8", page(), {"Content-Security-Policy": _POLICY})
                elif path == "/api/status":
                    self._send("application/json", json.dumps(answers.status()).encode())
                elif path == "/api/events":
                    self._follow()
                elif path == "/metrics":
                    text = metrics.render(answers.status(), resident_bytes())
                    self._send(metrics.CONTENT_TYPE, text.encode())
                elif path == "/healthz":
                    found = problems(answers.status())
                    told = "\n".join(found) if found else "ok"
                    code = HTTPStatus.SERVICE_UNAVAILABLE if found else HTTPStatus.OK
                    self._send("text/plain; charset=utf-8", f"{told}\n".encode(), code=code)
                else:
                    self.send_error(
                        HTTPStatus.NOT_FOUND, "here are /, /api/status, /api/events, /metrics and /healthz"
                    )

            def _send(
                self,
                kind: str,
                body: bytes,
                headers: Mapping[str, str] | None = None,
                code: HTTPStatus = HTTPStatus.OK,
            ) -> None:
                self.send_response(code)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Cache-Control", "no-store")
                for name, value in (headers or {}).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def _follow(self) -> None:
                """Server-sent events: what is known of the past once, then the status each second."""
                if not streams.acquire(blocking=False):
                    self.send_error(HTTPStatus.SERVICE_UNAVAILABLE, "too many pages follow this mast")
                    return
                try:
                    self.send_response(HTTPStatus.OK)
                    self.send_header("Content-Type", "text/event-stream")
                    self.send_header("Cache-Control", "no-store")
                    self.end_headers()
                    self._event("recent", answers.recent())
                    self._event("status", answers.status())
                    while not stopping.wait(_EVENT_EVERY_S):
                        self._event("status", answers.status())
                except OSError:
                    log.debug("event=status.page_gone")
                finally:
                    streams.release()
                    self.close_connection = True

            def _event(self, name: str, content: object) -> None:
                self.wfile.write(f"event: {name}\ndata: {json.dumps(content)}\n\n".encode())
                self.wfile.flush()

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
        self._stopping.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class StatusPage:
    """The server at the address that is configured, if any. Owned by the main thread."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
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
        server = StatusServer(address.host, address.port, self._answers)
        server.start()
        return server
