"""How single values are written in the file: names, sizes, addresses, topics, paths.

Each function gives the value, or raises WrongValue with what is wrong; ``model.py`` names them in its
annotations, so that they are checked with types and bounds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, Final, cast

from annotated_types import Le
from pydantic import AfterValidator, Discriminator, Tag, ValidationInfo, WithJsonSchema

from cloud import toml_models
from cloud.toml_models import Key, checked, read_by
from cloud.toml_problems import WrongValue, nearest, quote
from cloud.values import is_host
from cloud.wire.identities import KEY
from cloud.wire.quantities import Quantities, Quantity
from drivers.boards.registry import BCM_AT, PLACES
from drivers.option_docs import PIN

SHORTEST_TOKEN: Final = 16
"""Characters of a status page's token."""
_TOKEN: Final = re.compile(f"[A-Za-z0-9_-]{{{SHORTEST_TOKEN},}}")
_LONGEST_PATH: Final = 256
_SIZE: Final = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)\s*([A-Za-z]*)", re.ASCII)
_UNITS: Final = {
    "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
}  # fmt: skip
_FACTORS: Final = {"": 1, **{unit.lower(): factor for unit, factor in _UNITS.items()}}
_FIGURE: Final = r"(\d{1,9}(?:\.\d{1,9})?)"
_AS_TEXT: Final = re.compile(rf"(?:{_FIGURE}\s*(?:\+\s*(?=\d)|$))?(?:{_FIGURE}\s*%)?", re.ASCII)
PLACEHOLDER: Final = re.compile(r"\{([0-9]{1,3})\}")
"""What stands for a wildcard of a topic filter."""
BRACES: Final = re.compile(r"\{[^}]*\}?")
LEGAL_TOPIC: Final = "must be 1 to 249 letters, digits, dots, underscores and hyphens"
_LEVEL: Final = re.compile(r'(?:^|\.)(?:"([^"]+)"(?=\.|$)|([^.]*))')
EACH: Final = "*"
"""Stands in a path for each position of an array."""
_KAFKA_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)
_LONGEST_TOPIC_BYTES: Final = 65_535


@dataclass(frozen=True, slots=True, kw_only=True)
class Context(toml_models.Context):
    """What the gateway's validators may ask for too: the quantities that the config may name."""

    quantities: Quantities

    def quantity(self, name: str) -> Quantity:
        """A quantity by name. Raises WrongValue."""
        if name not in self.quantities:
            raise WrongValue(*no_quantity(name, self.quantities))
        return self.quantities[name]

    def remedy(self, key: Key, given: Any) -> str:
        """What a figure out of its key's range may be meant as."""
        if key.meaning == PIN and isinstance(given, int) and 27 < given <= PLACES:
            place = f"BCM {BCM_AT[given]}" if given in BCM_AT else "power or ground"
            return f": BCM numbers count, and place {given} on the header is {place}"
        if key.name == "address" and given == 48:
            return " (decimal 48): write 0x48"
        if key.name == "latitude" and 90 < abs(given) <= 180:
            return ": are latitude and longitude swapped?"
        # No super(): a dataclass with slots is another class than the one it was written as.
        return toml_models.Context.remedy(self, key, given)


def no_quantity(name: str, quantities: Quantities) -> tuple[str, str | None]:
    """What is wrong with the name of a quantity that there isn't, and the name that may be meant."""
    remedy = "describe it in a [[quantity]], with name, unit and range"
    return f"{quote(name)} is no quantity that is built in: {remedy}", nearest(name, quantities)


def _context(info: ValidationInfo) -> Context:
    return cast(Context, info.context)


@dataclass(frozen=True, slots=True)
class Accuracy:
    """±(``absolute`` in the channel's unit + ``percent`` of the value); at least one of them."""

    absolute: float | None
    percent: float | None


def accuracy(given: Any) -> Accuracy:
    """An accuracy: 0.1 (in the unit), "2%" (of the value) or "40 + 5%"."""
    parts: tuple[Any, ...] = (given, None)
    if type(given) not in (int, float):
        match = _AS_TEXT.fullmatch(given.strip()) if isinstance(given, str) and given.strip() else None
        if match is None:
            raise WrongValue(f'must be ± in the unit, or as "2%" or "40 + 5%", not {quote(given)}')
        parts = match.groups()
    absolute, percent = (None if part is None else float(part) for part in parts)
    if any(part is not None and part <= 0 for part in (absolute, percent)):
        raise WrongValue(f"must be above 0, not {quote(given)}")
    if percent is not None and percent > 100:
        raise WrongValue(f"must be at most 100%, not {quote(given)}")
    return Accuracy(absolute, percent)


