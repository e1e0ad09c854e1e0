"""Who may ask for pages: a login by password, kept as a cookie, before anything else is answered.

Sessions are in memory: a restart ends them, and so does a changed config. Everything here runs in the
server's event loop.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from asyncio import Lock, to_thread
from base64 import b64decode, b64encode
from collections import Counter, OrderedDict
from collections.abc import Mapping
from html import escape
from http import HTTPStatus
from ipaddress import IPv6Address, IPv6Network, ip_address
from pathlib import Path
from string import Template
from typing import Final
from urllib.parse import parse_qs, quote

from fastapi import Request
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cloud.backoff import backoff_s
from cloud.config import DashboardUser
from cloud.errors import CloudError
from cloud.operate.tokens import user_of

_COST: Final = {"n": 2**15, "r": 8, "p": 1, "maxmem": 2**26, "dklen": 32}
"""32 MiB and some 80 ms a guess."""
_SALT_BYTES: Final = 16
SHORTEST: Final = 10
LONGEST: Final = 256
"""Bytes of a password."""
NOBODYS: Final = f"scrypt:{'A' * 22}:{'A' * 43}"
"""The hash of no password: an unknown user takes as long as a wrong password."""


def hashed(password: str) -> str:
    """The hash for the config, another one each time: salt and hash in base64, their padding left out."""
    salt = secrets.token_bytes(_SALT_BYTES)
    return ":".join(("scrypt", _text(salt), _text(_derived(password, salt))))


def is_right(password: str, kept: str) -> bool:
    """Whether it is the password of that hash."""
    _, salt, derived = kept.split(":")
    return hmac.compare_digest(_derived(password, _bytes(salt)), _bytes(derived))


def _derived(password: str, salt: bytes) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, **_COST)


def _text(value: bytes) -> str:
    return b64encode(value).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return b64decode(text + "=" * (-len(text) % 4))


COOKIE: Final = "fieldgate_session"
SESSION_S: Final = 12 * 3600.0
_MOST_SESSIONS: Final = 1000
_MOST_ADDRESSES: Final = 1000
_FREE_GUESSES: Final = 5
"""Wrong passwords from an address before it has to wait: a second, then twice as long, at most a minute."""
_MOST_WAITING: Final = 16
"""Passwords that are or wait to be worked on, some 80 ms each: a second or two for the last of them."""
_LONGEST_FORM: Final = 4096
_API: Final = "/api/"
_OPEN: Final = ("/login", "/healthz")

_PAGE: Final = Template(Path(__file__).with_name("login.html").read_text("utf-8"))


class Sessions:
    """Who is logged in, by token; and how often an address has guessed wrong.

    ``tokens`` is the file of those that programs have, None without one.
    """

    def __init__(self, users: Mapping[str, DashboardUser], tokens: str | None = None) -> None:
        self._users, self._tokens = users, tokens
        self._sessions: OrderedDict[str, tuple[str, float]] = OrderedDict()
        self._wrong: OrderedDict[str, tuple[Counter[str], float]] = OrderedDict()
        self._one_guess = Lock()
        self._waiting = 0

    def user(self, token: str | None) -> str | None:
        """The user of a session that has not ended."""
        name, until_s = self._sessions.get(token or "", (None, 0.0))
        return name if time.monotonic() < until_s else None

    def user_of_program(self, token: str) -> str | None:
        """The user whose token a program has; None where it doesn't count. Raises CloudError."""
        name = user_of(Path(self._tokens), token) if self._tokens is not None else None
        return name if name in self._users else None

    def wait_s(self, address: str) -> float:
        """How long the address has to wait until it may guess again."""
        _, until_s = self._wrong.get(_network(address), (None, 0.0))
        return max(0.0, until_s - time.monotonic())

    @property
    def is_crowded(self) -> bool:
        """Whether so many passwords wait that another one is not to be taken."""
        return self._waiting >= _MOST_WAITING

    async def begin(self, name: str, password: str, address: str) -> str | None:
        """A new session's token; None where user and password don't fit, or the address has to wait.

        One guess at a time is worked on: each takes memory and time.
        """
        user = self._users.get(name)
        self._waiting += 1
        try:
            async with self._one_guess:
                # Others of the address may have come at the same time.
                if self.wait_s(address) > 0:
                    return None
                right = await to_thread(is_right, password, NOBODYS if user is None else user.password)
                if user is None or not right:
                    self._count(_network(address), name if user else "")
                    return None
        finally:
            self._waiting -= 1
        self._forgive(_network(address), name)
        token = secrets.token_urlsafe(32)
        self._sessions[token] = (name, time.monotonic() + SESSION_S)
        while len(self._sessions) > _MOST_SESSIONS:
            self._sessions.popitem(last=False)
        return token

    def _count(self, network: str, name: str) -> None:
        by_name, _ = self._wrong.pop(network, (Counter[str](), 0.0))
        by_name[name] += 1
        failures = by_name.total()
        paused_s = 0.0 if failures < _FREE_GUESSES else backoff_s(failures - _FREE_GUESSES + 1, 1.0, 60.0)
        self._wrong[network] = (by_name, time.monotonic() + paused_s)
        while len(self._wrong) > _MOST_ADDRESSES:
            self._wrong.popitem(last=False)

    def _forgive(self, network: str, name: str) -> None:
        """Whoever knows one password doesn't clear the guesses at another's."""
        by_name, _ = self._wrong.get(network, (Counter[str](), 0.0))
        del by_name[name]
        if not by_name:
            self._wrong.pop(network, None)

    def end(self, token: str | None) -> None:
        """Logs out."""
        self._sessions.pop(token or "", None)


