"""Serves the status over HTTP, on threads of its own: the page, JSON, events, metrics, health.

A connection from this machine to the mast's own listener needs no token; any other one does, whatever
address the server listens on, and on the phone's listener all do. A token in the URL becomes a cookie at
once, so that it stays neither in the address bar nor in what is shared.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler
from importlib.resources import files
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import SplitResult, parse_qs, urlsplit

import msgspec

from cloud.wire.reading_records import QUALITIES
from gateway.clock.given_time import ManualTime
from gateway.quality.qartod import REASONS
from gateway.status.bounded_server import BoundedServer, is_own_name
from gateway.status.findings import stalled
from gateway.status.status import Status
from gateway.status.tokens import WINDOW_S, Access, Gate
from gateway.system.host import resident_bytes

log = logging.getLogger(__name__)

_EVENT_EVERY_S: Final = 1.0
_PULSES_EVERY_S: Final = 0.25
_MAX_STREAMS: Final = 8
"""Most event streams at a time, a thread each; a further one gets 503 and tries again by itself."""
_TIMEOUT_S: Final = 10.0
"""A client that takes longer to send its request, or to receive the response, is disconnected."""
_LONGEST_BODY: Final = 1_000
_PATHS: Final = ("/", "/api/status", "/api/events", "/api/pulses", "/metrics")

# The page loads nothing from other hosts, and no other page may frame it.
_GUARDS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_REFUSALS: Final = {
    Access.CLOSED: (
        HTTPStatus.FORBIDDEN,
        "This page is closed to other machines. On the gateway, 'sudo fieldgate phone' opens it for an hour.",
    ),
    Access.MISSING: (
        HTTPStatus.UNAUTHORIZED,
        "Scan the code that 'sudo fieldgate phone' shows, or type its token.",
    ),
    Access.EARLIER: (
        HTTPStatus.UNAUTHORIZED,
        "This access has ended. Scan the newest code that 'sudo fieldgate phone' has shown.",
    ),
    Access.WRONG: (HTTPStatus.UNAUTHORIZED, "That token is wrong: mistyped, or of an older code."),
    Access.WAIT: (HTTPStatus.TOO_MANY_REQUESTS, "Too many wrong tokens: wait a minute."),
}


@cache
def page() -> bytes:
    """Returns the page, with the texts of flags and reasons."""
    text = files("gateway.status").joinpath("page.html").read_text(encoding="utf-8")
    reasons = {name: reason.text for name, reason in REASONS.items()}
    words = msgspec.json.encode({"qualities": QUALITIES, "reasons": reasons}).decode()
    return text.replace("/*WORDS*/", f"const WORDS = {words};").encode()


@cache
def _token_page(reason: str, form: bool) -> bytes:
    text = files("gateway.status").joinpath("token.html").read_text(encoding="utf-8")
    return text.replace("<!--REASON-->", reason).replace("<!--FORM-->", "" if form else " hidden").encode()


def is_local(peer: str, own: str) -> bool:
    """Returns True for a connection from this machine: over the loopback, or from the address it came to."""
    return peer == own or ip_address(peer.partition("%")[0]).is_loopback


@dataclass(frozen=True, slots=True)
class StatusSource:
    """Provides what the server serves; any thread may call it.

    ``recent``: each channel's last readings, ``[time in ms since the epoch, value or null]`` each.
    ``pulses``: how many each sensor has counted since its driver was started.
    ``clock``: takes a phone's time; None where the board has a time of its own.
    """

    status: Callable[[], Status]
    recent: Callable[[], Mapping[str, list[list[Any]]]] = dict
    pulses: Callable[[], Mapping[str, int]] = dict
    clock: ManualTime | None = None


class _PhoneTime(msgspec.Struct):
    time_ms: int
    asked_boot_ms: int


class Request(BaseHTTPRequestHandler):
    """Answers GET, which changes nothing, and POST of a phone's time."""

    timeout = _TIMEOUT_S
    server_version = "fieldgate"
    sys_version = ""

    server: StatusServer
    address: SplitResult

    def parse_request(self) -> bool:
        """Parses a request; a malformed address is answered with 400."""
        if not super().parse_request():
            return False
        try:
            self.address = urlsplit(self.path)
        except ValueError:
            self.send_error(HTTPStatus.BAD_REQUEST)
            return False
        return True

    def do_GET(self) -> None:
        """Answers a request; all but the health check needs access."""
        address = self.address
        if address.path == "/healthz":
            self._health()
            return
        is_free = self.server.free_for_locals and self._is_local()
        if is_free and not is_own_name(self.headers.get("Host", ""), self.server.listens_as):
            remedy = "open it as localhost, by an address, or by this machine's own name"
            self._send_text(f"this page has another name: {remedy}", HTTPStatus.MISDIRECTED_REQUEST)
            return
        query = parse_qs(address.query)
        offered = query["t"][-1].strip() if "t" in query else None
        access = self._access(offered)
        if access is not Access.ADMITTED:
            self._refuse(access, address.path)
        elif offered is not None:
            self._set_cookie(offered, address.path)
        elif address.path == "/":
            self._send("text/html; charset=utf-8", page())
        elif address.path == "/api/status":
            self._send("application/json", msgspec.json.encode(self._status()))
        elif address.path == "/api/events":
            self._stream("status", self._status, _EVENT_EVERY_S)
        elif address.path == "/api/pulses":
            # A cup's pulses since its driver's start; null for a sensor without pulses.
            sensor, pulses = query.get("sensor", [""])[-1], self.server.source.pulses
            self._stream("pulses", lambda: pulses().get(sensor), _PULSES_EVERY_S)
        elif address.path == "/api/clock" and self.server.source.clock is not None:
            boot = {"boot_ms": self.server.source.clock.boot_ms()}
            self._send("application/json", msgspec.json.encode(boot))
        elif address.path == "/metrics":
            # Only where it is scraped: prometheus_client takes 4 MB.
            from gateway.status import metrics

            text = metrics.render(self.server.source.status(), resident_bytes())
            self._send(metrics.CONTENT_TYPE, text)
        else:
            self._send_text(f"there are {', '.join(_PATHS)} and /healthz", HTTPStatus.NOT_FOUND)

    def do_POST(self) -> None:
        """Takes a phone's time, over the temporary listener."""
        self.close_connection = True
        manual_time, path = self.server.source.clock, self.address.path
        if self.server.free_for_locals or path != "/api/clock" or manual_time is None:
            self._send_text("nothing is changed here: GET only", HTTPStatus.METHOD_NOT_ALLOWED)
            return
        access = self._access(None)
        if access is not Access.ADMITTED:
            self._refuse(access, path)
        elif self.headers.get("Origin", self._origin) != self._origin:
            self._send_text("another page's request", HTTPStatus.FORBIDDEN)
        else:
            try:
                given = msgspec.json.decode(self._json(), type=_PhoneTime)
                manual_time.give(given.time_ms, given.asked_boot_ms)
            except (ValueError, RecursionError) as error:
                self._send_text(str(error), HTTPStatus.CONFLICT)
            else:
                self._send_text("taken")

    @property
    def _origin(self) -> str:
        return f"http://{self.headers.get('Host', '')}"

    def _json(self) -> bytes:
        length = self.headers.get("Content-Length", "")
        # JSON only: a form of another site's page can't send that.
        if self.headers.get_content_type() != "application/json":
            raise ValueError("this must be JSON")
        if not (length.isascii() and length.isdigit() and len(length) < 9 and int(length) <= _LONGEST_BODY):
            raise ValueError("this is no time")
        return self.rfile.read(int(length))

    def _is_local(self) -> bool:
        return is_local(str(self.client_address[0]), str(self.connection.getsockname()[0]))

    def _access(self, offered: str | None) -> Access:
        if self.server.free_for_locals and self._is_local():
            return Access.ADMITTED
        if offered is None:
            offered = self._cookie() or self._bearer()
        return self.server.gate.admit(offered, str(self.client_address[0]))

    @property
    def _cookie_name(self) -> str:
        # Browsers send cookies to all ports of a host.
        return f"fieldgate-{self.server.server_port}"

    def _cookie(self) -> str | None:
        try:
            found = SimpleCookie(self.headers.get("Cookie", "")).get(self._cookie_name)
        except CookieError:
            return None
        return None if found is None else found.value

    def _bearer(self) -> str | None:
        kind, _, token = self.headers.get("Authorization", "").partition(" ")
        return token.strip() if kind.lower() == "bearer" and token.strip() else None

    def _set_cookie(self, token: str, path: str) -> None:
        if not token.isascii():
            # Anything is admitted from this machine; it can't stand in a header.
            token = ""
        cookie: SimpleCookie = SimpleCookie()
        cookie[self._cookie_name] = token
        morsel = cookie[self._cookie_name]
        morsel["path"], morsel["httponly"], morsel["samesite"] = "/", True, "Strict"
        left_s = self.server.gate.left_s
        if left_s is not None:
            morsel["max-age"] = str(int(left_s) + 1)
        where = path if path in _PATHS else "/"
        self._send(
            "text/plain", b"", HTTPStatus.SEE_OTHER, {"Location": where, "Set-Cookie": morsel.OutputString()}
        )

    def _refuse(self, access: Access, path: str) -> None:
        code, text = _REFUSALS[access]
        headers = {"Retry-After": str(int(WINDOW_S))} if access is Access.WAIT else {}
        if access in (Access.WRONG, Access.WAIT):
            log.warning("event=status.refused peer=%s reason=%s", self.client_address[0], access.value)
        if path == "/":
            body = _token_page(text, access is not Access.CLOSED)
            self._send("text/html; charset=utf-8", body, code, headers)
        else:
            self._send_text(text, code, headers)

    def _health(self) -> None:
        found = stalled(self.server.source.status())
        code = HTTPStatus.SERVICE_UNAVAILABLE if found else HTTPStatus.OK
        reasons = "\n".join(found) if self.server.free_for_locals and self._is_local() else "not ok"
        self._send_text(reasons if found else "ok", code)

    def _status(self) -> Status:
        """Returns the status, with the time left where access ends."""
        status, left_s = self.server.source.status(), self.server.gate.left_s
        return status if left_s is None else msgspec.structs.replace(status, closes_in_s=round(left_s))

    def _stream(self, name: str, content: Callable[[], object], every_s: float) -> None:
        """Sends server-sent events until the server stops, access ends or the client disconnects."""
        if not self.server.streams.acquire(blocking=False):
            self._send_text("too many pages are open on this mast", HTTPStatus.SERVICE_UNAVAILABLE)
            return
        try:
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            if name == "status":
                self._event("recent", self.server.source.recent())
            self._event(name, content())
            while not self.server.stopping.wait(every_s) and self.server.gate.left_s != 0.0:
                self._event(name, content())
        except OSError:
            log.debug("event=status.page_gone")
        finally:
            self.server.streams.release()
            self.close_connection = True

    def _event(self, name: str, content: object) -> None:
        self.wfile.write(b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(content)))
        self.wfile.flush()

    def _send_text(
        self, text: str, code: HTTPStatus = HTTPStatus.OK, headers: Mapping[str, str] = {}
    ) -> None:
        self._send("text/plain; charset=utf-8", f"{text}\n".encode(), code, headers)

    def _send(
        self, kind: str, body: bytes, code: HTTPStatus = HTTPStatus.OK, headers: Mapping[str, str] = {}
    ) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in {**_GUARDS, **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Logs the path at most: a token may stand behind it."""
        path = getattr(self, "path", "").partition("?")[0]
        log.debug("event=status.request peer=%s path=%s", self.client_address[0], path)

    def log_error(self, format: str, *args: object) -> None:
        """Logs no more of a request that can't be parsed: it has no path."""
        log.debug("event=status.bad_request peer=%s", self.client_address[0])


class StatusServer(BoundedServer):
    """Listens on one address. ``free_for_locals``: connections from this machine need no token."""

    def __init__(
        self,
        host: str,
        port: int,
        source: StatusSource,
        gate: Gate | None = None,
        *,
        free_for_locals: bool = True,
    ) -> None:
        """Listens. Raises OSError."""
        self.source = source
        self.gate = gate or Gate(None)
        self.free_for_locals = free_for_locals
        self.streams = threading.BoundedSemaphore(_MAX_STREAMS)
        super().__init__("status", host, port, Request)
