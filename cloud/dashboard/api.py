"""``/api/v1/``: the lake's tables for programs, as JSON, CSV, Parquet or Arrow, of each user's masts alone.

Requests are taken in the server's event loop; queries have threads and DuckDBs of their own, so that no page
waits for one. A bounded number runs at once, of each user fewer, and the others wait for their turn.
"""

from __future__ import annotations

import hashlib
import logging
import os
from asyncio import Semaphore, get_running_loop, timeout
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, BinaryIO, Final, Literal

import msgspec
from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from cloud.dashboard.audience import Audience
from cloud.dashboard.login import problem
from cloud.errors import CloudError
from cloud.lake import paging
from cloud.lake.cleaning import time_of
from cloud.lake.paging import SOURCES, Cursor, Form, Pages, Refused, TooSlow
from cloud.lake.reader import LakeReader, missing
from cloud.lake.tables import LakeError
from cloud.toml_problems import nearest
from cloud.values import installed_version

log = logging.getLogger(__name__)

_QUERY_S: Final = 10.0
_WAIT_S: Final = 30.0
"""The most that a query may take, and that it may wait for its turn."""
_AT_ONCE: Final = 4
_AT_ONCE_OF_USER: Final = 2
_MOST_OF_USER: Final = 64
"""Requests at work, those that wait and those that are sent among them."""
_PART_BYTES: Final = 1 << 18
_MEDIA: Final[dict[Form, str]] = {
    "json": "application/json", "csv": "text/csv", "parquet": "application/vnd.apache.parquet",
    "arrow": "application/vnd.apache.arrow.file",
}  # fmt: skip
_HEADERS: Final = {
    "Cache-Control": "private, no-cache", "Vary": "Accept, Authorization, Cookie",
    # NiceGUI compresses what has no encoding: seconds of the event loop for a large page.
    "Content-Encoding": "identity",
}  # fmt: skip


def _moment(given: Any) -> datetime:
    """A time; the plus sign that an address makes a space is one again."""
    try:
        return time_of(given.replace(" ", "+") if "T" in given else given, "")
    except LakeError:
        raise ValueError("is no time such as 2026-05-01 or 2026-05-01T06:00+05:45") from None


def _split(given: object) -> object:
    return [part for each in given for part in str(each).split(",")] if isinstance(given, list) else given


_Names = Annotated[list[str], BeforeValidator(_split)]
_Moment = Annotated[datetime, BeforeValidator(_moment)]
_PARAMETERS: Final[dict[str, tuple[Any, Any, str]]] = {
    "format": (Form | None, None, "as the Accept header says without it, else json"),
    "mast": (str | None, None, "a mast's name"),
    "columns": (_Names, [], "these columns alone, repeated or with commas"),
    "limit": (Annotated[int, Field(ge=1, le=100_000)], 10_000, "the most rows of a page, up to 100000"),
    "cursor": (str, "", "where a page begins, a part of the Link header's address"),
    "from": (_Moment | None, None, "ISO 8601, included; without a zone UTC"),
    "to": (_Moment | None, None, "ISO 8601, not included; without a zone UTC"),
    "channel": (_Names, [], "these channels alone, repeated or with commas"),
    "interval": (Annotated[int, Field(ge=1, le=86_400)] | None, None, "a length in seconds, such as 600"),
    "cleaned": (bool, False, "without the times that the cleaning log marks"),
    "shape": (Literal["long", "wide"], "long", "wide: a row for each interval, columns CHANNEL_FIGURE of the "
     "figures that columns names, of 10 minutes or else the shortest where interval isn't given"),
}  # fmt: skip
"""Type, default and meaning of each."""
_PAGE: Final = ("format", "mast", "columns", "limit", "cursor")
_ADDRESSES: Final[dict[str, Sequence[str]]] = {
    "masts": ("format",),
    "channels": (*_PAGE, "channel"),
    "readings": (*_PAGE, "from", "to", "channel", "cleaned"),
    "statistics": tuple(_PARAMETERS),
    "mast": (*_PAGE, "from", "to", "interval"),
    "alerts": (*_PAGE, "from", "to", "channel"),
    "events": (*_PAGE, "from", "to"),
    "quality": (*_PAGE, "from", "to", "channel", "interval", "cleaned"),
}
"""The parameters of each; what there is a day's rows of is asked for by mast."""


