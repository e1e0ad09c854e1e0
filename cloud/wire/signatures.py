"""Records that are signed one by one: HMAC-SHA256 by a key of their gateway, in the last header, ``mac``.

It is over topic, key, value and all headers before it, as they are at Kafka: any other record, and one that
is changed, has another. What is hashed of a value is its SHA-256, so that payloads of any size are verified
where they are.

Pure: no I/O, no clock.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from functools import lru_cache
from hashlib import sha256
from typing import Final, NamedTuple

MAC_HEADER: Final = "mac"

_BYTES: Final = 16
_PURPOSE: Final = b"fieldgate signs records"
"""Runs prove themselves by HMACs of texts with a ``|``, so neither is of any use as the other."""

Headers = Iterable[tuple[str, bytes]]


@lru_cache(4096)
def signing_key(key: str) -> bytes:
    """What a gateway's records are signed with, derived from its key (64 hexadecimal digits)."""
    return hmac.digest(bytes.fromhex(key), _PURPOSE, "sha256")


class Signature(NamedTuple):
    """What came in a record's ``mac``, and what that must be of."""

    mac: bytes
    signed: bytes

    def is_by(self, key: str) -> bool:
        """Whether it was made with this key of a gateway."""
        return hmac.compare_digest(_mac(signing_key(key), self.signed), self.mac)


def sign(key: bytes, topic: str, record_key: bytes, value: bytes, headers: Headers) -> bytes:
    """The ``mac`` of a record, by a ``signing_key``."""
    return _mac(key, _signed(topic, record_key, sha256(value).digest(), headers))


def signature(
    topic: str, key: bytes | None, digest: bytes | None, headers: Iterable[tuple[str, bytes | None]] | None
) -> Signature | None:
    """A record's signature, None where it has none; ``digest`` is the SHA-256 of its value."""
    *others, (name, mac) = headers or (("", None),)
    if name != MAC_HEADER or mac is None or key is None or digest is None:
        return None
    named = [(name, value) for name, value in others if value is not None]
    return None if len(named) != len(others) else Signature(mac, _signed(topic, key, digest, named))


def _mac(key: bytes, signed: bytes) -> bytes:
    return hmac.digest(key, signed, "sha256")[:_BYTES]


def _signed(topic: str, key: bytes, digest: bytes, headers: Headers) -> bytes:
    """Each part after its length, so that no two records make the same."""
    parts = [topic.encode(), key, digest]
    for name, value in headers:
        parts += name.encode(), value
    return b"".join([b"%d:%b" % (len(part), part) for part in parts])
