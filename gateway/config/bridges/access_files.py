"""The tokens of ``[http]``, and the users of ``[mqtt_proxy]`` in files of Mosquitto's form."""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cloud.wire.reading_records import GATEWAY_ID
from gateway.config.values import topic_filter

_DIGEST: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)


def read_tokens(path: Path) -> dict[bytes, str]:
    """Each device by its token's SHA-256. Raises OSError; ValueError, with the line that is wrong."""
    devices: dict[bytes, str] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) != 2 or GATEWAY_ID.fullmatch(words[0]) is None or _DIGEST.fullmatch(words[1]) is None:
            raise ValueError(
                f"{path}:{number}: must be a device's id (a-z, 0-9, -) and its token's SHA-256 in hex"
            )
        devices[bytes.fromhex(words[1])] = words[0]
    return devices


_MOST_ROUNDS = 20_000
"""The bound of a stored password: its check holds up the others' messages."""


@dataclass(frozen=True, slots=True)
class StoredPassword:
    """What a password file has of a password. ``rounds`` of PBKDF2; None: hashed once."""

    salt: bytes
    digest: bytes
    rounds: int | None

    def matches(self, password: bytes) -> bool:
        """Whether it is that of a password; how long it takes reveals nothing else."""
        if self.rounds is None:
            found = hashlib.sha512(password + self.salt).digest()
        else:
            found = hashlib.pbkdf2_hmac("sha512", password, self.salt, self.rounds, len(self.digest))
        return hmac.compare_digest(found, self.digest)


def read_users(path: Path) -> dict[str, StoredPassword]:
    """Each user's password, as mosquitto_passwd has stored it. Raises OSError; ValueError with the line."""
    users = {}
    for number, line in _lines(path):
        name, _, stored = line.partition(":")
        try:
            _, kind, *rounds, salt, digest = stored.split("$")
            if not name or (kind, len(rounds)) not in (("6", 0), ("7", 1)):
                raise ValueError
            if rounds and not 1 <= int(rounds[0]) <= _MOST_ROUNDS:
                raise ValueError
            users[name] = StoredPassword(
                b64decode(salt, validate=True),
                b64decode(digest, validate=True),
                int(rounds[0]) if rounds else None,
            )
        except ValueError:
            raise ValueError(
                f"{path}:{number}: must be NAME:$7$…, a line of mosquitto_passwd (2.0)"
            ) from None
    return users


def read_access(path: Path) -> dict[str, tuple[str, ...]]:
    """The filters of each user, as far as they may be published to. Raises OSError; ValueError with the line.

    Of an acl_file: ``user NAME``, then ``topic [read|write|readwrite] FILTER`` for each.
    """
    access: dict[str, tuple[str, ...]] = {}
    user: str | None = None
    for number, line in _lines(path):
        word, _, rest = line.partition(" ")
        rest = rest.strip()
        if word == "user" and rest:
            user = rest
            access.setdefault(user, ())
        elif word == "topic" and rest and user is not None:
            kind, _, text = rest.partition(" ")
            if kind not in ("read", "write", "readwrite"):
                kind, text = "readwrite", rest
            try:
                text = topic_filter(text.strip())
            except ValueError as error:
                raise ValueError(f"{path}:{number}: topic filter {text.strip()!r}: {error}") from error
            if kind != "read":
                access[user] = (*access[user], text)
        else:
            raise ValueError(f"{path}:{number}: must be `user NAME`, or below one `topic write FILTER`")
    return access


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            yield number, line.strip()