def _model(name: str) -> type[BaseModel]:
    fields: dict[str, Any] = {}
    for each in _ADDRESSES[name]:
        kind, default, meaning = _PARAMETERS[each]
        if each == "mast" and SOURCES[name].days:
            kind, default = str, ...
        fields[each + "_" * (each == "from")] = (kind, Field(default, alias=each, description=meaning))
    return create_model(name, __config__=ConfigDict(extra="forbid"), **fields)


def _wrong(status: int, detail: str, remedy: str, after_s: int = 0, **more: object) -> HTTPException:
    headers = {"Retry-After": str(after_s)} if after_s else None
    return HTTPException(status, {"detail": detail, "remedy": remedy, **more}, headers)  # type: ignore[arg-type]


async def _refused(_: Request | None, error: Any) -> Response:
    """The answer that says what is wrong with a request, or that it can't be answered now."""
    if not isinstance(error, HTTPException):
        # The reason may name a path of the lake.
        log.warning("event=api.failed problem=%r", str(error))
        error = _wrong(
            503, "The lake can't be read now.", "Ask again later; the server's log has the reason.", 5
        )
    if not isinstance(error.detail, dict):
        error = _wrong(error.status_code, error.detail, "/api/v1/openapi.json says what there is.")
    answer = problem(error.status_code, **error.detail)
    answer.headers.update(error.headers or {})
    return answer


async def _unfit(_: Request, error: Any) -> Response:
    """The answer to parameters that aren't right: the first one of them."""
    first = error.errors()[0]
    name, why = str(first["loc"][1]), str(first["msg"]).removeprefix("Value error, ")
    remedy = f"It is {_PARAMETERS[name][2]}." if name in _PARAMETERS else "Leave it out."
    if first["type"] == "extra_forbidden":
        guess, why = nearest(name, _PARAMETERS), "is no parameter here"
        remedy = f"Did you mean {guess}?" if guess else "Leave it out."
    value = None if first["type"] == "missing" else first["input"]
    return await _refused(None, _wrong(400, f"{name}: {why}", remedy, parameter=name, value=value))


