"""What passes between other devices and Kafka: forwards with their steps, downlinks, listeners.

Fields of a message are named by keys with dots between; a key that has dots itself is in quotes. In tables a
dotted and a quoted key are equal, as in ``[kafka.properties]``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from itertools import permutations
from typing import Annotated, Any, Final, Literal, TypeVar

from annotated_types import Ge, Gt, Le
from pydantic import BeforeValidator, WithJsonSchema

from cloud.toml_models import checked, field_names
from cloud.toml_problems import quote
from cloud.toml_source import by_dotted_name
from cloud.wire.reading_records import ReadingFields
from drivers.option_docs import Meaning
from gateway.config import values
from gateway.config.values import (
    WHOLE_MS,
    Factor,
    FilePath,
    JsonPath,
    NotEmpty,
    QuantityName,
    Unit,
    UtcOffset,
    filled,
    matched,
    path_levels,
    refuse,
)

OWN_FIELDS: Final = frozenset((*ReadingFields.__struct_fields__, "boot", "mono_ms", "cal_expires"))
"""What makes a reading: these can be neither changed nor added."""
_SCALAR: Final = (str, int, float)

_Paths = TypeVar("_Paths", bound=Collection[str])


def _apart(paths: _Paths) -> _Paths:
    """Refuse none at all, an empty name, and paths of which one is within another."""
    refuse((not paths, "must not be empty"))
    for path in paths:
        refuse(
            ("" in path_levels(path), f'must be keys with dots between, as in "values.t", not {quote(path)}')
        )
    for one, other in permutations(paths, 2):
        within = path_levels(other)[: len(path_levels(one))] == path_levels(one)
        refuse((within, f"{quote(other)} is, or is within, {quote(one)}"))
    return paths


def _renamed(names: Mapping[str, str]) -> Mapping[str, str]:
    _apart(tuple(names.values()))
    return _apart(names)


def _values(right: Callable[[Any], bool], what: str) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    def check(fields: Mapping[str, Any]) -> Mapping[str, Any]:
        for path, value in fields.items():
            refuse((not right(value), f"{path}: must be {what}, not {quote(value)}"))
        return _apart(fields)

    return check


def _is_scalar(value: Any) -> bool:
    return isinstance(value, _SCALAR)


def _is_condition(value: Any) -> bool:
    return all(map(_is_scalar, value)) and value != [] if isinstance(value, list) else _is_scalar(value)


def own_field(paths: Collection[str]) -> str | None:
    """The first of the reading's own fields that is among these paths, with what is wrong about it."""
    own = {path_levels(path)[0] for path in paths} & OWN_FIELDS
    return f"{quote(min(own))} is a field of every reading: it can't be changed" if own else None


