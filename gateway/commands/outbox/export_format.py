r"""Records as lines of JSON, to be carried home from a mast without signal. Pure.

The first line names format and version, the last one how many records there are: a file that was cut off
shows. Between them one record a line::

    {"topic": "mqtt.pressure", "key": "mast-07/baro.pressure", "headers": [["received-at", "…"]],
     "value": "{\"v\":1,…}", "sum": "9f0c…"}

Bytes are a string where they are UTF-8, else ``{"base64": "…"}``. ``sum`` is BLAKE2b (8 bytes, hex) over the
bytes of topic, key, the headers' names and values, and value, each ended by its length (8 bytes, big-endian).
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta

from cloud.wire.fields import UNDECODABLE
from gateway.ports import Record

FORMAT: Final = "fieldgate-outbox"
VERSION: Final = 1
MAX_LINE_BYTES: Final = 8 << 20


class BadLine(ValueError):
    """A line that is no record; the message has the reason."""


class _Base64(msgspec.Struct):
    base64: bytes


_Content = str | _Base64
_Topic = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,249}\Z")]
_HeaderName = Annotated[str, Meta(pattern=r"^[ -~]+\Z")]


class _Line(msgspec.Struct):
    topic: _Topic
    key: _Content
    headers: list[tuple[_HeaderName, _Content]]
    value: _Content
    sum: str


class _Head(msgspec.Struct):
    format: str = ""
    v: int = 0
    gateway: str = ""
    exported_at: str = ""


class End(msgspec.Struct, frozen=True, kw_only=True):
    """The last line: how many records came before it."""

    end: bool = True
    records: int


def head(gateway: str, exported_at: str) -> bytes:
    """The first line."""
    return msgspec.json.encode(_Head(FORMAT, VERSION, gateway, exported_at)) + b"\n"


def end(records: int) -> bytes:
    """The last line."""
    return msgspec.json.encode(End(records=records)) + b"\n"


def encode(record: Record) -> bytes:
    """A record's line."""
    headers = [(name, _content(value)) for name, value in record.headers]
    line = _Line(record.topic, _content(record.key), headers, _content(record.value), _sum(record))
    return msgspec.json.encode(line) + b"\n"


def decode_head(line: bytes) -> None:
    """Refuse a file that this program can't read. Raises BadLine."""
    found = _decoded(line, _Head)
    if found.format != FORMAT:
        raise BadLine("not a file of fieldgate outbox export")
    if found.v != VERSION:
        raise BadLine(f"version {found.v}; this program reads {VERSION}")


def decode(line: bytes) -> Record | End:
    """The record of a line, or the end. Raises BadLine."""
    if line.startswith(b'{"end"'):
        return _decoded(line, End)
    found = _decoded(line, _Line)
    headers = tuple((name, _bytes(value)) for name, value in found.headers)
    record = Record(found.topic, _bytes(found.key), _bytes(found.value), headers)
    if found.sum != _sum(record):
        raise BadLine("the checksum is wrong")
    return record


_Kind = TypeVar("_Kind", bound=msgspec.Struct)


def _decoded(line: bytes, kind: type[_Kind]) -> _Kind:
    try:
        return msgspec.json.decode(line, type=kind)
    except msgspec.ValidationError as error:
        raise BadLine(str(error)) from error
    except UNDECODABLE as error:
        raise BadLine(f"not JSON: {error}") from error


def _content(content: bytes) -> _Content:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return _Base64(content)


def _bytes(content: _Content) -> bytes:
    return content.base64 if isinstance(content, _Base64) else content.encode()


def _sum(record: Record) -> str:
    digest = blake2b(digest_size=8)
    pairs = (part for name, value in record.headers for part in (name.encode(), value))
    for part in (record.topic.encode(), record.key, *pairs, record.value):
        digest.update(part + len(part).to_bytes(8, "big"))
    return digest.hexdigest()
