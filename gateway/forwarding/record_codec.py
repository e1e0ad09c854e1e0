"""The layout of a Kafka record in the outbox, which stores bytes.

Length of the head (4 bytes, big-endian), head (JSON: topic, key, headers), value.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from cloud.wire.fields import UNDECODABLE
from gateway.ports import Record

_LENGTH: Final = struct.Struct(">I")
_HEAD: Final = msgspec.json.Decoder(tuple[str, str, list[tuple[str, str]]])


def to_bytes(record: Record) -> bytes:
    """The bytes of a record."""
    headers = [(name, value.hex()) for name, value in record.headers]
    head = msgspec.json.encode((record.topic, record.key.hex(), headers))
    return _LENGTH.pack(len(head)) + head + record.value


def from_bytes(stored: bytes) -> Record:
    """The record in stored bytes. Raises ValueError where they are not one."""
    try:
        (length,) = _LENGTH.unpack_from(stored)
        end = _LENGTH.size + length
        topic, key, coded = _HEAD.decode(stored[_LENGTH.size : end])
        headers = tuple([(_plain(name), bytes.fromhex(value)) for name, value in coded])
        return Record(_plain(topic), bytes.fromhex(key), stored[end:], headers)
    except (struct.error, *UNDECODABLE) as error:
        raise ValueError(f"not a stored record: {error}") from error


def _plain(text: str) -> str:
    """A topic or a header's name: librdkafka would end the process over some others."""
    if text and text.isascii():
        return text
    raise ValueError("not a stored record: its topic or a header's name is no plain text")
