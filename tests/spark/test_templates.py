"""What templates prove is exactly what ``parse_reading`` says, bit for bit; all else is left to it."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cloud.wire.schema import encode_reading, parse_reading
from spark_jobs.transforms.templates import _SAMPLES, Templates
from spark_jobs.transforms.validate import Parsed, parse_batch
from tests.spark.records import KAFKA_ROWS, KAFKA_US, reading

DEAD = "gateway.dead-letter"
_UTC = pa.timestamp("us", tz="UTC")

NUMBERS = (
    *("0", "-0", "-0.0", "7", "-3", "0.1", "1e5", "1E5", "1e+22", "-0e5", "0e0", "5e-324", "1e-300", "1e99"),
    *(
        "1e400",
        "-1e400",
        "1.7976931348623157e+308",
        "123456789012345",
        "1234567890123456",
        "9007199254740993",
    ),
    *("12345678901234567890.5", "0.30000000000000004", "0." + "1" * 30, "0.1e-99", "1e-99", "00", "01", "+1"),
    *(
        ".5",
        "5.",
        "1e",
        "1_0",
        "NaN",
        "Infinity",
        "-Infinity",
        "nan",
        "null",
        "nul",
        "true",
        '"7"',
        "[1]",
        "{}",
    ),
    *("１", " 7", "7 ", "7\n", "9223372036854775807", "9223372036854775808", "999999999999999999", "1" * 400),
)
TIMES = (
    *(
        "2026-05-28T20:27:00.000Z",
        "2026-05-28T20:27:00.000001Z",
        "2026-05-28T20:27:00Z",
        "2026-05-28T20:27:00.1Z",
    ),
    *("2026-05-28T20:27:00.000z", "2026-05-28t20:27:00.000Z", "2026-05-28T20:27:00.000+00:00"),
    *("2026-05-28T20:27:00.000+02:00", "2026-05-28T20:27:60.000Z", "2026-05-28T24:00:00.000Z"),
    *(
        "2026-02-29T00:00:00.000Z",
        "2024-02-29T00:00:00.000Z",
        "2000-02-29T00:00:00.000Z",
        "2026-02-30T00:00:00.000Z",
    ),
    *(
        "2026-04-31T00:00:00.000Z",
        "2026-03-31T23:59:59.999999Z",
        "2026-00-10T00:00:00.000Z",
        "2026-13-10T00:00:00.000Z",
    ),
    *(
        "1999-12-31T23:59:59.999Z",
        "2000-01-01T00:00:00.000Z",
        "2026-05-28T21:37:00.000Z",
        "2026-05-28T21:37:00.001Z",
    ),
    *(
        "2099-12-31T23:59:59.000Z",
        "2100-02-28T00:00:00.000Z",
        "20２6-05-28T20:27:00.000Z",
        "2026-05-28 20:27:00.000Z",
    ),
    *(
        "2026-05-28T20:27:00,000Z",
        "2026-05-28T20:27:00.1234567Z",
        "2026-05-28",
        "",
        "\\u0032026-05-28T20:27:00.000Z",
    ),
)
FIELDS = list(json.loads(encode_reading(reading(1))))
TEXTS = (
    *(
        '"a"',
        '""',
        '"x,y"',
        '"\\u00b0C"',
        '"°"',
        '"a\\"b"',
        '"\\ud800"',
        '"mast-07"',
        '"Cel"',
        '"%RH"',
        '"unsynced"',
    ),
    *("[]", '["SPIKE"]', '["SPIKE","STUCK_VALUE"]', '["x"]', "null", "1", "9", "2147483648", '"temperature"'),
)
MORE = (
    *('"fw":"2.1"', '"boot":"b-1","mono_ms":7', '"seq":5', '"x":{"value":1,"seq":2}', '"x":{"a":1,"raw":1}'),
    *('"latitude":51.5', '"latitude":91', '"longitude":-180,"altitude_m":12.5', '"x":1e400', '"x":"\\u0001"'),
    *('"x":"\x01"', '"s\\u0065q":1', '"x":",\\"seq\\":1"', '"x":[1,"seq",2]', '"":""'),
)


def written(fields: list[tuple[str, str]], gap: str = "") -> bytes:
    return ("{" + ",".join(f'"{name}"{gap}:{text}' for name, text in fields) + "}").encode()


@st.composite
def payloads(draw: st.DrawFn) -> bytes:
    """A reading as the gateway writes it, with none, one or some things otherwise."""
    given = reading(
        draw(st.integers(1, 2**63 - 1) | st.integers(1, 99)),
        draw(st.floats(allow_nan=False, allow_infinity=False)),
        gateway=draw(st.sampled_from(["mast-07", "m"])),
        channel=draw(st.sampled_from(["cup.wind_speed", "dht.temperature"])),
        at_us=draw(st.integers(946_684_700_000_000, KAFKA_US + 700_000_000)),
        quality=draw(st.sampled_from([1, 1, 1, 2, 9])),
    )
    payload = encode_reading(given)
    fields = [(name, json.dumps(value, separators=(",", ":"))) for name, value in json.loads(payload).items()]
    kind = draw(st.integers(0, 7))
    at = draw(st.integers(0, len(fields) - 1))
    if kind == 1:
        name = draw(st.sampled_from(["value", "raw", "seq", "period_ms", "quality", "v"]))
        fields = [(key, draw(st.sampled_from(NUMBERS)) if key == name else text) for key, text in fields]
    elif kind == 2:
        time = json.dumps(draw(st.sampled_from(TIMES)), ensure_ascii=False).replace("\\\\", "\\")
        fields = [(key, time if key == "time" else text) for key, text in fields]
    elif kind == 3:
        fields[at] = (fields[at][0], draw(st.sampled_from(TEXTS)))
    elif kind == 4:
        fields.insert(at, fields[draw(st.integers(0, len(fields) - 1))])
    elif kind == 5:
        random.Random(at).shuffle(fields)
    elif kind == 6:
        return payload[:-1] + b"," + draw(st.sampled_from(MORE)).encode() + b"}"
    elif kind == 7:
        mutated = bytearray(written(fields, draw(st.sampled_from(["", " "]))))
        for _ in range(draw(st.integers(1, 3))):
            place = draw(st.integers(0, len(mutated) - 1))
            mutated[place : place + draw(st.integers(0, 2))] = draw(st.binary(max_size=2))
        return bytes(mutated)
    return written(fields)


class NoTemplates(Templates):
    """Leaves every payload to ``parse_reading``."""

    def match(self, values: Any, received: Any) -> None:
        return None


def kafka_batch(values: list[bytes | None], topics: list[str] | None = None) -> Any:
    rows: list[dict[str, Any]] = [
        {
            "value": value,
            "key": b"k",
            "topic": topic,
            "partition": 3,
            "offset": at,
            "timestamp": KAFKA_US,
            "headers": [],
        }
        for at, (value, topic) in enumerate(zip(values, topics or ["mqtt.x"] * len(values), strict=True))
    ]
    return pa.RecordBatch.from_pylist(rows, schema=KAFKA_ROWS)


def exactly(parsed: Parsed) -> list[list[Any]]:
    """All rows in the order of their offsets, doubles as their bits."""
    found = []
    for rows in (parsed.readings, parsed.rejects):
        table = pa.Table.from_batches([rows]).sort_by("kafka_offset").drop_columns(["ingested_at"])
        for column in table.columns:
            whole = column.combine_chunks()
            found.append((whole.view(pa.int64()) if whole.type == pa.float64() else whole).to_pylist())
    return found


@given(st.lists(payloads(), min_size=1, max_size=8), st.booleans())
@example([encode_reading(reading(1, -0.0))], False)
@example([encode_reading(reading(1)) + b"\n"], False)
@example([written([("raw", "1"), *[(name, "1") for name in FIELDS]])], True)
def test_a_batch_is_what_it_is_one_by_one(given: list[bytes], dead: bool) -> None:
    # Each twice, so that its template is worth a try; what was learnt from the first is used for the second.
    values: list[bytes | None] = [*given, None, *given]
    topics = [DEAD if dead and at % 3 == 0 else "mqtt.x" for at in range(len(values))]
    templates = Templates()
    for _ in range(2):
        batch = kafka_batch(values, topics)
        assert exactly(parse_batch(batch, DEAD, templates)) == exactly(
            parse_batch(batch, DEAD, NoTemplates())
        )


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_any_bytes_are_left_to_the_validator(head: bytes, tail: bytes) -> None:
    value = head + b',"time":"2026-05-28T20:27:00.000Z","value":1,"raw":1,"seq":1,' + tail
    batch = kafka_batch([value, value])
    assert exactly(parse_batch(batch, DEAD, Templates())) == exactly(parse_batch(batch, DEAD, NoTemplates()))


NORMAL = st.floats(-1e15, 1e15, allow_subnormal=False).filter(lambda value: value == 0 or abs(value) > 1e-90)


@given(
    st.lists(st.tuples(NORMAL, st.integers(1, 10**17), st.sampled_from([1, 3, 9])), min_size=4, max_size=20)
)
def test_what_a_gateway_writes_needs_no_second_look(given: list[tuple[float, int, int]]) -> None:
    readings = [
        reading(seq, value, quality=quality, at_us=KAFKA_US - seq % 10**9) for value, seq, quality in given
    ]
    values = [encode_reading(item) for item in readings]
    templates = Templates()
    received = pa.array([KAFKA_US] * len(values), pa.int64()).cast(_UTC)
    templates.match(pa.array(values, pa.binary()), received)
    matched = templates.match(pa.array(values, pa.binary()), received)
    assert matched is not None
    assert matched.rows.tolist() == list(range(len(values)))
    for at, payload in enumerate(values):
        expected = parse_reading(payload)
        time_us = matched.time.cast(pa.int64())
        assert (
            matched.templates[matched.kinds[at]].quality,
            time_us[at].as_py(),
            matched.seq[at].as_py(),
        ) == (
            expected.quality,
            expected.time_us,
            expected.seq,
        )
        assert (matched.value[at].as_py(), matched.raw[at].as_py()) == (expected.value, expected.raw)


def test_one_bad_record_leaves_the_others_alone() -> None:
    values: list[bytes | None] = [encode_reading(reading(seq)) for seq in range(1, 201)]
    values[17], values[50], values[99] = b"bad", None, (values[99] or b"").replace(b"7.25", b"1e400")
    received = pa.array([KAFKA_US] * len(values), pa.int64()).cast(_UTC)
    matched = Templates().match(pa.array(values, pa.binary()), received)
    assert matched is not None
    assert matched.rows.tolist() == [at for at in range(200) if at not in (17, 50, 99)]


def test_a_template_is_tried_when_it_is_met_again_and_forgotten_when_there_are_too_many() -> None:
    templates = Templates(most=3)
    received = pa.array([KAFKA_US], pa.int64()).cast(_UTC)

    def taken(gateway: str) -> bool:
        values = pa.array([encode_reading(reading(1, gateway=gateway))], pa.binary())
        return templates.match(values, received) is not None

    assert [taken("a"), taken("a"), taken("a")] == [False, True, True]
    for gateway in "bcde":
        taken(gateway), taken(gateway)
    assert taken("a") is False
    # The new fields of a newer gateway are part of the template, and kept.
    values = [encode_reading(reading(seq, extra={"fw": "2.1"})) for seq in (1, 2)]
    matched = Templates().match(pa.array(values, pa.binary()), pa.concat_arrays([received, received]))
    assert matched is not None
    assert [template.extra for template in matched.templates] == [{"fw": "2.1"}]


def test_a_number_inside_another_object_is_not_the_field() -> None:
    # A sample's own number, written so that its place isn't found, and another where it is looked for.
    for texts, _ in _SAMPLES:
        for name, text, number in zip(("value", "raw", "seq"), texts[1:], ("5.5", "9.5", "77"), strict=True):
            plain = encode_reading(reading(77, 5.5)).decode()
            nested = f'"x":{{"a":0,"{name}":3,"b":0}},"{name}" :{text.decode()}'
            payload = plain.replace(f'"{name}":{number}', nested).encode()
            assert payload != plain.encode()
            parsed = parse_batch(kafka_batch([payload, payload]), DEAD, Templates())
            assert parsed.readings[name].to_pylist() == [float(text)] * 2


def test_every_odd_number_and_time_is_what_the_validator_says() -> None:
    plain = encode_reading(reading(77, 5.5)).decode()
    values: list[bytes | None] = [
        plain.replace(f'"{name}":{number}', f'"{name}":{text}').encode()
        for name, number in (("value", "5.5"), ("raw", "9.5"), ("seq", "77"))
        for text in NUMBERS
    ]
    values += [plain.replace(json.loads(plain)["time"], text).encode() for text in TIMES]
    batch = kafka_batch(values * 2)
    assert exactly(parse_batch(batch, DEAD, Templates())) == exactly(parse_batch(batch, DEAD, NoTemplates()))


@pytest.mark.parametrize("received_us", [None, KAFKA_US])
def test_without_a_time_of_receipt_nothing_is_proven(received_us: int | None) -> None:
    values = pa.array([encode_reading(reading(seq)) for seq in (1, 2)], pa.binary())
    received = pa.array([received_us] * 2, pa.int64()).cast(_UTC)
    assert (Templates().match(values, received) is None) == (received_us is None)
