"""The pages' server: addresses, CSV, one shared look at the lake's versions, and who may ask."""

from __future__ import annotations

import csv
import io
import re
import socket
import time
from asyncio import BaseTransport, open_connection, sleep, to_thread
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final
from urllib.parse import quote

from fastapi import Request as HttpRequest
from fastapi.responses import PlainTextResponse, Response
from nicegui import Client, Event, app, context, ui
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from cloud.config import CloudConfig
from cloud.dashboard.api import api_of
from cloud.dashboard.audience import Audience
from cloud.dashboard.behind import EVERY_S, Behind, behind_card
from cloud.dashboard.commands import CommandSender
from cloud.dashboard.fleet_page import Look, fleet_page
from cloud.dashboard.frame import moment
from cloud.dashboard.lists import lists_page
from cloud.dashboard.login import LoggedIn, Sessions, form, log_in, log_out
from cloud.dashboard.mast_page import Sources, mast_page
from cloud.dashboard.views import Request, open_view
from cloud.errors import CloudError
from cloud.lake.documents import PDF, document_of
from cloud.lake.numbers import CHARTS, channels_of, each_interval
from cloud.lake.reader import Frame, LakeReader
from cloud.values import no_formula

LOOK_EVERY_S: Final = 2.0
"""How often the tables' versions are looked at, for all pages together."""
TICK_S: Final = 1.0
"""How often live values are shown anew."""
TAKEN_WITHIN_S: Final = 30.0
"""How long a client may take nothing of its answer."""
CONNECT_WITHIN_S: Final = 20.0
MOST_UNOPENED: Final = 8
"""Pages that no browser connects to within so long, or beyond so many, are given up: each holds some 3 MB."""


class Unopened:
    """Pages that are built and that no browser has connected to yet, the oldest first."""

    def __init__(self) -> None:
        self._pages: deque[tuple[float, Client]] = deque()

    async def add(self, build: Awaitable[None]) -> None:
        """Builds a page and counts it in."""
        client = context.client
        await build
        self._pages.append((time.monotonic(), client))
        self.prune()

    def prune(self) -> None:
        """Gives up the pages that are too old or too many."""
        until_s = time.monotonic() - CONNECT_WITHIN_S
        waiting = [
            each
            for each in self._pages
            if each[1].id in Client.instances and not each[1].has_socket_connection
        ]
        self._pages.clear()
        for at, (built_s, client) in enumerate(waiting, start=1):
            if built_s < until_s or len(waiting) - at >= MOST_UNOPENED:
                client.delete()
            else:
                self._pages.append((built_s, client))


class CutOff(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """A connection that the kernel ends when its client takes nothing of an answer for ``TAKEN_WITHIN_S``.

    Uvicorn would wait for ever: the client's answers are held, and count among its user's requests.
    """

    def connection_made(self, transport: BaseTransport) -> None:
        """Sets its limit."""
        connection: socket.socket = transport.get_extra_info("socket")
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(1000 * TAKEN_WITHIN_S))
        super().connection_made(transport)


class SameSite:
    """Refuses what another site's page asks for: a foreign ``Host`` (a name bound to loopback) or ``Origin``.

    NiceGUI's socket takes any origin. ``hosts`` is None where users log in: a cookie is of one host alone.
    """

    def __init__(self, inner: ASGIApp, hosts: frozenset[str] | None) -> None:
        self._inner, self._hosts = inner, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or one socket."""
        if scope["type"] in ("http", "websocket"):
            headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
            host, origin = headers.get(b"host", ""), headers.get(b"origin")
            foreign = self._hosts is not None and host not in self._hosts
            if foreign or (origin is not None and origin.partition("://")[2] != host):
                if scope["type"] == "websocket":
                    await send({"type": "websocket.close", "code": 1008})
                else:
                    await PlainTextResponse("Another site's request.\n", 403)(scope, receive, send)
                return
        await self._inner(scope, receive, send)


def as_csv(frame: Frame, name: str) -> Response:
    """Rows as a file; times in ISO 8601, UTC."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(frame.columns)
    times = [column == "time" or column.endswith("_at") for column in frame.columns]
    for row in frame.rows:
        writer.writerow(
            moment(value, "%Y-%m-%dT%H:%M:%SZ") if is_time and value is not None else no_formula(value)
            for value, is_time in zip(row, times, strict=True)
        )
    plain = re.sub(r"[^\w.-]", "_", name, flags=re.ASCII)
    return Response(
        out.getvalue(),
        media_type="text/csv",
        headers={"Content-Disposition": f'attachment; filename="{plain}.csv"'},
    )


def asked(gateway: str, query: Mapping[str, str]) -> Request:
    """What the address of a mast's page, or of one of its files, wants."""
    length = query.get("interval", "")
    return Request(
        gateway,
        query.get("channel"),
        query.get("from"),
        query.get("to"),
        # Python makes no number of thousands of digits.
        int(length) if length.isdecimal() and len(length) < 10 else None,
        query.get("marks") == "without",
    )


def mast_csv(reader: LakeReader, request: Request, chart: str) -> Response:
    """A chart's numbers as a file, or why there are none."""
    try:
        view = open_view(reader, request)
        span = view.span
        if chart == "series":
            # Every interval, not what the screen has points for.
            frame = each_interval(view)
        elif chart in CHARTS:
            frame = CHARTS[chart](view)
        else:
            return PlainTextResponse(f"no chart of that name; there are series, {', '.join(CHARTS)}\n", 404)
    except CloudError as error:
        return PlainTextResponse(f"{error}\n", 404)
    days = f"{moment(span.begin_ms, '%Y-%m-%d')}_{moment(span.end_ms, '%Y-%m-%d')}"
    return as_csv(frame, "-".join((request.gateway, chart, *channels_of(view, chart))) + f"_{days}")


