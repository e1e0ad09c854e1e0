r"""Records as lines of JSON, to be carried home from a mast without signal. Pure.

The first line names format and version, the last one how many records there are: a file that was cut off
shows. Between them one record a line::

    {"topic": "mqtt.pressure", "key": "mast-07/baro.pressure", "headers": [["received-at", "…"]],
     "value": "{\"v\":1,…}", "sum": "9f0c…"}

Bytes are a string where they are UTF-8, else ``{"base64": "…"}``. ``sum`` is BLAKE2b (8 bytes, hex) over the
bytes of topic, key, the headers' names and values, and value, each ended by its length (8 bytes, big-endian).
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

from gateway.ports import Record

FORMAT: Final = "fieldgate-outbox"
VERSION: Final = 1
MAX_LINE_BYTES: Final = 8 << 20
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)


class BadLine(ValueError):
    """A line that is no record; the message says why."""


@dataclass(frozen=True, slots=True)
class End:
    """The last line: how many records came before it."""

    records: int


def head(gateway: str, exported_at: str) -> bytes:
    """The first line."""
    return _line({"format": FORMAT, "v": VERSION, "gateway": gateway, "exported_at": exported_at})


def end(records: int) -> bytes:
    """The last line."""
    return _line({"end": True, "records": records})


def encode(record: Record) -> bytes:
    """A record's line."""
    return _line(
        {
            "topic": record.topic,
            "key": _text(record.key),
            "headers": [[name, _text(value)] for name, value in record.headers],
            "value": _text(record.value),
            "sum": _sum(record),
        }
    )


def decode_head(line: bytes) -> None:
    """See that it is the first line of a file that we can read. Raises BadLine."""
    fields = _fields(line)
    if fields.get("format") != FORMAT:
        raise BadLine("not a file of fieldgate outbox export")
    if fields.get("v") != VERSION:
        raise BadLine(f"version {fields.get('v')!r}; this program reads {VERSION}")


def decode(line: bytes) -> Record | End:
    """The record of a line, or the end. Raises BadLine."""
    fields = _fields(line)
    if fields.get("end") is True:
        if type(fields.get("records")) is not int:
            raise BadLine("the last line has no count")
        return End(fields["records"])
    topic, headers = fields.get("topic"), fields.get("headers")
    if not isinstance(topic, str) or _TOPIC.fullmatch(topic) is None:
        raise BadLine("topic is not a topic's name")
    if not isinstance(headers, list):
        raise BadLine("headers must be a list")
    record = Record(topic, _bytes(fields, "key"), _bytes(fields, "value"), tuple(_headers(headers)))
    if fields.get("sum") != _sum(record):
        raise BadLine("the checksum is wrong")
    return record


def _headers(headers: list[Any]) -> Iterator[tuple[str, bytes]]:
    for header in headers:
        if not isinstance(header, list) or len(header) != 2:
            raise BadLine("a header is not a pair")
        name, value = header
        if not isinstance(name, str) or not name or not name.isascii() or not name.isprintable():
            raise BadLine("a header's name is no plain text")
        yield name, _bytes({name: value}, name)


def _line(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _fields(line: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadLine(f"not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise BadLine("not a JSON object")
    return fields


def _text(content: bytes) -> str | dict[str, str]:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}


def _bytes(fields: dict[str, Any], name: str) -> bytes:
    text = fields.get(name)
    try:
        if isinstance(text, str):
            return text.encode()
        if isinstance(text, dict) and isinstance(text.get("base64"), str):
            return base64.b64decode(text["base64"], validate=True)
    except (UnicodeEncodeError, binascii.Error, ValueError) as error:
        raise BadLine(f"{name}: {error}") from error
    raise BadLine(f"{name} is neither a string nor base64")


def _sum(record: Record) -> str:
    digest = blake2b(digest_size=8)
    pairs = (part for name, value in record.headers for part in (name.encode(), value))
    for part in (record.topic.encode(), record.key, *pairs, record.value):
        digest.update(part + len(part).to_bytes(8, "big"))
    return digest.hexdigest()
