"""How single values are written in the file: names, sizes, addresses, topics, paths.

Each function gives the value, or raises WrongValue with what is wrong; ``model.py`` names them in its
annotations, so that they are checked with types and bounds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date
from itertools import zip_longest
from typing import Annotated, Any, Final

from annotated_types import Le
from pydantic import AfterValidator, BeforeValidator, ValidationInfo, WithJsonSchema

from cloud.wire.reading_records import UNITS
from gateway.config.problems import nearest, quote

_GATEWAY_ID: Final = re.compile(r"[a-z0-9-]{1,63}", re.ASCII)
_SENSOR_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]*", re.ASCII)
SHORTEST_TOKEN: Final = 16
"""Characters of a status page's token."""
_LONGEST_PATH: Final = 256
_YEARS: Final = range(1950, 2101)
_SIZE: Final = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)\s*([A-Za-z]*)", re.ASCII)
_UNITS: Final = {
    "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
}  # fmt: skip
_FACTORS: Final = {"": 1, **{unit.lower(): factor for unit, factor in _UNITS.items()}}
_PLACEHOLDER: Final = re.compile(r"\{[^}]*\}?")
_KAFKA_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)
_LONGEST_TOPIC_BYTES: Final = 65_535


class WrongValue(ValueError):
    """A value that can't be meant; ``suggestion`` is one that may be."""

    def __init__(self, message: str, suggestion: str | None = None) -> None:
        self.suggestion = suggestion
        super().__init__(message)


LENIENT: Final = "lenient"
"""The validation context in which a wrong value passes, to find what else is wrong with its table."""


def checked(check: Callable[[Any], Any]) -> AfterValidator:
    """For an annotation: a check of a value that has the right type."""

    def after(value: Any, info: ValidationInfo) -> Any:
        return value if info.context == LENIENT else check(value)

    return AfterValidator(after)


def read_by(read: Callable[[Any], Any]) -> BeforeValidator:
    """For an annotation: how the value in the file becomes one of the right type."""

    def before(value: Any, info: ValidationInfo) -> Any:
        try:
            return read(value)
        except WrongValue:
            if info.context != LENIENT:
                raise
            return None

    return BeforeValidator(before)


def gateway_id(name: str) -> str:
    """A gateway's id."""
    if _GATEWAY_ID.fullmatch(name) is None:
        like = re.sub(r"[^a-z0-9]+", "-", name.strip().lower()).strip("-")
        message = f"must be 1 to 63 small letters, digits and hyphens, not {quote(name)}"
        raise WrongValue(message, like if _GATEWAY_ID.fullmatch(like) else None)
    return name


def sensor_name(name: str) -> str:
    """A sensor's name."""
    if _SENSOR_NAME.fullmatch(name) is None:
        like = re.sub(r"[^A-Za-z0-9_]+", "-", name.strip()).strip("-")
        message = f"must be 1 to 64 letters, digits, underscores and hyphens, not {quote(name)}"
        raise WrongValue(message, like if _SENSOR_NAME.fullmatch(like) else None)
    return name


def not_empty(text: Any) -> Any:
    """A text with something in it."""
    if text == "":
        raise WrongValue("must not be empty")
    return text


def label(text: str) -> str:
    """A text that can be printed on one line."""
    if not (text.strip() and len(text) <= 128 and text.isprintable()):
        raise WrongValue("must be 1 to 128 printable characters")
    return text


def unit(text: str) -> str:
    """A unit's name."""
    if not (0 < len(text) <= 64 and text.isprintable()):
        raise WrongValue("must be 1 to 64 printable characters")
    return text


def day(given: date) -> date:
    """A date in an instrument's life."""
    if given.year not in _YEARS:
        raise WrongValue(f"must be from 1950 to 2100, not {given}")
    return given


def whole_milliseconds(seconds: float) -> float:
    """Seconds that are whole milliseconds: a reading has its period in these."""
    if abs(seconds * 1000 - round(seconds * 1000)) > 1e-6:
        raise WrongValue(f"must be whole milliseconds, not {seconds}")
    return seconds


