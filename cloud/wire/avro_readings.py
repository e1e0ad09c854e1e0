"""Readings in Avro, in the wire format of schema registries: a zero byte, the schema's id, the record.

In the gateway, on MQTT and for the rules of what is a reading they are JSON: a record becomes Avro where it
leaves for Kafka, and JSON again where it is read, whoever has written it. Fields that this version doesn't
have travel in ``extra``, or are fields of a newer version's schema; both come back.

A writer's schema has to be a record of plain values; its fields are named as in JSON. The encoding is Avro's
binary one as far as such records need it, and what is read is bounded: each item of an array or map takes at
least one byte, so what is decoded is of the payload's size, and no schema refers to itself. Source: Apache
Avro 1.11.1, Specification, "Binary Encoding". Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from struct import Struct, error as StructError
from types import MappingProxyType
from typing import Any, Final

import msgspec

from cloud.wire.fields import UNDECODABLE, InvalidFields, format_time, parse_time, to_json
from cloud.wire.reading_records import MAX_READING_BYTES, decode_fields

_DOUBLE: Final = Struct("<d")
_FLOAT: Final = Struct("<f")
_MAX_DEPTH: Final = 4
_ARRAYS: Final = {"array": "items", "map": "values"}

Read = Callable[[bytes, int], tuple[Any, int]]
"""The value that begins at a byte, and where it ends. Raises one of ``UNREADABLE``."""
UNREADABLE: Final = (ValueError, IndexError, StructError)


class UnusableSchema(ValueError):
    """A schema that is no record of plain values."""


# Writing.


def long(number: int) -> bytes:
    """An ``int`` or ``long``."""
    zigzag = (number << 1) ^ (number >> 63)
    if zigzag < 128:
        return bytes((zigzag,))
    written = bytearray()
    while zigzag > 127:
        written.append(zigzag & 127 | 128)
        zigzag >>= 7
    written.append(zigzag)
    return bytes(written)


def text(value: str) -> bytes:
    """A ``string``."""
    encoded = value.encode()
    return long(len(encoded)) + encoded


double: Final = _DOUBLE.pack
"""A ``double``."""


def optional(value: Any, write: Callable[[Any], bytes]) -> bytes:
    """A union of ``null`` and another type, in this order."""
    return b"\0" if value is None else b"\2" + write(value)


def texts(values: Iterable[str]) -> bytes:
    """An ``array`` of strings."""
    items = list(map(text, values))
    return b"".join((long(len(items)), *items, b"\0")) if items else b"\0"


# Reading.


def record_reader(schema: str) -> Callable[[bytes, int], dict[str, Any]]:
    """What decodes a record of a schema (JSON) that begins at a byte and ends with the payload.

    Logical types are left out: a time is its number. Raises UnusableSchema; what it returns raises one of
    ``UNREADABLE``.
    """
    try:
        parsed = msgspec.json.decode(schema)
        if not isinstance(parsed, dict) or parsed.get("type") != "record":
            raise UnusableSchema("is no record")
        fields = tuple((str(field["name"]), _reader(field["type"], 0)) for field in parsed["fields"])
    except (msgspec.DecodeError, RecursionError, KeyError, TypeError) as error:
        raise UnusableSchema(f"{type(error).__name__}: {error}") from error

    def read(data: bytes, at: int) -> dict[str, Any]:
        record = {}
        for name, read_field in fields:
            record[name], at = read_field(data, at)
        if at != len(data):
            raise ValueError(f"{len(data) - at} bytes are left over")
        return record

    return read


def _reader(schema: Any, depth: int) -> Read:
    if depth > _MAX_DEPTH:
        raise UnusableSchema(f"is nested over {_MAX_DEPTH} deep")
    if isinstance(schema, list):
        return _union(tuple(_reader(branch, depth + 1) for branch in schema))
    if not isinstance(schema, Mapping):
        if schema not in _PLAIN:
            raise UnusableSchema(f"has a value of the type {schema}")
        return _PLAIN[schema]
    kind = schema["type"]
    if kind == "enum":
        return _enum(tuple(map(str, schema["symbols"])))
    if kind in _ARRAYS:
        item = _reader(schema[_ARRAYS[kind]], depth + 1)
        if item is _null:
            # It takes no byte, so a payload of ten could have any number of them.
            raise UnusableSchema(f"has a {kind} of nulls")
        return _array(item) if kind == "array" else _map(item)
    return _reader(kind, depth + 1)


def _null(data: bytes, at: int) -> tuple[None, int]:
    return None, at


def _boolean(data: bytes, at: int) -> tuple[bool, int]:
    if data[at] > 1:
        raise ValueError("is no boolean")
    return data[at] == 1, at + 1


def _long(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    at += 1
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), at
    zigzag, shift = byte & 127, 7
    while byte > 127:
        byte = data[at]
        at += 1
        zigzag |= (byte & 127) << shift
        shift += 7
        if shift > 70 or zigzag >> 64:
            raise ValueError("is a number over 64 bits")
    return (zigzag >> 1) ^ -(zigzag & 1), at


def _double(data: bytes, at: int) -> tuple[float, int]:
    return _DOUBLE.unpack_from(data, at)[0], at + 8


def _float(data: bytes, at: int) -> tuple[float, int]:
    return _FLOAT.unpack_from(data, at)[0], at + 4


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = _long(data, at)
    end = at + length
    if length < 0 or end > len(data):
        raise ValueError("ends too early")
    return data[at:end], end


def _text(data: bytes, at: int) -> tuple[str, int]:
    found, end = _bytes(data, at)
    return str(found, "utf-8"), end


_PLAIN: Final[Mapping[Any, Read]] = {
    "null": _null, "boolean": _boolean, "int": _long, "long": _long, "float": _float, "double": _double,
    "bytes": _bytes, "string": _text,
}  # fmt: skip


def _union(branches: tuple[Read, ...]) -> Read:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        number, at = _long(data, at)
        if number < 0:
            raise ValueError("is no branch of a union")
        return branches[number](data, at)

    return read


def _enum(symbols: tuple[str, ...]) -> Read:
    def read(data: bytes, at: int) -> tuple[str, int]:
        number, at = _long(data, at)
        if number < 0:
            raise ValueError("is no symbol")
        return symbols[number], at

    return read


def _array(item: Read) -> Read:
    def read(data: bytes, at: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        while True:
            count, at = _long(data, at)
            if count == 0:
                return items, at
            if count < 0:
                # The size of the block in bytes follows, for those who skip it.
                count, (_, at) = -count, _long(data, at)
            for _ in range(count):
                value, at = item(data, at)
                items.append(value)

    return read


def _map(item: Read) -> Read:
    def pair(data: bytes, at: int) -> tuple[tuple[str, Any], int]:
        name, at = _text(data, at)
        value, at = item(data, at)
        return (name, value), at

    pairs = _array(pair)

    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        items, at = pairs(data, at)
        return dict(items), at

    return read


SUBJECT: Final = "fieldgate.Reading"
"""The schema's name in the registry, one for the topics of all quantities: the record's own."""
COMPATIBILITY: Final = "FULL_TRANSITIVE"
"""Gateways of several versions send side by side for years, and so do readers read."""
NO_SCHEMAS: Final[Mapping[int, str]] = MappingProxyType({})
"""Where no registry is named: all readings are JSON."""
UNKNOWN_SCHEMA: Final = "UNKNOWN_SCHEMA"
"""Reason of records whose schema isn't known here: they are readings once it is."""