def new_fields(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Refuse what would replace a reading's own fields."""
    refuse((own_field(fields) is not None, own_field(fields) or ""))
    return fields


_Fields = Annotated[tuple[str, ...], checked(_apart)]
_Table = Annotated[Mapping[str, Any], BeforeValidator(by_dotted_name), WithJsonSchema({"type": "object"})]
_Condition = Annotated[
    _Table, checked(_values(_is_condition, "text, a number, true, false, or a list of them"))
]
Values = Annotated[_Table, checked(_values(_is_scalar, "text, a number, true or false"))]
_Names = Annotated[
    Mapping[str, str], BeforeValidator(by_dotted_name), checked(_renamed), WithJsonSchema({"type": "object"})
]


@dataclass(frozen=True, slots=True)
class Step:
    """One step; one of its keys is given."""

    where: Annotated[_Condition | None, Meaning("only messages whose fields have these values go on")] = None
    unless: Annotated[_Condition | None, Meaning("messages whose fields have these values don't")] = None
    keep: Annotated[_Fields | None, Meaning("these fields alone stay")] = None
    drop: Annotated[_Fields | None, Meaning("these fields go")] = None
    mask: Annotated[_Fields | None, Meaning('these fields become "***"')] = None
    rename: Annotated[_Names | None, Meaning("old name = new name; with dots, from or to another place")] = (
        None
    )
    set: Annotated[Values | None, Meaning("these fields get these values; {1} and {topic} are filled in")] = (
        None
    )

    @property
    def kind(self) -> str:
        """The key that is given, or all that are."""
        return ", ".join(name for name in STEPS if getattr(self, name) is not None)

    @property
    def touched(self) -> tuple[str, ...]:
        """The fields it changes, by path."""
        names = self.rename or {}
        return (*(self.drop or ()), *(self.mask or ()), *(self.set or ()), *names.keys(), *names.values())


STEPS: Final = field_names(Step)
ALLOWED: Final[Mapping[str, tuple[str, ...]]] = {
    "raw": STEPS,
    # Its device has numbered it: without it there would be a gap, which means a loss.
    "reading": ("drop", "mask", "rename", "set"),
    # The reading's number is taken from the document; the fields set are the reading's.
    "json": ("where", "unless", "set"),
    "number": ("set",),
}
"""The steps that mean something, by payload."""


_Number = float | None
_IN_UNIT: Final = "the quantity's unit"


@dataclass(frozen=True, slots=True)
class DropIf:
    """Values that are counted and not forwarded, in the quantity's unit, after scale and offset."""

    below: Annotated[_Number, Meaning("lower values", _IN_UNIT)] = None
    above: Annotated[_Number, Meaning("higher values", _IN_UNIT)] = None
    equals: Annotated[_Number, Meaning("exactly this value", _IN_UNIT)] = None


Quantity = Annotated[QuantityName, Meaning("what is measured: temperature, wind_speed and so on")]
_Path = Annotated[
    JsonPath,
    Meaning("where the number stands: keys and positions with dots between; * is each of an array's"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """How a device's number becomes a reading, for all of a filter's messages or for one of several."""

    unit: Annotated[str | None, Meaning("the quantity's, to state it only; scale and offset convert")] = None
    channel: Annotated[
        str | None,
        Meaning("the channel's name before the quantity; {1} is what the first wildcard stands for"),
    ] = None
    scale: Annotated[Factor, Meaning("value = scale · number + offset")] = 1.0
    offset: Annotated[float, Meaning("value = scale · number + offset", _IN_UNIT)] = 0.0
    counter_end: Annotated[
        _Number,
        Gt(0),
        Meaning("the number is a running total that begins again at 0 here: value = scale · what was added"),
    ] = None
    raw_unit: Annotated[Unit | None, Meaning("the unit of the number itself")] = None
    min: Annotated[_Number, Meaning("the device's range: lower values get quality 4", _IN_UNIT)] = None
    max: Annotated[_Number, Meaning("the device's range: higher values get quality 4", _IN_UNIT)] = None
    drop_if: Annotated[DropIf | None, Meaning("values that are counted and not forwarded")] = None
    words: Annotated[
        Mapping[str, float] | None, Meaning("texts that stand for numbers, as { open = 1, closed = 0 }")
    ] = None
    optional: Annotated[bool, Meaning("json: nothing at path is counted and is no error")] = False


@dataclass(frozen=True, slots=True)
class ForwardReading(_Reading):
    """One of several readings that a ``json`` message makes; ``channel`` where it is not the forward's."""

    quantity: Quantity
    path: _Path


READING_KEYS: Final = tuple(field.name for field in fields(ForwardReading) if field.name != "channel")
"""What each of several readings has for itself."""


@dataclass(frozen=True, slots=True)
class ForwardConfig(_Reading):
    """Messages of other devices on the local broker that are forwarded, by MQTT topic filter.

    ``readings`` are several of one ``json`` message; the keys they have are theirs then.
    """

    filter: Annotated[str, checked(values.topic_filter), Meaning("which topics: an MQTT topic filter")]
    payload: Annotated[Literal["reading", "number", "json", "raw"], Meaning("what the device publishes")] = (
        "reading"
    )
    quantity: Quantity | None = None
    path: _Path | None = None
    time_path: Annotated[JsonPath | None, Meaning("json: where the time stands")] = None
    period_s: Annotated[
        float, Ge(0.001), Le(86400), WHOLE_MS, Meaning("how often the device reports", "s")
    ] = 1.0
    readings: Annotated[
        tuple[ForwardReading, ...] | None, Meaning("json: several readings of each message")
    ] = None
    topic: Annotated[str | None, Meaning("the Kafka topic; {1} is what the first wildcard stands for")] = None
    key: Annotated[
        NotEmpty | None, Meaning("the key in Kafka; with {1}, and {topic} for the whole MQTT topic")
    ] = None
    steps: Annotated[
        tuple[Step, ...], Meaning("what becomes of the message's JSON object before it is sent, in order")
    ] = ()
    utc_offset: Annotated[
        UtcOffset | None, Meaning('json: of a time without a zone, local time less UTC: "+01:00"')
    ] = None


KEY: Final = "{key}"
_ALERTS: Final = "gateway.alerts"


def _source_topic(topic: str) -> str:
    own = topic.startswith(("gateway.", "__")) and topic != _ALERTS
    refuse(
        (not values.is_kafka_topic(topic), values.LEGAL_TOPIC),
        (
            own,
            f'must not begin with "gateway." or "__": those are the gateway\'s and Kafka\'s; {_ALERTS} may',
        ),
    )
    return topic


def _destination(template: str) -> str:
    other = next((each for each in values.BRACES.findall(template) if each != KEY), "")
    refuse(
        (other != "", f"may have {KEY} only, not {other}"),
        (KEY in template.partition("/")[0], f"must begin with a level of its own, as in downlink/{KEY}"),
    )
    return values.topic_root(template)


@dataclass(frozen=True, slots=True)
class DownlinkConfig:
    """A Kafka topic whose records are published on the local broker."""

    topic: Annotated[str, checked(_source_topic), Meaning("the Kafka topic; each in one [[downlink]]")]
    mqtt_topic: Annotated[
        str, checked(_destination), Meaning("where on the local broker; {key} is the record's key")
    ]
    key_prefix: Annotated[
        str, Meaning("only records whose key begins so are published; {key} is what follows")
    ] = ""
    retain: Annotated[bool, Meaning("the broker keeps the last one for later subscribers")] = False
    begin: Annotated[
        Literal["latest", "earliest"], Meaning("where a gateway that has read none of it begins")
    ] = "latest"

    @property
    def filter(self) -> str:
        """An MQTT filter that has all it may publish to."""
        before, found, _ = self.mqtt_topic.partition(KEY)
        # A key may have slashes, and more of the template comes behind them.
        return f"{before.rpartition('/')[0]}/#" if found else before


@dataclass(frozen=True, slots=True)
class Listening:
    """Where the gateway is reached by HTTP or MQTT."""

    listen: Annotated[str, checked(values.listen), Meaning('host:port; "" switches it off')] = ""

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port; None: switched off."""
        return values.host_and_port(self.listen) if self.listen else None

    @property
    def port(self) -> int:
        """The port; 0 picks a free one."""
        return self.address[1] if self.address else 0


@dataclass(frozen=True, slots=True)
class HttpConfig(Listening):
    """Readings that devices post to the gateway itself."""

    tokens: Annotated[
        FilePath | None, Meaning("a file with a device and its token's SHA-256 a line; others are refused")
    ] = None
    certificate: Annotated[FilePath | None, Meaning("PEM, for TLS; other machines need it")] = None
    key: Annotated[FilePath | None, Meaning("the certificate's")] = None


NO_HTTP: Final = HttpConfig()


@dataclass(frozen=True, slots=True)
class MqttProxyConfig(Listening):
    """Messages that devices publish to the gateway itself by MQTT."""

    passwords: Annotated[
        FilePath | None, Meaning("a file of mosquitto_passwd: the users; without it everyone may publish")
    ] = None
    access: Annotated[
        FilePath | None, Meaning("a file in the form of Mosquitto's acl_file: the topics of each user")
    ] = None
    certificate: Annotated[FilePath | None, Meaning("PEM, for TLS")] = None
    key: Annotated[FilePath | None, Meaning("the certificate's")] = None
    plain: Annotated[bool, Meaning("other machines may connect without TLS, with passwords in the clear")] = (
        False
    )
    max_clients: Annotated[int, Ge(1), Le(500), Meaning("connections at a time")] = 64
    max_in_flight: Annotated[
        int, Ge(1), Le(10_000), Meaning("unacknowledged messages of a client; further ones wait")
    ] = 500
    max_rate: Annotated[
        int, Ge(1), Le(100_000), Meaning("packets a second of a client; further ones wait", "1/s")
    ] = 1000


NO_PROXY: Final = MqttProxyConfig()


RAW_QUANTITY: Final = "raw"
"""What stands for the quantity in the channel of a message that is forwarded as it is."""
_NOT_IN_A_NAME: Final = re.compile(r"[^A-Za-z0-9_-]", re.ASCII)
_MAX_NAME: Final = 128


def singles(forward: ForwardConfig) -> Iterator[ForwardConfig]:
    """A forward of several readings as one forward for each; none for any other."""
    for each in forward.readings or ():
        channel = forward.channel if each.channel is None else each.channel
        keys = {key: getattr(each, key) for key in READING_KEYS}
        yield replace(forward, readings=None, channel=channel, **keys)


def channel_name(forward: ForwardConfig, topic: str) -> str | None:
    """The first half of a channel: the template filled in, or else the topic; None where none comes of it.

    Raw messages of one forward are counted together, so that topics without end make one channel only.
    """
    if forward.payload == "raw":
        plain = [level for level in forward.filter.split("/") if level not in ("+", "#", "")]
        name = (forward.channel or "-".join(map(_legal, plain)) or RAW_QUANTITY)[:_MAX_NAME]
    elif forward.channel is None:
        name = "-".join(map(_legal, topic.split("/")))
    else:
        wild = matched(forward.filter, topic)
        name = filled(forward.channel, ["-".join(map(_legal, each.split("/"))) for each in wild])
    return name if 0 < len(name) <= _MAX_NAME else None


def _legal(level: str) -> str:
    """A level in the letters of a name: other scripts' as in domain names, what else there is as ``_``."""
    if not level.isascii() and len(level) <= _MAX_NAME:
        level = "xn--" + level.encode("punycode").decode()
    return _NOT_IN_A_NAME.sub("_", level)
