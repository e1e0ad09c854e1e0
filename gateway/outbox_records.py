"""How a Kafka record is laid down in the outbox, which knows bytes only.

Layout: length of the head (4 bytes, big-endian), head (JSON: topic, key, headers), value.
"""

from __future__ import annotations

import json
import struct
from typing import Final

from gateway.ports import Record

_HEAD: Final = struct.Struct(">I")


def to_bytes(record: Record) -> bytes:
    """The bytes of a record."""
    head = json.dumps(
        [record.topic, record.key.hex(), [[name, value.hex()] for name, value in record.headers]],
        separators=(",", ":"),
    ).encode()
    return _HEAD.pack(len(head)) + head + record.value


def from_bytes(stored: bytes) -> Record:
    """The record in stored bytes. Raises ValueError where they are not one."""
    try:
        (length,) = _HEAD.unpack_from(stored)
        topic, key, headers = json.loads(stored[_HEAD.size : _HEAD.size + length])
        if not all(isinstance(text, str) and text and text.isascii() for text in (topic, *dict(headers))):
            # librdkafka would end the process over some of these.
            raise ValueError("not a stored record: its topic or a header's name is no plain text")
        return Record(
            topic=topic,
            key=bytes.fromhex(key),
            value=stored[_HEAD.size + length :],
            headers=tuple((name, bytes.fromhex(value)) for name, value in headers),
        )
    except (struct.error, TypeError, RecursionError) as error:
        raise ValueError(f"not a stored record: {error}") from error