class Bounded:
    """Refuses requests of a user while too many of theirs are at work."""

    def __init__(self, inner: ASGIApp) -> None:
        self._inner = inner
        self._there: Counter[str | None] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, counted until its answer is sent."""
        user, inner = scope.get("user"), self._inner
        if self._there[user] >= _MOST_OF_USER:
            inner = await _refused(
                None, _wrong(429, "Too many requests of yours.", "Ask again after 5 s.", 5)
            )
        self._there[user] += 1
        try:
            await inner(scope, receive, send)
        finally:
            self._there[user] -= 1


class Tables:
    """Answers from the lake, as each user may see it."""

    def __init__(self, audience: Audience) -> None:
        self._audience = audience
        self._pages = Pages(audience.lakes, _QUERY_S)
        self._all = Semaphore(_AT_ONCE)
        self._of: dict[str | None, Semaphore] = defaultdict(lambda: Semaphore(_AT_ONCE_OF_USER))
        self._threads = ThreadPoolExecutor(_AT_ONCE, "api")

    async def masts(self, request: Request, asked: Any) -> Response:
        """The fleet; what is live is in it, so that no version says whether it has changed."""
        user, form = request.scope.get("user"), _form(asked, request)

        def write(file: Path) -> None:
            paging.save_frame(self._audience.fleet(user).read().frame(), form, file)

        made, _ = await self._in_turn(user, write)
        return _sent(made, form, _HEADERS)

    async def page(self, request: Request, name: str, asked: Any) -> Response:
        """A page of a table's rows, 304 where the client has it. Raises HTTPException, LakeError."""
        user, form, headers = request.scope.get("user"), _form(asked, request), dict(_HEADERS)
        reader = self._audience.reader(user)
        query, cursor, identity = _query(name, asked, reader)
        headers["ETag"] = f'"{_hash(identity, cursor, reader.gateways, form, asked.limit)}"'
        if headers["ETag"] in request.headers.get("if-none-match", ""):
            return Response(None, 304, headers)
        write = partial(self._write, user, query, cursor, asked, form)
        made, following = await self._in_turn(user, write)
        if following is not None:
            versions = [following.versions.get(each, -1) for each in _tables(query, reader)]
            text = urlsafe_b64encode(msgspec.json.encode((identity, versions, following.after))).decode()
            headers["Link"] = f'<{request.url.include_query_params(cursor=text)}>; rel="next"'
        return _sent(made, form, headers)

    async def _in_turn(self, user: str | None, write: Callable[[Path], Any]) -> tuple[BinaryIO, Any]:
        async with AsyncExitStack() as turn:
            try:
                async with timeout(_WAIT_S):
                    await turn.enter_async_context(self._of[user])
                    await turn.enter_async_context(self._all)
            except TimeoutError:
                raise _wrong(503, f"No turn came within {_WAIT_S:.0f} s.", "Ask again later.", 30) from None
            return await get_running_loop().run_in_executor(self._threads, partial(_made, write))

    def _write(
        self, user: str | None, query: paging.Query, cursor: Cursor, asked: Any, form: Form, file: Path
    ) -> Cursor | None:
        try:
            rows = self._pages.wide(query, cursor) if getattr(asked, "shape", "") == "wide" else query
            count, following = self._pages.write(rows, cursor, asked.limit, form, file)
            if count == 0 and asked.mast is not None:
                self._check(user, query, cursor)
        except Refused as error:
            value = error.value or getattr(asked, error.parameter)
            raise _wrong(400, str(error), error.remedy, parameter=error.parameter, value=value) from error
        except TooSlow as error:
            raise _wrong(503, str(error), "Ask for a shorter time or fewer channels.", 30) from error
        except LakeError as error:
            if not asked.cursor:
                raise
            why = "What the first page was read from isn't kept."
            raise _wrong(410, why, "Begin without it.", parameter="cursor", value=asked.cursor) from error
        return following

    def _check(self, user: str | None, query: paging.Query, cursor: Cursor) -> None:
        """Raises HTTPException where no such mast or channel is why there are no rows."""
        masts = [each["gateway"] for each in self._audience.fleet(user).read().masts]
        if (mast := query.given["mast"]) not in masts:
            raise _unknown("mast", mast, masts)
        for parameter, column in (("channel", "channel"), ("interval", "interval_s")):
            others = dict(query.given)
            if (given := others.pop(parameter, None)) is None:
                continue
            there = self._pages.there(replace(query, given=others), cursor, column)
            for each in {*(given if isinstance(given, list) else [given])}.difference(there) if there else ():
                raise _unknown(parameter, each, there)


def _query(name: str, asked: Any, reader: LakeReader) -> tuple[paging.Query, Cursor, str]:
    """What is asked for, where the page begins, and the query's fingerprint. Raises HTTPException."""
    given = {each: getattr(asked, each, None) for each in ("mast", "channel", "interval")}
    given |= {"begin": getattr(asked, "from_", None), "end": getattr(asked, "to", None)}
    columns = tuple(dict.fromkeys(asked.columns))
    if getattr(asked, "shape", "") == "wide":
        columns = columns or ("avg", "sd", "min", "max")
    chosen = {each: value for each, value in given.items() if value not in (None, [])}
    query = paging.Query(SOURCES[name], reader.gateways, chosen, columns, getattr(asked, "cleaned", False))
    if asked.mast is not None and not reader.shows(asked.mast):
        raise _unknown("mast", asked.mast, ())
    if reader.version(query.source.table) < 0:
        raise _wrong(404, str(missing(query.source.table)), "The operator can have it filled.")
    there = {each: reader.seen.get(each, -1) for each in _tables(query, reader)}
    identity = _hash(name, asked.model_dump(mode="json", exclude={"cursor", "limit", "format"}))
    if not asked.cursor:
        return query, Cursor({key: at for key, at in there.items() if at >= 0}), identity
    kind = tuple[str, list[int], list[str | int | None]]
    try:
        whose, versions, after = msgspec.json.decode(urlsafe_b64decode(asked.cursor), type=kind)
        # -1 is a table that wasn't there at the first page, such as the cleaning log before its first mark.
        pairs = list(zip(there, versions, strict=True))
        if whose == identity and after and all(-1 <= at <= there[key] for key, at in pairs):
            return query, Cursor({key: at for key, at in pairs if at >= 0}, after), identity
    except (ValueError, msgspec.MsgspecError):
        pass
    remedy = "Take the Link header's whole address, or begin without a cursor."
    raise _wrong(400, "The cursor is none of this query.", remedy, parameter="cursor", value=asked.cursor)


