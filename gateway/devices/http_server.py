"""``POST /v1/readings``: readings of devices, answered once Kafka or the outbox has them.

A device may have two bodies at a time in memory, so that slow ones of its own keep no other waiting. Without
tokens clients can't be distinguished (they are all of this machine): then whoever has been slow for two
seconds makes room for the next.
"""

from __future__ import annotations

import contextlib
import io
import logging
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any, Final

import msgspec

from gateway.config.bridges.access_files import read_tokens
from gateway.config.bridges.model import NO_HTTP, HttpConfig
from gateway.devices.entry import LINES, BadBody, DeviceEntry, PostedReadings, Refusal, payloads, unpacked
from gateway.ports import Record
from gateway.status.bounded_server import BoundedServer, Listener, is_own_name
from gateway.status.status import HttpStatus
from gateway.status.tokens import WINDOW_S, Access, DeviceTokens

MOST: Final = 8
MOST_OF_ONE: Final = 2
SLOW_S: Final = 2.0


class Place:
    """A body that is being received: its device, and since when it comes."""

    def __init__(self, device: str | None, since_s: float) -> None:
        self.device = device
        self.since_s = since_s
        self.given_up = threading.Event()
        """It takes too long, and another one needs the place."""


class Bodies:
    """The places that there are."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        # The oldest first.
        self._taken: list[Place] = []
        self._lock = threading.Lock()

    @property
    def taken(self) -> int:
        """How many are taken."""
        return len(self._taken)

    def take(self, device: str | None) -> Place | None:
        """A place for a device's next body; None where it has to wait."""
        now_s = self._monotonic()
        with self._lock:
            if device is not None and sum(each.device == device for each in self._taken) >= MOST_OF_ONE:
                return None
            if len(self._taken) >= MOST:
                oldest = self._taken[0]
                if now_s < oldest.since_s + SLOW_S:
                    return None
                # It lets go of its bytes within half a second, so there are twice as many at most.
                oldest.given_up.set()
                del self._taken[0]
            place = Place(device, now_s)
            self._taken.append(place)
            return place

    def give_back(self, place: Place) -> None:
        """The body has been read, or never will be."""
        with self._lock:
            if place in self._taken:
                self._taken.remove(place)


log = logging.getLogger(__name__)

PATH: Final = "/v1/readings"
_IDLE_S: Final = 10.0
"""For a request's head, and between requests; and for the response."""
_BODY_S: Final = 30.0
_DURABLE_S: Final = 30.0
_AGAIN_S: Final = 1
_MOST_NAMED: Final = 100
"""Refused readings that a response has."""
_MOST_CONNECTIONS: Final = 16
"""One address may hold half of all connections."""
_TURN_S: Final = 0.5
_MAX_BODY: Final = 1 << 20
"""Bytes of a request, also once it is unpacked."""


class HttpServer(BoundedServer):
    """Serves until it is stopped."""

    def __init__(
        self, config: HttpConfig, readings: PostedReadings, entry: DeviceEntry, counts: Counter[str]
    ) -> None:
        """Listen. Raises OSError."""
        self.readings = readings
        self.entry = entry
        self.bodies = Bodies()
        self._counts = counts
        self._counting = threading.Lock()
        try:
            self.tokens = None if config.tokens is None else DeviceTokens(read_tokens(config.tokens))
        except ValueError as error:
            raise OSError(str(error)) from error
        context = None
        if config.certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(config.certificate, config.key)
        super().__init__("http", *(config.address or ("127.0.0.1", 0)), Post, most_of_one=_MOST_CONNECTIONS)
        if context is not None:
            # The handshake is the connection's own thread's: none may hold the others up.
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def count(self, what: str, number: int = 1) -> None:
        """Adds to a count of the status."""
        with self._counting:
            self._counts[what] += number