def not_zero(scale: float) -> float:
    """A factor."""
    if scale == 0:
        raise WrongValue("must not be 0: every value would be the offset")
    return scale


def ends(given: Any) -> Any:
    """A lower and an upper end."""
    numbers = isinstance(given, list) and len(given) == 2
    if not numbers or any(isinstance(end, bool) or not isinstance(end, int | float) for end in given):
        raise WrongValue(f"must be [lower, upper], not {quote(given)}")
    return tuple(given)


def size(given: Any) -> Any:
    """Bytes of a size such as "512MiB", "1.5 GB" or "4096"."""
    if not isinstance(given, str):
        return given
    match = _SIZE.fullmatch(given.strip())
    factor = _FACTORS.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise WrongValue(
            f'must be a size such as "512MiB" or "1GiB" ({", ".join(_UNITS)}), not {quote(given)}'
        )
    return round(float(match[1]) * factor)


def listen(text: str) -> str:
    """A listening address, or empty for none."""
    if text:
        host_and_port(text)
    return text


def host_and_port(text: str) -> tuple[str, int]:
    """Host and port of "127.0.0.1:8321" or "[::1]:8321"; port 0 is any free one."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise WrongValue('an IPv6 address needs brackets, as in "[::1]:8321"')
    if not colon or not host or not _is_port(port):
        raise WrongValue('must be "host:port", such as "127.0.0.1:8321", or empty for no status page')
    return host, int(port)


def token(text: str) -> str:
    """A status page's token."""
    if len(text) < SHORTEST_TOKEN or not _TOKEN.fullmatch(text):
        raise WrongValue(
            f"must have at least {SHORTEST_TOKEN} characters, letters, digits, - and _ only: "
            "openssl rand -hex 16 makes one"
        )
    return text


def servers(text: str) -> str:
    """A comma-separated list of ``host:port``."""
    for server in map(str.strip, text.split(",")):
        host, colon, port = server.rpartition(":")
        if not server:
            raise WrongValue("must not be empty, nor have a comma too many")
        if "://" in server:
            raise WrongValue(f"must not have a scheme: write {quote(server.partition('://')[2].rstrip('/'))}")
        spaces = any(char.isspace() for char in server)
        if not colon and not spaces:
            raise WrongValue(f"needs a port: write {quote(f'{server}:9092')}")
        bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        if not bare or spaces or not _is_port(port) or int(port) == 0:
            raise WrongValue('must be "host:port", or several separated by commas')
    return text


def kafka_topic(topic: str) -> str:
    """A topic's name, in which {quantity} stands for each quantity."""
    for placeholder in _PLACEHOLDER.findall(topic):
        if placeholder != "{quantity}":
            raise WrongValue(f"knows {{quantity}} only, not {placeholder}")
    bare = topic.replace("{quantity}", "q")
    if _KAFKA_TOPIC.fullmatch(bare) is None or bare in (".", ".."):
        raise WrongValue("must be 1 to 249 letters, digits, dots, underscores and hyphens")
    return topic


def kafka_format(given: Any) -> Any:
    """How readings are written."""
    if given == "avro":
        raise WrongValue('"avro" comes with a later version; this one knows "json"')
    return given


def quantity(name: str) -> str:
    """A quantity of the wire contract."""
    if name not in UNITS:
        message = f"{quote(name)} is no quantity; there are {', '.join(UNITS)}"
        raise WrongValue(message, nearest(name, UNITS))
    return name


def json_path(path: str) -> str:
    """Where a number stands in a JSON text."""
    if "" in path.split(".") or len(path) > _LONGEST_PATH:
        raise WrongValue(
            f'must be keys and positions with dots between, as in "values.0.t", not {quote(path)}'
        )
    return path


def topic_root(root: str) -> str:
    """The first levels of MQTT topics."""
    _topic(root)
    if "+" in root or "#" in root:
        raise WrongValue(
            'must not have the wildcards "+" and "#": it is where topics begin, such as "fieldgate"'
        )
    if root.startswith("$"):
        raise WrongValue('must not begin with "$": such topics are the broker\'s own')
    if "" in root.split("/"):
        raise WrongValue("must not begin or end with a slash, nor have an empty level")
    return root


