"""Avro's encoding as another implementation has it, and what no byte string does to it."""

from __future__ import annotations

import io
import json
import tracemalloc
from contextlib import suppress
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings, strategies as st

from cloud.wire import avro_readings as avro

_LONGS = st.integers(-(1 << 63), (1 << 63) - 1)
_DOUBLES = st.floats(allow_nan=False)
KINDS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ("null", st.none()),
    ("boolean", st.booleans()),
    ("int", st.integers(-(1 << 31), (1 << 31) - 1)),
    ("long", _LONGS),
    ("float", st.floats(width=32, allow_nan=False)),
    ("double", _DOUBLES),
    ("string", st.text(max_size=9)),
    ("bytes", st.binary(max_size=9)),
    ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, st.sampled_from(["A", "B"])),
    ({"type": "array", "items": "string"}, st.lists(st.text(max_size=3), max_size=4)),
    ({"type": "array", "items": {"type": "array", "items": "long"}}, st.lists(st.lists(_LONGS, max_size=2))),
    ({"type": "map", "values": "double"}, st.dictionaries(st.text(max_size=3), _DOUBLES, max_size=3)),
    (["null", "string", "double"], st.none() | st.text(max_size=3) | _DOUBLES),
    ({"type": "long", "logicalType": "counted"}, _LONGS),
]
SCHEMA = {
    "type": "record",
    "name": "R",
    "fields": [{"name": f"f{at}", "type": kind} for at, (kind, _) in enumerate(KINDS)],
}
PARSED = fastavro.parse_schema(SCHEMA)
READ = avro.record_reader(json.dumps(SCHEMA))


@settings(max_examples=25)
@given(st.fixed_dictionaries({f"f{at}": values for at, (_, values) in enumerate(KINDS)}))
def test_what_another_implementation_writes_is_read(record: dict[str, Any]) -> None:
    written = io.BytesIO()
    fastavro.schemaless_writer(written, PARSED, record)
    assert READ(b"head" + written.getvalue(), 4) == record


@given(st.binary(max_size=200))
def test_any_bytes_are_a_record_or_an_error(payload: bytes) -> None:
    with suppress(*avro.UNREADABLE):
        READ(payload, 0)


def nested(depth: int) -> str:
    inner = '{"type":"array","items":' * depth + '"int"' + "}" * depth
    return f'{{"type":"record","fields":[{{"name":"a","type":{inner}}}]}}'


@pytest.mark.parametrize(
    "schema",
    [
        "", "[]", "7", '"string"', '{"type":"record"}', '{"type":"record","fields":7}', '{"type":"enum"}',
        '{"type":"record","fields":[{"name":"a"}]}',
        '{"type":"record","fields":[{"name":"a","type":"R"}]}',
        '{"type":"record","fields":[{"name":"a","type":{"type":"record","name":"R","fields":[]}}]}',
        '{"type":"record","fields":[{"name":"a","type":{"type":"fixed","size":1000000000}}]}',
        '{"type":"record","fields":[{"name":"a","type":{"type":"array","items":"null"}}]}',
        '{"type":"record","fields":[{"name":"a","type":{"type":"array","items":{"type":"null"}}}]}',
        '{"type":"record","fields":[{"name":"a","type":[7]}]}',
        '{"type":"record","fields":[{"name":"a","type":{"type":"enum"}}]}',
        nested(8),
        nested(5000),
    ],
)  # fmt: skip
def test_a_schema_of_anything_else_is_refused(schema: str) -> None:
    with pytest.raises(avro.UnusableSchema):
        avro.record_reader(schema)


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        # Lengths and counts that no payload holds.
        ("string", avro.long(1 << 62)),
        ("bytes", avro.long((1 << 63) - 1)),
        ({"type": "array", "items": "string"}, avro.long((1 << 63) - 1) + b"\0" * 100),
        ({"type": "array", "items": ["null", "int"]}, avro.long(-(1 << 63)) + avro.long(1) + b"\0" * 100),
        ({"type": "map", "values": "int"}, avro.long(1 << 40) + b"\0\0" * 100),
        ("string", avro.long(-1)),
        ("long", b"\xff" * 10_000),
        ("long", b"\xff" * 9 + b"\x7f"),
        (["null", "int"], avro.long(-1)),
        (["null", "int"], avro.long(1 << 40)),
        ({"type": "enum", "symbols": ["A"]}, avro.long(-1)),
        ("string", avro.long(2) + b"\xff\xfe"),
        ("boolean", b"\2"),
        ("int", b"\2\2"),
        ("double", b"\0" * 7),
    ],
)
def test_lies_about_lengths_end_early(kind: Any, payload: bytes) -> None:
    read = avro.record_reader(json.dumps({"type": "record", "fields": [{"name": "a", "type": kind}]}))
    tracemalloc.start()
    try:
        with pytest.raises(avro.UNREADABLE):
            read(payload, 0)
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()
