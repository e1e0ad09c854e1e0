"""The layout of a Kafka record in the outbox, which stores bytes.

Length of the head (4 bytes, big-endian), head (JSON: topic, key, headers), value.
"""

from __future__ import annotations

import struct
from typing import Annotated, Final

import msgspec

from cloud.wire.fields import UNDECODABLE
from gateway.ports import Record

_LENGTH: Final = struct.Struct(">I")
_Text = Annotated[str, msgspec.Meta(min_length=1)]
_HEAD: Final = msgspec.json.Decoder(tuple[_Text, str, list[tuple[_Text, str]]])
_bytes: Final = bytes.fromhex


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
        head = stored[_LENGTH.size : end]
        topic, key, coded = _HEAD.decode(head)
        # librdkafka would end the process over some other topics and names of headers.
        if not head.isascii() or (b"\\" in head and not _plain(topic, coded)):
            raise ValueError("its topic or a header's name is no plain text")
        headers = tuple([(name, _bytes(value)) for name, value in coded])
        return Record(topic, _bytes(key), stored[end:], headers)
    except (struct.error, *UNDECODABLE) as error:
        raise ValueError(f"not a stored record: {error}") from error


def _plain(topic: str, headers: list[tuple[str, str]]) -> bool:
    """Whether escaped characters, too, are ASCII."""
    return topic.isascii() and all(name.isascii() for name, _ in headers)
