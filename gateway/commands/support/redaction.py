"""Decides what of a config and of log lines may leave the machine: an allow-list. Pure.

Of the config, the values of named keys are shown, where they are numbers or plain text; all else is hidden,
whatever it is called. Of the daemon's log entries, named fields. In free text, quoted values, addresses with
a login and assignments are hidden. What the config hides is also hidden wherever it occurs again, as it is,
percent-encoded or in base64.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass
from typing import Any, Final, get_args
from urllib.parse import unquote, unquote_plus

from cloud.toml_models import keys_of
from cloud.toml_problems import KeyPath
from drivers.boards.registry import BOARDS
from drivers.registry import DRIVERS, driver_type
from gateway.config.model import ARRAYS, SECTIONS, SensorCommon
from gateway.config.named_files import is_reference
from gateway.config.values import SECRET

HIDDEN: Final = "(hidden)"

_HIDDEN_KEYS: Final[Mapping[str, frozenset[str]]] = {
    "kafka": frozenset({"properties"}),
    "uplink": frozenset({"reset_command"}),
    "site": frozenset({"name", "owner"}),
}
"""Hidden though their types make no secrets of them."""
_OWN_WORDS: Final = frozenset({"set", "where", "unless"})
"""Keys whose tables have fields of a device's messages."""
_NAME: Final = re.compile(r"[\w.-]{1,80}")
_QUOTED: Final = re.compile(r"""["']([^"'\n]+)["']""")
_POSITION: Final = frozenset({"latitude", "longitude"})
_PROPERTIES: Final = re.compile(
    r"(?!.*(?:password|secret|token))(?:[a-z]+\.)+"
    r"(?:ms|bytes|size|messages|level|type|codec|enable|location|protocol|mechanisms?|username|algorithm|id)"
)
"""librdkafka's properties that are shown, by their last words."""
_PLAIN: Final = re.compile(r"[\w .,:;/+#%°()\[\]{}*<>|~-]{0,200}")
"""No quotes, no ``@``, ``?``, ``&`` or ``=``: addresses with a login or a token are no plain text."""

_LOG_FIELDS: Final = (
    "event|sensors?|quantity|pin|address|action|reasons?|state|topic|run|boot|first|part|path|records|rows"
    "|messages|numbers|total|missed|outbox_records|offset_ms|[a-z_]+_s|minutes|failures|abandoned|threads"
    "|lost_edges|connections|filters|gateway|pid|module|package|kept_as|enabled|configured|listen|attempt"
    "|hours|remedy|error|problem|why"
)
"""The fields of the daemon's log entries that are shown."""
_FREE_TEXT: Final = frozenset({"message", "found", "error", "problem", "why"})

_LEAST_TEXT, _LEAST_NUMBER = 4, 6
"""Shorter ones are hidden at their place alone: elsewhere they are parts of other words."""
_IN_TEXT: Final = re.compile(
    rf"""(?P<key>\b(?!(?:{_LOG_FIELDS})=)[\w.-]+=)(?!["'])[^\s,;]+
      | "(?:[^"\\]|\\.)*(?:"|\Z)
      | (?<!\w)'(?:[^'\\]|\\.)*(?:'|\Z)
      | [^\s"'=]*://[^\s"']*[@?=][^\s"']*
      | (?i:\b(?:password|passwd|token|secret|api[-_]?key)\b\s*:\s*\S+)
      | (?i:\b(?:authorization|bearer|basic)\b).*""",
    re.VERBOSE | re.DOTALL,
)
"""Assignments to other fields, quoted values, addresses with a login or a token, HTTP's headers."""


def shown_config(raw: Mapping[str, Any], *, position: bool) -> tuple[dict[str, Any], set[str]]:
    """A config's values as they may be shown, and the texts of those that are hidden.

    ``position``: with the mast's coordinates.
    """
    hidden: set[str] = set()

    def show(value: Any, allowed: Callable[[KeyPath], bool], path: KeyPath = ()) -> Any:
        if isinstance(value, Mapping):
            within = _nothing if is_reference(value) else allowed
            return {_name(key): show(each, within, (*path, key)) for key, each in value.items()}
        if isinstance(value, list):
            return [show(each, allowed, path) for each in value]
        if allowed(path) and (not isinstance(value, str) or _PLAIN.fullmatch(value)):
            return value
        hidden.add(str(value))
        return HIDDEN

    def table(section: str, keys: Mapping[str, Any]) -> Any:
        known = _keys_of(section, keys) - (frozenset() if position else _POSITION)

        def allowed(path: KeyPath) -> bool:
            if (section, path[0]) == ("kafka", "properties"):
                return _PROPERTIES.fullmatch(".".join(map(str, path[1:]))) is not None
            return path[0] in known and not _OWN_WORDS.intersection(path)

        return show(keys, allowed)

    shown: dict[str, Any] = {}
    for section, content in raw.items():
        if isinstance(content, Mapping):
            shown[section] = table(section, content)
        elif isinstance(content, list) and all(isinstance(each, Mapping) for each in content):
            shown[section] = [table(section, each) for each in content]
        else:
            shown[section] = show(content, _nothing)
    return shown, hidden