def ends(given: Any) -> tuple[float, float]:
    """A lower and an upper end."""
    if not isinstance(given, list) or [type(end) in (int, float) for end in given] != [True, True]:
        raise WrongValue(f"must be the lower and the upper end, as in [0, 75], not {quote(given)}")
    lower, upper = map(float, given)
    if not lower < upper:
        raise WrongValue(f"must begin below its end, not {quote(given)}")
    return lower, upper


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
    if "://" in text:
        raise WrongValue(f'must not have a scheme: write "{text.partition("://")[2].rstrip("/")}"')
    if host == "*":
        raise WrongValue(f'has no "*": for all addresses write "0.0.0.0:{port}" or "[::]:{port}"')
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise WrongValue('an IPv6 address needs brackets, as in "[::1]:8321"')
    if not colon or not is_host(host) or not _is_port(port):
        raise WrongValue('must be "host:port", such as "127.0.0.1:8321", or empty for none')
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    return host in ("localhost", "::1") or host.startswith("127.")


def kafka_topic(topic: str) -> str:
    """A topic's name, in which {quantity} stands for each quantity."""
    for placeholder in BRACES.findall(topic):
        if placeholder != "{quantity}":
            raise WrongValue(f"may have {{quantity}} only, not {placeholder}")
    if not is_kafka_topic(topic.replace("{quantity}", "q")):
        raise WrongValue(LEGAL_TOPIC)
    return topic


def is_kafka_topic(name: str) -> bool:
    """Whether Kafka takes this for a topic's name."""
    return _KAFKA_TOPIC.fullmatch(name) is not None and name not in (".", "..")


def _quantity(name: str, info: ValidationInfo) -> str:
    context = _context(info)
    return name if context.lenient else context.quantity(name).name


def topic_root(root: str) -> str:
    """The first levels of MQTT topics."""
    wildcards = 'must not have the wildcards "+" and "#": it is where topics begin, such as "fieldgate"'
    refuse(
        *_of_topics(root),
        ("+" in root or "#" in root, wildcards),
        (root.startswith("$"), 'must not begin with "$": such topics are the broker\'s own'),
        ("" in root.split("/"), "must not begin or end with a slash, nor have an empty level"),
    )
    return root


def topic_filter(text: str) -> str:
    """An MQTT topic filter (MQTT 5, section 4.7)."""
    *levels, last = text.split("/")
    alone = last == "#" or "#" not in last
    refuse(
        *_of_topics(text),
        (text.startswith("$share/"), "shared subscriptions ($share) aren't supported: give the filter alone"),
        (not alone or any("#" in level for level in levels), '"#" must stand alone at the end, after a "/"'),
        (
            any("+" in level and level != "+" for level in (*levels, last)),
            '"+" must stand alone between slashes',
        ),
    )
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


def matched(text: str, topic: str) -> list[str]:
    """What stands in a topic where its filter has wildcards; # takes all levels left, with their slashes."""
    levels = topic.split("/")
    return [
        levels[depth] if level == "+" else "/".join(levels[depth:])
        for depth, level in enumerate(text.split("/"))
        if level in ("+", "#")
    ]


def filled(template: str, wild: Sequence[str], slash: str = "/") -> str:
    """A template with what its {1}, {2} … stand for; ``slash`` joins the levels that # takes."""
    return PLACEHOLDER.sub(lambda found: wild[int(found[1]) - 1].replace("/", slash), template)


@lru_cache(1024)
def path_levels(path: str) -> tuple[str, ...]:
    """The keys and positions of a path; a key that has dots stands in quotes."""
    return tuple(quoted or plain for quoted, plain in _LEVEL.findall(path))


def _of_topics(text: str) -> tuple[tuple[bool, str], ...]:
    return (
        (not text, "must not be empty"),
        ("\0" in text, "must not contain a null character"),
        (len(text.encode()) > _LONGEST_TOPIC_BYTES, f"must be at most {_LONGEST_TOPIC_BYTES} bytes"),
    )


def refuse(*problems: tuple[bool, str]) -> None:
    """Raise WrongValue with the first of the problems that there is."""
    for is_there, message in problems:
        if is_there:
            raise WrongValue(message)


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= 65535


def _name(characters: str, longest: int, words: str, case: Callable[[str], str] = str) -> AfterValidator:
    """Annotates a name of these characters."""
    pattern = re.compile(f"[{characters}]{{1,{longest}}}")

    def check(name: str) -> str:
        if pattern.fullmatch(name) is None:
            like = re.sub(f"[^{characters}]+", "-", case(name.strip())).strip("-")
            message = f"must be 1 to {longest} {words}, not {quote(name)}"
            raise WrongValue(message, like if pattern.fullmatch(like) else None)
        return name

    return checked(check)