def topic_filter(text: str) -> str:
    """An MQTT topic filter (MQTT 5, section 4.7)."""
    _topic(text)
    if text.startswith("$share/"):
        raise WrongValue("shared subscriptions ($share) aren't supported: give the filter alone")
    levels = text.split("/")
    for depth, level in enumerate(levels):
        if "#" in level and (level != "#" or depth != len(levels) - 1):
            raise WrongValue('"#" must stand alone at the end, after a "/"')
        if "+" in level and level != "+":
            raise WrongValue('"+" must stand alone between slashes')
    return text


def overlap(one: str, other: str) -> bool:
    """True where some topic matches both filters."""
    ones, others = one.split("/"), other.split("/")
    # A wildcard in the first level doesn't match the broker's own topics.
    if (ones[0].startswith("$") and others[0] in ("+", "#")) or (
        others[0].startswith("$") and ones[0] in ("+", "#")
    ):
        return False
    for left, right in zip_longest(ones, others):
        # "#" also matches its parent level, so it may stand beside nothing.
        if left == "#" or right == "#":
            return True
        if left is None or right is None:
            return False
        if left != right and left != "+" and right != "+":
            return False
    return True


def wildcards(text: str) -> int:
    """How many wildcards a topic filter has."""
    return sum(level in ("+", "#") for level in text.split("/"))


def _topic(text: str) -> None:
    if not text:
        raise WrongValue("must not be empty")
    if "\0" in text:
        raise WrongValue("must not contain a null character")
    if len(text.encode()) > _LONGEST_TOPIC_BYTES:
        raise WrongValue(f"must be at most {_LONGEST_TOPIC_BYTES} bytes")


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= 65535


GatewayId = Annotated[
    str, checked(gateway_id), WithJsonSchema({"type": "string", "pattern": "^[a-z0-9-]{1,63}$"})
]
SensorName = Annotated[
    str, checked(sensor_name), WithJsonSchema({"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"})
]
NotEmpty = Annotated[str, checked(not_empty)]
Label = Annotated[str, checked(label)]
Unit = Annotated[str, checked(unit)]
Day = Annotated[date, checked(day)]
TopicRoot = Annotated[str, checked(topic_root)]
JsonPath = Annotated[str, checked(json_path)]
_INTEGER: Final = {"type": "integer", "minimum": 0}
_SIZE_TEXT: Final = {
    "type": "string",
    "pattern": r"^\s*\d{1,15}(\.\d{1,9})?\s*([kKmMgGtT][iI]?)?[bB]?\s*$",
}
Bytes = Annotated[int, Le(1 << 50), read_by(size), WithJsonSchema({"anyOf": [_INTEGER, _SIZE_TEXT]})]
_REFERENCE: Final = {
    "type": "object",
    "properties": {
        "credential": {"type": "string", "description": "its name in LoadCredential= of the service"},
        "file": {"type": "string", "description": "the file that holds it"},
    },
    "minProperties": 1,
    "maxProperties": 1,
    "additionalProperties": False,
}
Secret = Annotated[str, WithJsonSchema({"anyOf": [{"type": "string"}, _REFERENCE]})]
"""In the file a secret may be named; ``secrets.py`` reads it before the section is validated."""
_TOKEN_TEXT: Final = {"type": "string", "pattern": f"^[A-Za-z0-9_-]{{{SHORTEST_TOKEN},}}$"}
Token = Annotated[str, checked(token), WithJsonSchema({"anyOf": [_TOKEN_TEXT, _REFERENCE]})]
_PROPERTY: Final = [
    {"type": ["string", "number", "boolean"]},
    {"type": "object", "description": "a dotted key; or { credential = … } or { file = … }"},
]
Properties = Annotated[
    Mapping[str, str], WithJsonSchema({"type": "object", "additionalProperties": {"anyOf": _PROPERTY}})
]
"""librdkafka's properties, which ``kafka.py`` flattens before the section is validated."""