def _tables(query: paging.Query, reader: LakeReader) -> list[str]:
    """The tables that a query reads, as ``reader.seen`` has them, whether they are there or not."""
    names = (query.source.table, "cleaning")[: 1 + query.is_clean]
    return [f"{lake}/{name}" for name in names for lake in sorted(reader.lakes)]


def _unknown(parameter: str, name: str | int, there: Sequence[str | int]) -> HTTPException:
    # The answer is the same for a mast that isn't there and one that the user may not see.
    guess = nearest(str(name), map(str, there))
    remedy = f"Did you mean {guess}?" if guess else f"/api/v1/{parameter}s lists yours."
    if parameter == "interval":
        remedy = f"There are {', '.join(map(str, there))}."
    return _wrong(404, f"There is no {parameter} {name}.", remedy, parameter=parameter, value=name)


def _form(asked: Any, request: Request) -> Form:
    kinds = [each.partition(";")[0].strip() for each in request.headers.get("accept", "").split(",")]
    forms: list[Form] = [form for kind in kinds for form, media in _MEDIA.items() if media == kind]
    return next(iter([asked.format] if asked.format else forms), "json")


def _made(write: Callable[[Path], Any]) -> tuple[BinaryIO, Any]:
    """What was written, in a file that is gone once it is closed; and what was returned."""
    with TemporaryDirectory(prefix="fieldgate-api-") as place:
        returned = write(Path(place, "page"))
        return Path(place, "page").open("rb"), returned


class _File(StreamingResponse):
    """A file's content, which is closed, and so gone, also where the client leaves before its end."""

    def __init__(self, made: BinaryIO, headers: dict[str, str], media: str) -> None:
        super().__init__(iter(partial(made.read, _PART_BYTES), b""), 200, headers, media)
        self._made = made

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends it."""
        with self._made:
            await super().__call__(scope, receive, send)


def _sent(made: BinaryIO, form: Form, headers: dict[str, str]) -> Response:
    length = {"Content-Length": str(os.fstat(made.fileno()).st_size)}
    return _File(made, headers | length, _MEDIA[form])


def _hash(*parts: object) -> str:
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:32]


def _add(api: FastAPI, name: str, tables: Tables) -> None:
    async def answer(request: Request, asked: Any) -> Response:
        return await (tables.masts(request, asked) if name == "masts" else tables.page(request, name, asked))

    answer.__annotations__["asked"] = Annotated[_model(name), Query()]
    forms: dict[str, Any] = {"content": {media: {} for media in _MEDIA.values()}}
    api.get(f"/{name}", operation_id=name, responses={200: forms})(answer)


def api_of(audience: Audience) -> FastAPI:
    """The application below ``/api/v1``; its OpenAPI is at ``openapi.json``."""
    api = FastAPI(title="fieldgate", version=installed_version(), docs_url=None, redoc_url=None)
    api.add_middleware(Bounded)
    api.exception_handler(RequestValidationError)(_unfit)
    for kind in (HTTPException, CloudError):
        api.exception_handler(kind)(_refused)
    tables = Tables(audience)
    for name in _ADDRESSES:
        _add(api, name, tables)
    return api
