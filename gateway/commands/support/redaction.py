"""Takes secrets out of a config and of everything else that is about to leave the machine. Pure.

Two nets. By structure: in the config what stands under a secret's key is replaced, and under a key that
nobody knows (a password's misspelt name) too; comments are left out as a whole. By value: each secret found
that way, or in a file or credential that the config names, is replaced wherever else it occurs, as it is and
in the usual encodings; so are user and password of URLs, private keys, and what follows ``password=``.
"""

from __future__ import annotations

import base64
import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, quote_plus

from gateway.config.secrets import is_reference

HIDDEN: Final = "[redacted]"
PLACE: Final = "[position left out]"

_SECRET_KEY: Final = re.compile(
    r"pass|pas+w|pwd|secret|token|credential|private|jaas|oauth|\.pem$|api.?key|(?:^|[._-])auth(?:$|[._-])",
    re.IGNORECASE,
)
_POSITION_KEYS: Final = frozenset({"latitude", "longitude"})
_PLAIN_PROPERTIES: Final = frozenset(
    {
        "security.protocol",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.username",
        "ssl.endpoint.identification.algorithm",
    }
)
"""librdkafka's properties beside numbers, switches and paths of files that are shown."""
_LOCATION: Final = re.compile(r"[a-z.]+\.location")
_HARMLESS: Final = re.compile(r"-?[0-9.]+|true|false|[a-z]{1,12}", re.ASCII)
"""Figures, switches and plain words of properties that carry no secret."""

_USER_INFO: Final = re.compile(r"(?<=://)[^/ \t\r\n@\"']*(?:@[^/ \t\r\n@\"']*)*@(?=[^ \t\r\n@/])")
_CUT_USER_INFO: Final = re.compile(r"(?<=://)[^/ \t\r\n@\"']*:[^/ \t\r\n@\"']*?(?=\.\.\.)")
"""Our own messages quote a value's first 57 characters."""
_PEM: Final = re.compile(r"-----BEGIN [A-Z ]+-----.*?(?:-----END [A-Z ]+-----|\Z)", re.DOTALL)
_ASSIGNED: Final = re.compile(
    r"((?:passw(?:or)?d|passphrase|secret|token|jaas\.config|api[_-]?key)[\w.-]{0,64}[\"']?\s{0,8}[=:]\s{0,8})"
    r"(\"(?:[^\"\\]|\\.)*\"|'[^']*'|[^\s,;&]+)",
    re.IGNORECASE,
)
_AUTHORIZATION: Final = re.compile(r"((?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{6,}", re.IGNORECASE)
_ANYWHERE: Final = 4
"""Secrets as short as three characters are replaced as whole words only: else half of the text would go."""
_LEAST_UNKNOWN: Final = 6
_LINE: Final = re.compile(r"^[ \t]*#?[ \t]*([\w.\"' \t-]+?)[ \t]*=[ \t]*(.+?)[ \t]*\r?$", re.MULTILINE)
_FREE_KEYS: Final = frozenset({"columns", "accuracy", "range", "quality"})
"""Tables whose keys are names of sensors, channels or quantities."""


@dataclass(slots=True)
class Found:
    """Values that must not leave: ``secrets`` by their text, ``places`` the mast's coordinates."""

    secrets: set[str] = field(default_factory=set)
    places: set[str] = field(default_factory=set)


def config_without_secrets(
    raw: Mapping[str, Any], known: Iterable[str], found: Found, *, position: bool
) -> dict[str, Any]:
    """A config's values without its secrets, which are noted in ``found``.

    ``known`` are all the names that keys of a config may have; ``position`` keeps the coordinates.
    """
    names = frozenset(known)
    return {key: _value((key,), each, names, found, position=position) for key, each in raw.items()}


def _value(path: tuple[str, ...], value: Any, known: frozenset[str], found: Found, *, position: bool) -> Any:
    name, in_properties = path[-1], path[:2] == ("kafka", "properties") and len(path) > 2
    dotted = ".".join(path[2:]) if in_properties else name
    if is_reference(value) and all(isinstance(each, str) for each in value.values()):
        # It names the secret, and isn't it.
        return dict(value)
    if _SECRET_KEY.search(dotted):
        note(value, found)
        return HIDDEN
    if name in _POSITION_KEYS and not isinstance(value, Mapping | list):
        if not position:
            found.places.add(str(value))
            return PLACE
        return value
    if not in_properties and name not in known and not _FREE_KEYS.intersection(path[:-1]):
        note(value, found, _LEAST_UNKNOWN)
        return f"{HIDDEN}: not a known key"
    if isinstance(value, Mapping):
        return {
            key: _value((*path, key), each, known, found, position=position) for key, each in value.items()
        }
    if isinstance(value, list):
        return [_value((*path[:-1], name), each, known, found, position=position) for each in value]
    if in_properties and not _shown_property(dotted, str(value)):
        return HIDDEN
    return _without_user_info(value, found) if isinstance(value, str) else value


