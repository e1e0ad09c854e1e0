"""Readings in Avro and back: nothing is lost, and what is none has its word."""

from __future__ import annotations

import io
import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

import fastavro
import msgspec
import pytest
from hypothesis import example, given, settings, strategies as st

from cloud.wire.avro_readings import (
    NO_SCHEMAS,
    SCHEMA,
    UnknownSchema,
    from_avro,
    head,
    plain,
    schema_id,
    to_avro,
)
from cloud.wire.bounds import MAX_NUMBER
from cloud.wire.reading_records import (
    MAX_READING_BYTES,
    InvalidReading,
    Reading,
    encode_reading,
    parse_reading,
)
from tests.unit.cloud.wire.test_reading_records import CONTRACT, READING, UNREPAIRED, readings

HEAD = head(7)
KNOWN = {7: SCHEMA}
_FINITE = st.floats(-MAX_NUMBER, MAX_NUMBER)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 53), 1 << 53) | _FINITE | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
_FIELDS = set(msgspec.json.decode(CONTRACT)) | {"latitude", "longitude", "altitude_m", "boot", "mono_ms"}
_OTHERS = st.dictionaries(
    st.text(max_size=8).filter(lambda name: name not in _FIELDS), _JSON, min_size=1, max_size=3
)


@settings(max_examples=40)
@given(readings(), st.none() | _OTHERS)
@example(UNREPAIRED, None)
@example(READING, {"extra": 1})
@example(READING, {"n": 1e300, "": {"deep": [1, None, "é"]}})
def test_a_reading_goes_there_and_back(reading: Reading, extra: dict[str, Any] | None) -> None:
    reading = replace(reading, extra=extra)
    value = encode_reading(reading)
    avro = to_avro(value, HEAD)
    if "extra" in (extra or ()):
        # The one name that a field of Avro's own has: it stays JSON.
        assert avro is None
        return
    assert avro is not None
    assert schema_id(avro) == 7
    back = from_avro(avro, KNOWN)
    unrepaired = reading.boot is not None
    assert parse_reading(back, unrepaired=unrepaired) == reading
    assert plain(avro, KNOWN) == back
    # To the byte: what is made of it is what is made of the JSON.
    assert back == value


def test_another_implementation_reads_it() -> None:
    avro = to_avro(encode_reading(replace(READING, extra={"rain": [1]})), HEAD)
    assert avro is not None
    assert avro[:5] == b"\0\0\0\0\7"
    assert len(avro) < len(CONTRACT) / 2
    read = fastavro.schemaless_reader(io.BytesIO(avro[5:]), fastavro.parse_schema(json.loads(SCHEMA)), None)
    assert isinstance(read, dict)
    assert (read["gateway"], read["value"], read["seq"], read["reasons"]) == ("mast-07", 7.235, 12345, [])
    assert read["time"].isoformat() == "2026-11-21T07:35:00+00:00"
    assert read["extra"] == '{"rain":[1]}'


@pytest.mark.parametrize(
    "value",
    [
        b"", b"{}", b"no reading", b"\0\0\0\0\7", CONTRACT[:-1], CONTRACT.replace(b'"unit":"m/s",', b""),
        CONTRACT.replace(b"07:35:00.000Z", b"07:35"), CONTRACT.replace(b'"v":1', b'"v":2'),
        CONTRACT.replace(b"{", b'{"note":"' + b"x" * MAX_READING_BYTES + b'",', 1),
    ],
)  # fmt: skip
def test_what_is_no_reading_of_ours_stays_as_it_is(value: bytes) -> None:
    assert to_avro(value, HEAD) is None


def written(schema: str, record: dict[str, Any]) -> bytes:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(json.loads(schema)), record)
    return HEAD + body.getvalue()


def record(**changes: Any) -> dict[str, Any]:
    fields = {**json.loads(CONTRACT), "time": READING.time_us}
    return {**fields, **changes}


