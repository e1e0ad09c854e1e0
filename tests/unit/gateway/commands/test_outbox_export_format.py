from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.commands.outbox import export_format
from gateway.commands.outbox.export_format import BadLine, End, decode, decode_head, encode
from gateway.ports import Record

content = st.binary(max_size=50) | st.text(max_size=50).map(str.encode)
names = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=10)
records = st.builds(
    Record,
    topic=st.from_regex(r"[A-Za-z0-9._-]{1,30}", fullmatch=True),
    key=content,
    value=content,
    headers=st.lists(st.tuples(names, content), max_size=3).map(tuple),
)

RECORD = Record(
    "mqtt.pressure", b"mast-07/baro.pressure", b'{"v":1}\n', (("received-at", b"now"), ("x", b"\xff"))
)


@given(records)
def test_what_is_written_is_read(record: Record) -> None:
    line = encode(record)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert decode(line) == record


def test_the_format_is_the_documented_one() -> None:
    assert json.loads(encode(RECORD)) == {
        "topic": "mqtt.pressure",
        "key": "mast-07/baro.pressure",
        "headers": [["received-at", "now"], ["x", {"base64": "/w=="}]],
        "value": '{"v":1}\n',
        "sum": "7c149e82639d049a",
    }


@given(st.data())
def test_no_changed_byte_passes_as_another_record(data: st.DataObject) -> None:
    line = bytearray(encode(RECORD))
    at = data.draw(st.integers(0, len(line) - 2))
    line[at] ^= data.draw(st.integers(1, 255))
    try:
        found = decode(bytes(line))
    except BadLine:
        return
    # White space, or another way to write the same.
    assert found == RECORD


def test_ends() -> None:
    decode_head(export_format.head("mast-07", "2026-01-01T00:00:00Z"))
    assert decode(export_format.end(7)) == End(records=7)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"", "not JSON"),
        (b"[]", "Expected `object`, got `array`"),
        (b"{}", "topic"),
        (b'{"topic": "a/b"}', "topic"),
        (b'{"topic": "a", "headers": {}}', "Expected `array`.*headers"),
        (
            b'{"topic": "a", "headers": [["n"]], "key": "", "value": ""}',
            "length 2 - at .*headers",
        ),
        (
            b'{"topic": "a", "headers": [["\\u0000", ""]], "key": "", "value": ""}',
            "matching .*headers",
        ),
        (
            b'{"topic": "a", "headers": [], "key": 1, "value": ""}',
            "got `int` - at .*key",
        ),
        (b'{"topic": "a", "headers": [], "key": {"base64": "*"}, "value": ""}', "key.base64"),
        (b'{"topic": "a", "headers": [], "key": "\\ud800", "value": ""}', "not JSON"),
        (b'{"topic": "a", "headers": [], "key": "", "value": "", "sum": ""}', "checksum"),
        (b'{"end": true}', "required field `records`"),
        (b"[" * 100_000, "Expected `object`"),
    ],
)
def test_the_message_has_what_is_wrong(line: bytes, problem: str) -> None:
    with pytest.raises(BadLine, match=problem):
        decode(line)


@pytest.mark.parametrize("line", [b"{}", b'{"format": "fieldgate-outbox", "v": 2}', b"x"])
def test_another_file_is_refused(line: bytes) -> None:
    with pytest.raises(BadLine):
        decode_head(line)
