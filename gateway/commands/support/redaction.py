"""What of a config and of log lines may leave the machine: an allow-list. Pure.

Of the config, the values of named keys are shown, where they are numbers or plain text; all else is hidden,
whatever it is called. Of the daemon's log entries, named fields. In free text, quoted values, addresses with
a login and assignments are hidden. What the config hides is also hidden wherever it occurs again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from cloud.toml_problems import KeyPath
from drivers.boards.registry import BOARDS
from drivers.registry import DRIVERS, driver_type
from gateway.config.bridges.model import DownlinkConfig, ForwardConfig
from gateway.config.keys import field_names
from gateway.config.model import SECTIONS, SensorCommon
from gateway.config.outputs.model import ActuatorConfig, InterlockConfig
from gateway.config.quantities import QuantityConfig
from gateway.config.secrets import is_reference

HIDDEN: Final = "(hidden)"

_HIDDEN_KEYS: Final[Mapping[str, frozenset[str]]] = {
    "gateway": frozenset({"identity_key"}),
    "mqtt": frozenset({"password"}),
    "kafka": frozenset({"properties"}),
    "uplink": frozenset({"reset_command"}),
    "status": frozenset({"token"}),
    "site": frozenset({"name", "owner"}),
}
_TABLES: Final[Mapping[str, type[Any]]] = {
    "forward": ForwardConfig,
    "downlink": DownlinkConfig,
    "quantity": QuantityConfig,
    "actuator": ActuatorConfig,
    "interlock": InterlockConfig,
}
_POSITION: Final = frozenset({"latitude", "longitude"})
_PROPERTIES: Final = re.compile(
    r"(?:[a-z]+\.)+"
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
            return {key: show(each, within, (*path, key)) for key, each in value.items()}
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
            return path[0] in known

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


def _nothing(_path: KeyPath) -> bool:
    return False


def _keys_of(section: str, table: Mapping[str, Any]) -> frozenset[str]:
    """The keys of a section that are shown; a plug-in's own options aren't among them."""
    if section == "sensor":
        driver = table.get("driver")
        options = driver_type(driver).options if isinstance(driver, str) and driver in DRIVERS else None
        own = () if options is None else field_names(options)
        return frozenset((*field_names(SensorCommon), "quality", *own))
    if section == "board":
        kind = table.get("kind", "raspberry-pi")
        return frozenset(("kind", *(field_names(BOARDS[kind]) if kind in BOARDS else ())))
    if section in _TABLES:
        return frozenset(field_names(_TABLES[section]))
    if section not in SECTIONS:
        return frozenset()
    return frozenset(field_names(SECTIONS[section])) - _HIDDEN_KEYS.get(section, frozenset())


def shown_entry(entry: Mapping[str, Any]) -> dict[str, Any]:
    """A journal entry: of the daemon's own its named fields, of others their message."""
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


class Redactor:
    """Hides given texts wherever they occur, and in free text what may be another secret."""

    def __init__(self, hidden: set[str]) -> None:
        # The longest first: one may begin with another.
        texts = {part.strip() for text in hidden for part in (text, *text.splitlines())}
        ordered = sorted(filter(_is_long, texts), key=len, reverse=True)
        self._hidden = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def known(self, text: str) -> str:
        """A text without the given ones."""
        return text if self._hidden is None else self._hidden.sub(HIDDEN, text)

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