def test_fields_of_a_newer_version_survive() -> None:
    newer = json.loads(SCHEMA)
    newer["fields"] += [
        {"name": "sky", "type": ["null", "string"], "default": None},
        {"name": "beams", "type": {"type": "array", "items": "double"}},
        {"name": "by", "type": {"type": "map", "values": "long"}},
        {"name": "mode", "type": {"type": "enum", "name": "m", "symbols": ["A", "B"]}},
        {"name": "gone", "type": ["null", "string"], "default": None},
    ]
    schema = json.dumps(newer)
    avro = written(schema, record(sky="clear", beams=[1.5], by={"a": 3}, mode="B", extra='{"old":1}'))
    reading = parse_reading(from_avro(avro, {7: schema}))
    more = {"sky": "clear", "beams": [1.5], "by": {"a": 3}, "mode": "B", "old": 1}
    assert reading == replace(READING, extra=more)


@pytest.mark.parametrize(
    ("reason", "payload"),
    [
        ("BAD_AVRO", b"\0"),
        ("BAD_AVRO", b"\0\0\0\7"),
        ("BAD_AVRO", HEAD),
        ("BAD_AVRO", written(SCHEMA, record()) + b"\0"),
        ("BAD_AVRO", written(SCHEMA, record())[:-1]),
        ("BAD_AVRO", written(SCHEMA, record(extra="{"))),
        ("BAD_AVRO", written(SCHEMA, record(extra="[]"))),
        ("BAD_AVRO", written(SCHEMA, record(extra='{"seq":1}'))),
        ("BAD_AVRO", written(SCHEMA, record(extra='{"a":' * 3000 + "1" + "}" * 3000))),
        ("BAD_AVRO", written(SCHEMA, record(time=1 << 62))),
        ("NOT_FINITE", written(SCHEMA, record(value=float("nan")))),
        ("NOT_FINITE", written(SCHEMA, record(raw=float("-inf")))),
        ("TOO_LARGE", written(SCHEMA, record(cal="x" * MAX_READING_BYTES))),
        # Sound Avro, and no reading: the parser's own words.
        ("INCONSISTENT", written(SCHEMA, record(quality=9))),
        ("BAD_NAME", written(SCHEMA, record(gateway="Mast 7"))),
        ("OUT_OF_RANGE", written(SCHEMA, record(seq=-1))),
        ("TIME_TOO_OLD", written(SCHEMA, record(time=0))),
    ],
)
def test_each_way_of_being_none_has_its_word(reason: str, payload: bytes) -> None:
    with pytest.raises(InvalidReading) as raised:
        parse_reading(plain(payload, KNOWN))
    assert raised.value.reason == reason


def test_a_schema_that_is_not_known_or_no_readings() -> None:
    avro = to_avro(CONTRACT, HEAD)
    assert avro is not None
    with pytest.raises(UnknownSchema, match="schema 7 isn't known") as raised:
        plain(avro, NO_SCHEMAS)
    assert (raised.value.reason, raised.value.schema_id) == ("UNKNOWN_SCHEMA", 7)
    with pytest.raises(InvalidReading, match="FOREIGN_SCHEMA: the schema 7 is no record"):
        plain(avro, {7: '"string"'})
    other = '{"type":"record","name":"Other","fields":[{"name":"a","type":"string"}]}'
    with pytest.raises(InvalidReading, match="MISSING_FIELD"):
        parse_reading(plain(HEAD + b"\2x", {7: other}))


@given(st.binary(max_size=300))
def test_any_bytes_of_avro_are_json_or_refused(body: bytes) -> None:
    try:
        found = from_avro(HEAD + body, KNOWN)
    except InvalidReading:
        return
    assert isinstance(msgspec.json.decode(found), dict)


@given(st.integers(0, 200), st.binary(max_size=8))
def test_a_damaged_reading_is_a_reading_or_refused(at: int, damage: bytes) -> None:
    avro = to_avro(CONTRACT, HEAD)
    assert avro is not None
    at = 5 + at % (len(avro) - 5)
    with suppress(InvalidReading):
        parse_reading(from_avro(avro[:at] + damage + avro[at + len(damage) :], KNOWN))
