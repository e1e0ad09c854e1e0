"""Readings in Avro, in the wire format of schema registries: a zero byte, the schema's id, the record.

In the gateway, on MQTT and for the rules of what is a reading they are JSON: a record becomes Avro where it
leaves for Kafka, and JSON again where it is read, whoever has written it. Fields that this version doesn't
have travel in ``extra``, or are fields of a newer version's schema; both come back.

A writer's schema has to be a record of plain values (``cloud.wire.avro``); its fields are named as in JSON.
Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

import msgspec

from cloud.wire import avro
from cloud.wire.fields import UNDECODABLE, InvalidFields, format_time, parse_time, to_json
from cloud.wire.reading_records import MAX_READING_BYTES, decode_fields

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
    long, text, double, optional = avro.long, avro.text, avro.double, avro.optional
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
            avro.texts(fields.reasons),
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


_reader_of: Final = lru_cache(maxsize=64)(avro.record_reader)


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
    except avro.UnusableSchema as error:
        raise InvalidFields("FOREIGN_SCHEMA", f"the schema {schema_id(payload)} {error}") from error
    try:
        record = read(payload, _HEAD_BYTES)
        return _json(record)
    except (*avro.UNREADABLE, *UNDECODABLE, OverflowError, TypeError) as error:
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
