"""Passwords as the config has them: scrypt's hash (RFC 7914), which does not give them away."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from base64 import b64decode, b64encode
from typing import Final

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