def _field(name: str, kind: Any, doc: str) -> dict[str, Any]:
    return {"name": name, "type": kind, "doc": doc}


def _optional(name: str, kind: str, doc: str) -> dict[str, Any]:
    return {"name": name, "type": ["null", kind], "default": None, "doc": doc}


SCHEMA: Final = msgspec.json.encode(
    {
        "type": "record",
        "name": "Reading",
        "namespace": "fieldgate",
        "doc": "One channel of a met mast over one period; counted once by gateway, channel, run and seq.",
        "fields": [
            {"name": "v", "type": "int", "default": 1, "doc": "version of the record"},
            _field("gateway", "string", "the mast's gateway"),
            _field("channel", "string", "sensor.quantity"),
            _field("quantity", "string", "what is measured"),
            _field("unit", "string", "of value"),
            _field("time", {"type": "long", "logicalType": "timestamp-micros"}, "start of the period, UTC"),
            _field("period_ms", "int", "length of the period"),
            _optional("value", "double", "null where quality is 9"),
            _optional("raw", "double", "what the sensor gave"),
            _optional("raw_unit", "string", "of raw"),
            _field("quality", "int", "QARTOD: 1 good, 2 not evaluated, 3 suspect, 4 fail, 9 missing"),
            _field("reasons", {"type": "array", "items": "string"}, "why, in words"),
            _field("run", "string", "new at each start of the gateway"),
            _field("seq", "long", "counts from 1 in a run and channel"),
            _field("clock", "string", "synced, unsynced or repaired"),
            _optional("cal", "string", "the calibration record"),
            _optional("latitude", "double", "degrees, of a receiver of positions"),
            _optional("longitude", "double", "degrees, of a receiver of positions"),
            _optional("altitude_m", "double", "metres, of a receiver of positions"),
            _optional("extra", "string", "other fields, as a JSON object"),
        ],
    }
).decode()
"""What this version writes: the text as it is registered."""