def _shown_property(name: str, value: str) -> bool:
    return (
        name in _PLAIN_PROPERTIES
        or _LOCATION.fullmatch(name) is not None
        or _HARMLESS.fullmatch(value) is not None
    )


def note_from_text(text: str, found: Found) -> None:
    """Note the values of secrets' keys line by line: of what is no TOML, and of what is commented out."""
    for key, written in _LINE.findall(text):
        if not _SECRET_KEY.search(key.strip("\"' \t")):
            continue
        try:
            value = tomllib.loads(f"value = {written}")["value"]
        except ValueError:
            value = None
        if not is_reference(value):
            note(written.strip("\"' "), found)
            note(value or "", found)


def note(value: Any, found: Found, least: int = 1) -> None:
    """Remember a value, or all within it, as secrets of at least so many characters."""
    if isinstance(value, Mapping):
        for each in value.values():
            note(each, found, least)
    elif isinstance(value, list):
        for each in value:
            note(each, found, least)
    elif not isinstance(value, bool) and len(str(value).strip()) >= least:
        found.secrets.add(str(value))


def _without_user_info(text: str, found: Found) -> str:
    for user_info in _USER_INFO.findall(text):
        user, colon, password = user_info.removesuffix("@").partition(":")
        if colon and password:
            found.secrets.add(password)
        elif user:
            found.secrets.add(user)
    return _USER_INFO.sub(f"{HIDDEN}@", text)


class Redactor:
    """Replaces what was found, wherever it occurs."""

    def __init__(self, found: Found) -> None:
        long = {form for secret in found.secrets if len(secret) >= _ANYWHERE for form in _forms(secret)}
        short = {secret for secret in found.secrets if secret.strip() and len(secret) < _ANYWHERE}
        places = {place for place in found.places if len(place) >= _ANYWHERE}
        # The longest first: one secret may begin with another.
        self._anywhere = _any_of(long)
        self._forms = long
        self._words = _any_of(short, whole_words=True)
        self._places = _any_of(places, whole_words=True)

    def text(self, text: str) -> str:
        """A text without them."""
        if self._anywhere is not None:
            text = self._anywhere.sub(HIDDEN, text)
        text = _CUT_USER_INFO.sub(HIDDEN, self._without_beginnings(text))
        if self._words is not None:
            text = self._words.sub(HIDDEN, text)
        if self._places is not None:
            text = self._places.sub(PLACE, text)
        text = _PEM.sub(HIDDEN, text)
        text = _USER_INFO.sub(f"{HIDDEN}@", text)
        text = _AUTHORIZATION.sub(rf"\1{HIDDEN}", text)
        return _ASSIGNED.sub(lambda match: f"{match[1]}{HIDDEN}", text)

    def _without_beginnings(self, text: str) -> str:
        """Without secrets that were cut: their beginning, and "..." behind it."""
        pieces = text.split("...")
        for place, piece in enumerate(pieces[:-1]):
            for form in self._forms:
                kept = next(
                    (
                        n
                        for n in range(min(len(form), len(piece)), _ANYWHERE - 1, -1)
                        if piece.endswith(form[:n])
                    ),
                    None,
                )
                if kept is not None:
                    pieces[place] = piece = piece[:-kept] + HIDDEN
        return "...".join(pieces)

    def value(self, value: Any) -> Any:
        """A JSON value without them, in keys and values; before it is encoded, which would change them."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(key)): self._of_key(str(key), each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(each) for each in value]
        if isinstance(value, int | float) and not isinstance(value, bool):
            shown = self.text(str(value))
            return value if shown == str(value) else shown
        return value

    def _of_key(self, key: str, value: Any) -> Any:
        secret = _SECRET_KEY.search(key) is not None and isinstance(value, str)
        return HIDDEN if secret else self.value(value)


def _any_of(texts: Iterable[str], *, whole_words: bool = False) -> re.Pattern[str] | None:
    ordered = sorted((re.escape(text) for text in texts), key=len, reverse=True)
    if not ordered:
        return None
    inside = "|".join(ordered)
    return re.compile(rf"(?<![\w.])(?:{inside})(?![\w.])" if whole_words else inside)


def _forms(secret: str) -> set[str]:
    """A secret as it is, and as texts, JSON, TOML, URLs and HTTP's headers spell it."""
    bare = secret.strip()
    forms = {secret, bare}
    for each in (secret, bare):
        content = each.encode(errors="surrogatepass")
        forms |= {
            json.dumps(each)[1:-1],
            json.dumps(each, ensure_ascii=False)[1:-1],
            "".join(
                c if c.isprintable() else f"\\u{ord(c):04x}" for c in json.dumps(each, ensure_ascii=False)
            )[1:-1],
            repr(each)[1:-1],
            quote(content, safe=""),
            quote(content),
            quote_plus(content),
            base64.b64encode(content).decode(),
            base64.urlsafe_b64encode(content).decode(),
            *(line for line in each.splitlines() if len(line.strip()) >= _ANYWHERE),
        }
    return {form for form in forms if len(form) >= _ANYWHERE}