def document_file(reader: LakeReader, gateway: str, document: str) -> Response:
    """A mast's document, to be stored by the browser and never shown by it: others made it."""
    try:
        row, content = document_of(reader, document, gateway)
    except CloudError as error:
        return PlainTextResponse(f"{error}\n", 404)
    headers = {
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(row['name'], safe='')}",
        "X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox",
        "Cache-Control": "private, no-cache",
        # NiceGUI compresses what has no encoding: seconds of the event loop for a large file.
        "Content-Encoding": "identity",
    }  # fmt: skip
    return Response(content, 200, headers, "application/pdf" if row["kind"] == PDF else "application/json")


def _user(request: HttpRequest) -> str | None:
    """Who asks; None where there are no users."""
    user: str | None = request.scope.get("user")
    return user


def _add_login(audience: Audience, tokens: str | None) -> None:
    sessions = Sessions(audience.users, tokens)
    app.add_middleware(LoggedIn, sessions=sessions)

    @app.get("/login")
    def _form(to: str = "/") -> Response:
        return form(to)

    @app.post("/login")
    async def _log_in(request: HttpRequest) -> Response:
        return await log_in(request, sessions)

    @app.post("/logout")
    def _log_out(request: HttpRequest) -> Response:
        return log_out(request, sessions)


def serve(
    audience: Audience,
    behind: Behind,
    address: tuple[str, int],
    config: CloudConfig,
    ready: Callable[[], None],
) -> None:
    """Serves the pages until the process is stopped."""
    host, port = address
    changed: Event[[]] = Event()
    ticks: Event[[]] = Event()
    looked: Event[[]] = Event()
    unopened = Unopened()
    hosts = frozenset(f"{name}:{port}" for name in (host, "localhost", "127.0.0.1", "[::1]"))
    if audience.users:
        _add_login(audience, config.dashboard.tokens)
    # What is added last is asked first.
    app.add_middleware(SameSite, hosts=None if audience.users else hosts)

    @ui.page("/", response_timeout=30)
    async def _fleet(request: HttpRequest) -> None:
        user, look = _user(request), Look.of(request.query_params)
        sources = audience.fleet(user), audience.acknowledging(user)
        await unopened.add(fleet_page(sources, changed, ticks, look, config.dashboard))

    @ui.page("/mast/{gateway}", response_timeout=30)
    async def _mast(gateway: str, request: HttpRequest) -> None:
        user = _user(request)
        may = config.dashboard.commands and (user is None or audience.users[user].commands)
        sender = CommandSender(config.kafka, user) if may else None
        sources = Sources(
            audience.reader(user), audience.live(user), audience.marks(user), sender,
            audience.acknowledging(user), config.dashboard,
        )  # fmt: skip
        await unopened.add(mast_page(sources, changed, ticks, asked(gateway, request.query_params)))

    @ui.page("/alerts", response_timeout=30)
    async def _alerts(request: HttpRequest) -> None:
        user = _user(request)
        may = audience.acknowledging(user)
        await unopened.add(lists_page(audience.reader(user), changed, "Alerts", acknowledge=may))

    @ui.page("/pipeline", response_timeout=30)
    async def _pipeline(request: HttpRequest) -> None:
        first = partial(behind_card, behind, looked)
        await unopened.add(lists_page(audience.reader(_user(request)), changed, "Pipeline", first=first))

    app.mount("/api/v1", api_of(audience))

    @app.get("/healthz")
    def _healthz() -> PlainTextResponse:
        return PlainTextResponse("ok\n")

    @app.get("/csv/fleet")
    def _fleet_csv(request: HttpRequest) -> Response:
        return as_csv(audience.fleet(_user(request)).read().frame(), "fleet")

    @app.get("/csv/mast/{gateway}/{chart}")
    def _mast_csv(gateway: str, chart: str, request: HttpRequest) -> Response:
        return mast_csv(audience.reader(_user(request)), asked(gateway, request.query_params), chart)

    @app.get("/documents/{gateway}/{document}")
    def _document(gateway: str, document: str, request: HttpRequest) -> Response:
        return document_file(audience.reader(_user(request)), gateway, document)

    async def look() -> None:
        unopened.prune()
        try:
            if await to_thread(audience.look):
                changed.emit()
        except CloudError:
            # The lake is away: pages keep what they show, and the next look finds it again.
            return

    async def look_at_kafka() -> None:
        # Whoever watches subscribes, and a page that is closed doesn't any more.
        if looked.callbacks:
            await to_thread(behind.read)
            looked.emit()

    app.timer(LOOK_EVERY_S, look)
    app.timer(EVERY_S, look_at_kafka)
    if (live := audience.live_readings) is not None:
        app.on_startup(live.start)
        app.on_shutdown(live.stop)
        app.timer(TICK_S, ticks.emit)

    async def announce() -> None:
        # Startup is over before the port is open.
        while True:
            try:
                _, writer = await open_connection(host, port)
            except OSError:
                await sleep(0.05)
            else:
                writer.close()
                return ready()

    app.on_startup(announce)
    proxies = config.dashboard.proxies
    ui.run(host=host, port=port, title="fieldgate", favicon="🌬", dark=None, reload=False, show=False,
     tailwind=False,
           show_welcome_message=False, message_history_length=0, access_log=False,
           # Uvicorn would by itself believe whoever comes from this machine.
           proxy_headers=bool(proxies), forwarded_allow_ips=proxies, http=CutOff,
           ssl_certfile=config.dashboard.certificate, ssl_keyfile=config.dashboard.key)  # fmt: skip