_HEAD_BYTES: Final = 5
_LARGEST_CONVERTED: Final = MAX_READING_BYTES // 2
"""A larger one stays JSON: written anew it could exceed what a reading may have."""
_NULL_IN_JSON: Final = frozenset({"value", "raw", "raw_unit", "cal"})
"""Other fields are left out there where they have no value."""


class UnknownSchema(InvalidFields):
    """A record of a schema that isn't known here."""

    def __init__(self, schema_id: int) -> None:
        super().__init__(UNKNOWN_SCHEMA, f"the schema {schema_id} isn't known")
        self.schema_id = schema_id


def is_avro(payload: bytes) -> bool:
    """Whether a record is Avro: no JSON begins with a zero byte."""
    return payload[:1] == b"\0"


def schema_id(payload: bytes) -> int:
    """The id of an Avro record's schema; 0, which no registry gives, where it is cut off."""
    return int.from_bytes(payload[1:_HEAD_BYTES]) if len(payload) >= _HEAD_BYTES else 0


def head(schema_id: int) -> bytes:
    """What an Avro record begins with."""
    return b"\0" + schema_id.to_bytes(4)


def to_avro(value: bytes, head: bytes) -> bytes | None:
    """A reading's JSON as Avro by ``SCHEMA``; None for what is none, or is written in a way of its own."""
    if len(value) > _LARGEST_CONVERTED:
        return None
    try:
        fields, extra = decode_fields(value)
        time_us = parse_time(fields.time)
    except (ValueError, OverflowError):
        return None
    quantity, unit, clock = fields.quantity, fields.unit, fields.clock
    if quantity is None or unit is None or clock is None or "extra" in (extra or ()):
        return None
    return b"".join(
        (
            head,
            long(fields.v),
            text(fields.gateway),
            text(fields.channel),
            text(quantity),
            text(unit),
            long(time_us),
            long(fields.period_ms),
            optional(fields.value, double),
            optional(fields.raw, double),
            optional(fields.raw_unit, text),
            long(fields.quality),
            texts(fields.reasons),
            text(fields.run),
            long(fields.seq),
            text(clock),
            optional(fields.cal, text),
            optional(fields.latitude, double),
            optional(fields.longitude, double),
            optional(fields.altitude_m, double),
            optional(msgspec.json.encode(extra).decode() if extra else None, text),
        )
    )


_reader_of: Final = lru_cache(maxsize=64)(record_reader)


def from_avro(payload: bytes, schemas: Mapping[int, str]) -> bytes:
    """The JSON of an Avro record, by its writer's schema: whether it is a reading is for the parser to say.

    Raises UnknownSchema, else InvalidFields: FOREIGN_SCHEMA for one that no reading has, BAD_AVRO for bytes
    that aren't what their schema says.
    """
    if len(payload) > MAX_READING_BYTES:
        raise InvalidFields("TOO_LARGE", f"{len(payload)} bytes, at most {MAX_READING_BYTES}")
    if len(payload) < _HEAD_BYTES:
        raise InvalidFields("BAD_AVRO", "the schema's id is cut off")
    schema = schemas.get(schema_id(payload))
    if schema is None:
        raise UnknownSchema(schema_id(payload))
    try:
        read = _reader_of(schema)
    except UnusableSchema as error:
        raise InvalidFields("FOREIGN_SCHEMA", f"the schema {schema_id(payload)} {error}") from error
    try:
        record = read(payload, _HEAD_BYTES)
        return _json(record)
    except (*UNREADABLE, *UNDECODABLE, OverflowError, TypeError) as error:
        if isinstance(error, InvalidFields):
            raise
        raise InvalidFields("BAD_AVRO", f"{type(error).__name__}: {error}") from error


def _json(record: dict[str, Any]) -> bytes:
    more = record.pop("extra", None)
    fields = {name: value for name, value in record.items() if value is not None or name in _NULL_IN_JSON}
    if type(time := fields.get("time")) is int:
        fields["time"] = format_time(time)
    if isinstance(more, str):
        others = msgspec.json.decode(more)
        if not isinstance(others, dict) or not others.keys().isdisjoint(record):
            raise ValueError("extra is no object of other fields")
        fields |= others
    elif more is not None:
        fields["extra"] = more
    try:
        return to_json(fields)
    except ValueError as error:
        raise InvalidFields("NOT_FINITE", str(error)) from error


def plain(payload: bytes, schemas: Mapping[int, str]) -> bytes:
    """A record as JSON, whichever of both it is. Raises InvalidFields."""
    return from_avro(payload, schemas) if is_avro(payload) else payload