def _text(pattern: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": pattern})


def _require(right: Callable[[Any], bool], message: str) -> AfterValidator:
    """Annotates what a value must be; the message may have the value, and the value in quotes."""

    def check(value: Any) -> Any:
        if not right(value):
            raise WrongValue(message.format(value, quoted=quote(value)))
        return value

    return checked(check)


def _printable(longest: int) -> AfterValidator:
    return _require(
        lambda text: text.strip() != "" and len(text) <= longest and text.isprintable(),
        f"must be 1 to {longest} printable characters",
    )


GatewayId = Annotated[
    str, _name("a-z0-9-", 63, "small letters, digits and hyphens", str.lower), _text("^[a-z0-9-]{1,63}$")
]
SensorName = Annotated[
    str, _name("A-Za-z0-9_-", 64, "letters, digits, underscores and hyphens"), _text("^[A-Za-z0-9_-]{1,64}$")
]
NotEmpty = Annotated[str, _require(bool, "must not be empty")]
FilePath = Annotated[
    Path,
    _require(lambda path: path != Path(), "must not be empty"),
    AfterValidator(lambda path, info: _context(info).base / path),
]
"""A relative path starts at the config's directory."""
Factor = Annotated[float, _require(bool, "must not be 0: every value would be the offset")]
WHOLE_MS: Final = _require(
    lambda seconds: abs(seconds * 1000 - round(seconds * 1000)) <= 1e-6, "must be whole milliseconds, not {}"
)
"""A reading has its period in these."""
Label = Annotated[str, _printable(128)]
Unit = Annotated[str, _printable(64)]
QuantityName = Annotated[str, AfterValidator(_quantity)]
Day = Annotated[date, _require(lambda day: 1950 <= day.year <= 2100, "must be from 1950 to 2100, not {}")]
_UTC_OFFSET: Final = r"(?:[+-](?:0\d|1[01])|\+1[23]):(?:00|15|30|45)|-12:00|\+14:00"
UtcOffset = Annotated[
    str,
    _require(
        lambda text: re.fullmatch(_UTC_OFFSET, text, re.ASCII) is not None,
        'must be hours and quarters of an hour ahead of UTC, as in "+05:45", not {quoted}',
    ),
    _text(f"^(?:{_UTC_OFFSET})$"),
]
KafkaTopic = Annotated[str, checked(kafka_topic)]
TopicRoot = Annotated[str, checked(topic_root)]
JsonPath = Annotated[
    str,
    _require(
        lambda path: (
            "" not in path_levels(path) and path_levels(path).count(EACH) < 2 and len(path) <= _LONGEST_PATH
        ),
        'must be keys and positions with dots between, and one "*" at most, as in "values.0.t", not {quoted}',
    ),
]
_ONE_OR_EACH: Final = Discriminator(lambda given: "each" if isinstance(given, Mapping) else "one")
"""Of a sensor's one channel, or a table by quantity."""
_Accuracy = Annotated[Accuracy, read_by(accuracy, Accuracy(None, None))]
Accuracies = Annotated[
    Annotated[_Accuracy, Tag("one")] | Annotated[Mapping[str, _Accuracy], Tag("each")],
    _ONE_OR_EACH,
    WithJsonSchema({"type": ["number", "string", "object"]}),
]
Ends = Annotated[tuple[float, float], read_by(ends, (0.0, 1.0))]
Ranges = Annotated[
    Annotated[Ends, Tag("one")] | Annotated[Mapping[str, Ends], Tag("each")],
    _ONE_OR_EACH,
    WithJsonSchema({"type": ["array", "object"]}),
]
_BYTES: Final = [
    {"type": "integer", "minimum": 0},
    {"type": "string", "pattern": r"^\s*\d{1,15}(\.\d{1,9})?\s*([kKmMgGtT][iI]?)?[bB]?\s*$"},
]
Bytes = Annotated[int, Le(1 << 50), read_by(size), WithJsonSchema({"anyOf": _BYTES})]
SECRET: Final = WithJsonSchema({"type": ["string", "object"]})
"""Marks what is a secret: it may be named in place of being written down, and no page or bundle shows it."""
Secret = Annotated[str, SECRET]
"""A secret may be named in the file; ``secrets.py`` reads it before the section is validated."""
Token = Annotated[
    str,
    _require(
        lambda text: _TOKEN.fullmatch(text) is not None,
        f"must have at least {SHORTEST_TOKEN} characters, letters, digits, - and _ only: "
        "openssl rand -hex 16 makes one",
    ),
    SECRET,
]
Properties = Annotated[Mapping[str, str], WithJsonSchema({"type": "object"})]
"""librdkafka's properties, which ``kafka.py`` flattens before the section is validated."""
IdentityKey = Annotated[
    str,
    _require(lambda text: KEY.fullmatch(text) is not None, "must be the 64 hexadecimal digits of a key"),
    SECRET,
]