def values_in(text: str) -> set[str]:
    """What may be a value in a file that can't be parsed: after each equals sign, and between quotes."""
    after = (line.partition("=")[2].strip().strip("\"'") for line in text.splitlines())
    return {each for each in (*after, *_QUOTED.findall(text)) if len(each) >= _LEAST_TEXT}


def _name(key: str) -> str:
    """A key; one that is no name may be a value in the wrong place."""
    return key if _NAME.fullmatch(key) else HIDDEN


def _nothing(_path: KeyPath) -> bool:
    return False


def _keys_of(section: str, table: Mapping[str, Any]) -> frozenset[str]:
    """The keys of a section that are shown; a plug-in's own options aren't among them."""
    if section == "sensor":
        driver = table.get("driver")
        options = driver_type(driver).options if isinstance(driver, str) and driver in DRIVERS else None
        own = () if options is None else _open_names(options)
        return frozenset((*_open_names(SensorCommon), "quality", *own))
    if section == "board":
        kind = table.get("kind", "raspberry-pi")
        return frozenset(("kind", *(_open_names(BOARDS[kind]) if kind in BOARDS else ())))
    kind = SECTIONS.get(section) or ARRAYS.get(section)
    return frozenset(_open_names(kind) if kind else ()) - _HIDDEN_KEYS.get(section, frozenset())


def _open_names(kind: type[Any]) -> tuple[str, ...]:
    return tuple(key.name for key in keys_of(kind) if not _has_secret(key.hint))


def _has_secret(hint: Any) -> bool:
    """Returns True if a type is a secret's, or has one within it."""
    if isinstance(hint, type) and is_dataclass(hint):
        return any(_has_secret(key.hint) for key in keys_of(hint))
    return hint is SECRET or any(map(_has_secret, get_args(hint)))


def shown_entry(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a journal entry as it may be shown: named fields of the daemon's own, the message of others."""
    shown = {name: str(entry[key]) for key, name in _ENTRY.items() if entry.get(key) is not None}
    fields = {
        name.removeprefix("FIELDGATE_").lower(): value
        for name, value in entry.items()
        if name.startswith("FIELDGATE_")
    }
    if not fields:
        # One that isn't text comes as bytes.
        message = entry.get("MESSAGE")
        text = message.decode(errors="replace") if isinstance(message, bytes) else str(message)
        return {**shown, "message": text}
    return {
        **shown,
        **{name: value if re.fullmatch(_LOG_FIELDS, name) else HIDDEN for name, value in fields.items()},
    }


_ENTRY: Final = {
    "__REALTIME_TIMESTAMP": "time", "PRIORITY": "priority", "_PID": "pid", "_SYSTEMD_UNIT": "unit",
    "THREAD_NAME": "thread", "CODE_FUNC": "function", "CODE_LINE": "line",
}  # fmt: skip


_WORD: Final = re.compile(r"""[^\s"']{6,}""")
_BASE64: Final = re.compile(r"[\w+/-]{6,}", re.ASCII)
"""Four bytes, the least of a text, take six characters."""


def _meanings(word: str) -> Iterator[str]:
    """What a word may stand for: percent-encoded up to twice, and in base64 within that."""
    plain = {word}
    if "%" in word or "+" in word:
        plain |= {unquote(word), unquote_plus(word), unquote(unquote(word))}
    for text in plain:
        yield text
        for run in _BASE64.findall(text):
            # It may begin behind other characters of the alphabet: slashes, or a word before a hyphen.
            for start in range(4):
                part = run[start : len(run) - ((len(run) - start) % 4 == 1)]
                yield b64decode(part + "=" * (-len(part) % 4), b"-_").decode(errors="replace")


class Redactor:
    """Hides given texts wherever they occur, and in free text what may be another secret."""

    def __init__(self, hidden: set[str]) -> None:
        # The longest first: one may begin with another.
        texts = {part.strip() for text in hidden for part in (text, *text.splitlines())}
        ordered = sorted(filter(_is_long, texts), key=len, reverse=True)
        self._hidden = re.compile("|".join(map(re.escape, ordered)) or r"(?!)")

    def known(self, text: str) -> str:
        """A text without the given ones, whole words where they are encoded."""
        return _WORD.sub(self._word, self._hidden.sub(HIDDEN, text))

    def _word(self, found: re.Match[str]) -> str:
        return HIDDEN if any(map(self._hidden.search, _meanings(found[0]))) else found[0]

    def text(self, text: str) -> str:
        """Free text without the given ones, quoted values, addresses with a login, and assignments."""
        if "-----BEGIN " in text:
            return HIDDEN
        return _IN_TEXT.sub(lambda match: f"{match['key'] or ''}{HIDDEN}", self.known(text))

    def value(self, value: Any, key: str = "") -> Any:
        """A JSON value; free texts are known by their keys."""
        if isinstance(value, str):
            return self.text(value) if key in _FREE_TEXT else self.known(value)
        if isinstance(value, Mapping):
            return {self.known(str(name)): self.value(each, str(name)) for name, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(each, key) for each in value]
        if isinstance(value, float | int) and self.known(str(value)) != str(value):
            return HIDDEN
        return value


def _is_long(text: str) -> bool:
    number = re.fullmatch(r"-?\d*", text) is not None
    return len(text) >= (_LEAST_NUMBER if number else _LEAST_TEXT) and text not in ("True", "False")