def _network(address: str) -> str:
    """Returns the /64 that one customer has of IPv6; else the address itself."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if not isinstance(found, IPv6Address):
        return address
    return str(found.ipv4_mapped or IPv6Network((found, 64), strict=False))


class LoggedIn:
    """Lets nothing but the login pass without a session, or a program's token; ``scope["user"]`` is whose."""

    def __init__(self, inner: ASGIApp, sessions: Sessions) -> None:
        self._inner, self._sessions = inner, sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or one socket, which ends when something comes by it after its session has ended."""
        if scope["type"] not in ("http", "websocket") or scope["path"] in _OPEN:
            await self._inner(scope, receive, send)
            return
        token = token_of(scope)
        try:
            bearer, sessions = _bearer_of(scope), self._sessions
            scope["user"] = sessions.user(token) if bearer is None else sessions.user_of_program(bearer)
        except CloudError:
            remedy = "The operator sees why by `fieldgate token list`."
            await problem(503, "Tokens can't be read now.", remedy=remedy)(scope, receive, send)
            return
        if scope["user"] is not None:

            async def received() -> Message:
                message = await receive()
                if scope["type"] == "websocket" and self._sessions.user(token) is None:
                    return {"type": "websocket.disconnect", "code": 1008}
                return message

            await self._inner(scope, received, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await _to_login(scope)(scope, receive, send)


def _bearer_of(scope: Scope) -> str | None:
    """The token by which a program asks for what the API has; None without one."""
    given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
    kind, _, token = given.decode("latin-1").partition(" ")
    return token.strip() if kind.lower() == "bearer" and scope["path"].startswith(_API) else None


def token_of(scope: Scope) -> str | None:
    """The session's token among a request's cookies."""
    for name, value in scope["headers"]:
        if name == b"cookie":
            for each in value.decode("latin-1").split(";"):
                key, _, token = each.strip().partition("=")
                if key == COOKIE:
                    return str(token)
    return None


def _to_login(scope: Scope) -> Response:
    """A page's address leads to the login and back; what a program asks for is refused."""
    if scope["path"].startswith(_API):
        remedy = "Send Authorization: Bearer TOKEN, which `fieldgate token add` makes."
        refused = problem(401, "No token, or one that is unknown, expired or revoked.", remedy=remedy)
        refused.headers["WWW-Authenticate"] = "Bearer"
        return refused
    if scope["method"] != "GET" or scope["path"].startswith(("/csv/", "/_nicegui")):
        return PlainTextResponse("Log in first: /login\n", 401)
    query = scope["query_string"].decode("latin-1")
    to = scope["path"] + (f"?{query}" if query else "")
    return RedirectResponse(f"/login?to={quote(to)}", 303)


def problem(status: int, detail: str, **more: object) -> Response:
    """An error of the API by RFC 9457; ``more`` are its further members."""
    body = {"title": HTTPStatus(status).phrase, "status": status, "detail": detail, **more}
    return JSONResponse(body, status, media_type="application/problem+json")


def form(to: str, problem: str = "", status: int = 200) -> HTMLResponse:
    """The login's page, which leads to the address ``to`` of ours."""
    alert = f'<p role="alert">{escape(problem)}</p>' if problem else ""
    headers = {"Cache-Control": "no-store", "Content-Security-Policy": "frame-ancestors 'none'"}
    return HTMLResponse(_PAGE.substitute(problem=alert, to=escape(_ours(to))), status, headers)


async def log_in(request: Request, sessions: Sessions) -> Response:
    """What the form is answered with."""
    address = request.client.host if request.client is not None else ""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _LONGEST_FORM:
            return PlainTextResponse("too long for a login\n", 413)
    given = {name: values[0] for name, values in parse_qs(body.decode("utf-8", "replace")).items()}
    to = _ours(given.get("to", "/"))
    wait_s, many = sessions.wait_s(address), "wrong passwords"
    if wait_s == 0 and sessions.is_crowded:
        wait_s, many = 1.0, "logins at once"
    if wait_s > 0:
        answer = form(to, f"Too many {many}: try again in {wait_s:.0f} s.", 429)
        answer.headers["Retry-After"] = f"{wait_s + 1:.0f}"
        return answer
    token = await sessions.begin(given.get("user", ""), given.get("password", ""), address)
    if token is None:
        return form(to, "No such user, or another password.", 403)
    entered = RedirectResponse(to, 303)
    entered.set_cookie(
        COOKIE, token, max_age=int(SESSION_S), httponly=True, samesite="lax",
        secure=request.url.scheme == "https",
    )  # fmt: skip
    return entered


def log_out(request: Request, sessions: Sessions) -> Response:
    """Ends the session."""
    sessions.end(token_of(request.scope))
    left = RedirectResponse("/login", 303)
    left.delete_cookie(COOKIE)
    return left


def _ours(to: str) -> str:
    """An address on this server, never another's."""
    return to if to.startswith("/") and not to.startswith(("//", "/\\")) and to.isprintable() else "/"