class _Timed(io.RawIOBase):
    """Reads from a connection up to a moment, or until its place is given up, however slowly it comes."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.until_s = 0.0
        self.place: Place | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            left_s = self.until_s - time.monotonic()
            if left_s <= 0 or (self.place is not None and self.place.given_up.is_set()):
                raise TimeoutError
            self._connection.settimeout(min(left_s, _TURN_S))
            with contextlib.suppress(TimeoutError):
                return self._connection.recv_into(buffer)


class Post(BaseHTTPRequestHandler):
    """One connection; requests come one after the other."""

    protocol_version = "HTTP/1.1"
    server_version = "fieldgate"
    sys_version = ""
    timeout = _IDLE_S
    # An answer is two packets, and the second would wait 40 ms for the client's acknowledgement.
    disable_nagle_algorithm = True

    server: HttpServer

    def setup(self) -> None:
        """Bounds how long a request may take to come."""
        super().setup()
        if isinstance(self.connection, ssl.SSLSocket):
            self.connection.do_handshake()
        self._timed = _Timed(self.connection)
        self.rfile.close()
        self.rfile = io.BufferedReader(self._timed)

    def handle_one_request(self) -> None:
        """Handles a request that comes in time."""
        self._timed.until_s = time.monotonic() + _IDLE_S
        super().handle_one_request()

    def do_GET(self) -> None:
        """There is nothing to see."""
        self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, f"POST {PATH}", Allow="POST")

    def do_POST(self) -> None:
        """Readings: a JSON object, an array, or JSON lines."""
        server = self.server
        server.count("requests")
        if self.path != PATH:
            self._refuse(HTTPStatus.NOT_FOUND, f"there is {PATH}")
            return
        if server.tokens is None and not is_own_name(self.headers.get("Host", ""), server.listens_as):
            # Another name may point here for its owner's page, which a browser on this machine has open.
            remedy = "post to localhost, an address, or this machine's own name"
            self._refuse(HTTPStatus.MISDIRECTED_REQUEST, f"this machine has another name: {remedy}")
            return
        device = None if server.tokens is None else server.tokens.admit(self._bearer(), self._peer)
        if isinstance(device, Access):
            self._turn_away(device)
        elif not server.entry.has_room or (place := server.bodies.take(device)) is None:
            self._wait_a_little()
        else:
            self._timed.place = place
            try:
                found = self._readings(device)
            finally:
                self._timed.place = None
                server.bodies.give_back(place)
            if found is not None:
                self._take(*found)

    def _readings(self, device: str | None) -> tuple[list[Record], list[Refusal]] | None:
        """What has been posted; None where nothing of it can be read, which is answered."""
        server, body = self.server, self._body()
        if body is None:
            return None
        try:
            if self._encoding == "gzip":
                body = unpacked(body, _MAX_BODY)
            found = payloads(body, self.headers.get_content_type())
        except BadBody as error:
            code = HTTPStatus.REQUEST_ENTITY_TOO_LARGE if error.too_large else HTTPStatus.BAD_REQUEST
            self._refuse(code, str(error))
            return None
        return server.readings.records(found, device)

    def _take(self, records: list[Record], refusals: list[Refusal]) -> None:
        server, durable = self.server, threading.Event()
        if records and not server.entry.hand_over(records, durable.set):
            self._wait_a_little()
            return
        until_s = time.monotonic() + _DURABLE_S
        while records and not durable.wait(_TURN_S):
            if server.stopping.is_set() or time.monotonic() >= until_s:
                self._refuse(
                    HTTPStatus.SERVICE_UNAVAILABLE, "not durable yet: send it again", Retry_After=_AGAIN_S
                )
                return
        server.count("readings", len(records))
        server.count("refused", len(refusals))
        answer: dict[str, Any] = {"accepted": len(records)}
        if refusals:
            log.warning(
                "event=http.readings_refused peer=%s readings=%d reason=%s line=%d",
                self._peer, len(refusals), refusals[0].reason, refusals[0].line,
            )  # fmt: skip
            answer |= {
                "error": "some readings are refused; the others are accepted",
                "refused": len(refusals),
                "lines": [each._asdict() for each in refusals[:_MOST_NAMED]],
            }
        self._send(HTTPStatus.BAD_REQUEST if refusals else HTTPStatus.OK, answer)

    def _body(self) -> bytes | None:
        """The request's body; None where it is refused, or breaks off."""
        length = self.headers.get("Content-Length", "")
        if "Transfer-Encoding" in self.headers or not (length.isascii() and length.isdigit()):
            self._refuse(HTTPStatus.LENGTH_REQUIRED, "give Content-Length")
        elif self._encoding not in ("identity", "gzip"):
            self._refuse(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "gzip, or no Content-Encoding")
        elif self.headers.get_content_type() not in ("application/json", *LINES):
            types = ", ".join(("application/json", *LINES))
            self._refuse(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"give a Content-Type: {types}")
        elif len(length) > 12 or int(length) > _MAX_BODY:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"over {_MAX_BODY} bytes")
        else:
            self._timed.until_s = time.monotonic() + _BODY_S
            try:
                body = self.rfile.read(int(length))
            except TimeoutError:
                if self._timed.place is None or not self._timed.place.given_up.is_set():
                    raise
                self._wait_a_little()
                return None
            if len(body) == int(length):
                return body
            self.close_connection = True
        return None

    @property
    def _encoding(self) -> str:
        return self.headers.get("Content-Encoding", "identity").lower()

    @property
    def _peer(self) -> str:
        return str(self.client_address[0])

    def _bearer(self) -> str | None:
        kind, _, token = self.headers.get("Authorization", "").partition(" ")
        return token.strip() if kind.lower() == "bearer" and token.strip() else None

    def _turn_away(self, access: Access) -> None:
        self.server.count("unauthorized")
        if access is Access.WAIT:
            self._refuse(HTTPStatus.TOO_MANY_REQUESTS, "too many wrong tokens", Retry_After=int(WINDOW_S))
        else:
            log.warning("event=http.refused peer=%s reason=%s", self._peer, access.value)
            self._refuse(HTTPStatus.UNAUTHORIZED, "Authorization: Bearer TOKEN", WWW_Authenticate="Bearer")

    def _wait_a_little(self) -> None:
        self.server.count("pressure")
        self._refuse(HTTPStatus.TOO_MANY_REQUESTS, "too much is not durable yet", Retry_After=_AGAIN_S)

    def _refuse(self, code: HTTPStatus, problem: str, **headers: str | int) -> None:
        # What may still come of its body is not read.
        self.close_connection = True
        self._send(code, {"error": problem}, headers)

    def _send(
        self, code: HTTPStatus, answer: Mapping[str, Any], headers: Mapping[str, str | int] = {}
    ) -> None:
        body = msgspec.json.encode(answer)
        self.connection.settimeout(_IDLE_S)
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing of what a client has written."""
        log.debug("event=http.request peer=%s", self._peer)


class HttpInput(Listener[HttpConfig, HttpServer]):
    """Readings that devices post. Owned by the main thread."""

    def __init__(self, readings: PostedReadings, entry: DeviceEntry) -> None:
        self._readings = readings
        self._entry = entry
        self._counts: Counter[str] = Counter()
        super().__init__(self._make, NO_HTTP)

    @property
    def status(self) -> HttpStatus:
        """Where it listens, and what has come."""
        server, counts = self.server, self._counts
        names = ("requests", "readings", "refused", "unauthorized", "pressure")
        port = None if server is None else server.server_port
        return HttpStatus(port=port, **{name: counts[name] for name in names})

    def _make(self, config: HttpConfig) -> HttpServer | None:
        if config.address is None:
            return None
        return HttpServer(config, self._readings, self._entry, self._counts)
