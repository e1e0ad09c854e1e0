"""Every byte string becomes a reading or a reject with its reason."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, strategies as st
from pyspark.sql import DataFrame, Row, SparkSession

from cloud.wire.avro_readings import plain
from cloud.wire.bounds import MAX_NUMBER
from cloud.wire.identities import Identities, Identity, IdentityRecord, Step, gateway_key, proving_run
from cloud.wire.reading_records import (
    InvalidReading,
    dead_letter,
    encode_dead_letter,
    encode_reading,
    parse_reading,
)
from spark_jobs.platform.schemas import QUARANTINE, READINGS
from spark_jobs.transforms import validate
from spark_jobs.transforms.packing import validated
from spark_jobs.transforms.validate import parse_batch
from tests.spark.records import (
    KAFKA_ROWS,
    KAFKA_US,
    SCHEMAS,
    START_US,
    encoded,
    in_avro,
    kafka_frame,
    kafka_table,
    reading,
)

DEAD = "gateway.dead-letter"
GOOD = encode_reading(reading(1))


def parsed(frame: DataFrame) -> tuple[list[Row], list[Row]]:
    """Readings and rejects, each in the order of their offsets."""
    found = (
        validated(frame, partial(parse_batch, dead_letter_topic=DEAD), table).collect()
        for table in (READINGS, QUARANTINE)
    )
    return tuple(sorted(rows, key=lambda row: row.kafka_offset) for rows in found)  # type: ignore[return-value]


def changed(**fields: Any) -> bytes:
    return json.dumps({**json.loads(GOOD), **fields}).encode()


def without(name: str) -> bytes:
    fields = json.loads(GOOD)
    del fields[name]
    return json.dumps(fields).encode()


DEEP = b'{"a":' * 2000 + b"1" + b"}" * 2000
MALFORMED: list[tuple[str, bytes | None]] = [
    ("EMPTY", None),
    ("EMPTY", b""),
    ("EMPTY", b" \n"),
    ("NOT_JSON", b"not json"),
    ("NOT_JSON", GOOD[:-1]),
    ("NOT_JSON", DEEP),
    ("NOT_UTF8", b"\xff\xfe\x00"),
    ("NOT_AN_OBJECT", b"[1]"),
    ("TRAILING_BYTES", GOOD + b"x"),
    ("TRAILING_BYTES", GOOD + GOOD),
    ("MISSING_FIELD", without("seq")),
    ("MISSING_FIELD", without("value")),
    ("WRONG_TYPE", changed(value="7.2")),
    ("WRONG_TYPE", changed(seq=1.5)),
    ("NOT_FINITE", GOOD.replace(b"7.25", b"NaN")),
    ("NOT_FINITE", GOOD.replace(b"7.25", b"-Infinity")),
    ("NOT_FINITE", GOOD.replace(b"7.25", b"1e400")),
    ("NOT_FINITE", GOOD[:-1] + b',"new":1e400}'),
    ("BAD_NAME", changed(gateway="Mast 7")),
    ("BAD_NAME", changed(reasons=["stuck"])),
    ("WRONG_UNIT", changed(unit="km/h")),
    ("INCONSISTENT", changed(quality=9)),
    ("INCONSISTENT", changed(value=None)),
    ("BAD_TIME", changed(time="2026-05-28")),
    ("BAD_TIME", changed(time="2026-05-28T20:27:00")),
    ("TIME_TOO_OLD", changed(time="1970-01-01T00:00:00Z")),
    ("TIME_IN_FUTURE", changed(time="2026-05-28T21:37:00.001Z")),
    ("TOO_LARGE", b" " * 5 + b"[" * (1 << 20)),
]


def test_each_malformed_payload_has_its_reason_and_its_bytes(spark: SparkSession) -> None:
    frame = kafka_frame(
        spark,
        [*(value for _, value in MALFORMED), GOOD],
        headers=[{"key": "mqtt-topic", "value": b"fieldgate/x\xff"}, {"key": "h", "value": b"\x00\xff"}],
        key=b"k\xff",
    )
    readings, rows = parsed(frame)
    assert [row.reason for row in rows] == [reason for reason, _ in MALFORMED]
    for row, (_, value) in zip(rows, MALFORMED, strict=True):
        assert bytes(row.payload) == (value or b"")[: 64 << 10]
        assert row.payload_bytes == len(value or b"")
        assert row.key == "k\\xff"
        assert row.source == "fieldgate/x\\xff"
        assert [(item.key, bytes(item.value)) for item in row.headers][1] == ("h", b"\x00\xff")
    assert [(row.gateway, row.seq, row.kafka_offset) for row in readings] == [("mast-07", 1, len(MALFORMED))]


def test_the_edge_of_the_future_is_ten_minutes_after_kafka(spark: SparkSession) -> None:
    assert KAFKA_US - START_US == 3_600_000_000
    given = [changed(time="2026-05-28T21:37:00Z"), *[GOOD.replace(b"20:27:00.000Z", b"21:37:00.000Z")] * 2]
    beyond = [GOOD.replace(b"20:27:00.000Z", b"21:37:00.001Z")] * 2
    readings, rejects = parsed(kafka_frame(spark, [*given, *beyond]))
    assert [row.kafka_offset for row in readings] == [0, 1, 2]
    assert [row.reason for row in rejects] == ["TIME_IN_FUTURE"] * 2


def test_a_reading_arrives_whole(spark: SparkSession) -> None:
    given = reading(7, 3.5, extra={"boot": "b1", "nested": {"a": [1, None]}})
    other = reading(8, quality=9)
    frame = kafka_frame(
        spark, encoded([given, other]), headers=[{"key": "replayed", "value": b"1"}], first_offset=40
    )
    first, second = parsed(frame)[0]
    taken = first.asDict()
    assert {name: taken[name] for name in ("gateway", "channel", "run", "seq", "quantity", "unit")} == {
        "gateway": "mast-07",
        "channel": "cup.wind_speed",
        "run": "run-1",
        "seq": 7,
        "quantity": "wind_speed",
        "unit": "m/s",
    }
    assert first.time.timestamp() * 1e6 == given.time_us
    assert (first.value, first.raw, first.raw_unit, first.period_ms) == (3.5, 9.5, "Hz", 1000)
    assert (first.quality, first.reasons, first.clock, first.cal) == (1, [], "synced", "5d1c0a7e")
    assert (first.replayed, first.latitude) == (True, None)
    assert json.loads(first.extra) == {"boot": "b1", "nested": {"a": [1, None]}}
    assert (first.kafka_topic, first.kafka_partition, first.kafka_offset) == ("mqtt.wind_speed", 0, 40)
    assert (second.value, second.quality, second.reasons, second.extra) == (None, 9, ["READ_ERROR"], None)


def test_what_an_unsynced_reading_has_of_its_time_is_kept(spark: SparkSession) -> None:
    given = replace(reading(7, clock="unsynced", quality=3, extra={"a": 1}), boot="8f-1", mono_ms=7250)
    (row,) = parsed(kafka_frame(spark, encoded([given])))[0]
    assert (row.clock, json.loads(row.extra)) == ("unsynced", {"a": 1, "boot": "8f-1", "mono_ms": 7250})


def test_replayed_is_the_header_alone(spark: SparkSession) -> None:
    for headers, expected in (
        (None, False),
        ([{"key": "replayed", "value": b"0"}], False),
        ([{"key": "replayed", "value": None}], False),
        ([{"key": "x", "value": b"\xff"}, {"key": "replayed", "value": b"1"}], True),
    ):
        readings, _ = parsed(kafka_frame(spark, [changed(), GOOD, GOOD], headers=headers))
        assert [row.replayed for row in readings] == [expected] * 3, headers


def test_dead_letters_come_out_as_what_they_hold(spark: SparkSession) -> None:
    payload = bytes(range(256)) * 1000
    letter = encode_dead_letter(
        dead_letter("mast-07", "run-1", 3, "TOO_LARGE", "long", "sensors/a", START_US, payload)
    )
    odd = letter.replace(b'"TOO_LARGE"', b'"\\ud800"')
    huge = letter.replace(b":256000,", b":1e400,")
    negative = letter.replace(b":256000,", b":-1,")
    assert huge != letter != negative
    frame = kafka_frame(spark, [letter, odd, huge, negative, b"{", None, GOOD], topic=DEAD)
    rows = parsed(frame)[1]
    assert [row.reason for row in rows] == ["TOO_LARGE", *["BAD_DEAD_LETTER"] * 6]
    assert (bytes(rows[0].payload), rows[0].payload_bytes) == (payload[: 64 << 10], 256_000)
    assert rows[0].source == "sensors/a"
    assert (bytes(rows[6].payload), rows[6].payload_bytes) == (GOOD, len(GOOD))


@pytest.mark.parametrize("copies", [1, 3])
def test_order_and_number_of_records_are_kept(spark: SparkSession, copies: int) -> None:
    values: list[bytes | None] = [*encoded(reading(seq) for seq in range(1, 6)), b"bad", None] * copies
    readings, rejects = parsed(kafka_frame(spark, values))
    assert sorted(row.kafka_offset for row in [*readings, *rejects]) == list(range(len(values)))
    assert len(readings) == 5 * copies


# Batches against ``parse_reading``, record by record --------------------------------------------------------

NUMBERS = (
    "0", "-0", "-0.0", "7", "-3", "0.1", "1e5", "1E5", "1e+22", "-0e5", "0e0", "5e-324", "1e-300", "1e99",
    "1e400", "-1e400", "1.7976931348623157e+308", "123456789012345", "1234567890123456",
    "9007199254740993", "12345678901234567890.5", "0.30000000000000004",
    "0.111111111111111111111111111111", "0.1e-99", "1e-99", "00", "01", "+1", ".5", "5.", "1e", "1_0",
    "NaN", "Infinity", "-Infinity", "nan", "null", "nul", "true", '"7"', "[1]", "{}", "１", " 7", "7 ",
    "7\n", "9223372036854775807", "9223372036854775808", "999999999999999999",
    "1" * 400,
)  # fmt: skip
TIMES = (
    "2026-05-28T20:27:00.000Z", "2026-05-28T20:27:00.000001Z", "2026-05-28T20:27:00Z",
    "2026-05-28T20:27:00.1Z", "2026-05-28T20:27:00.000z", "2026-05-28t20:27:00.000Z",
    "2026-05-28T20:27:00.000+00:00", "2026-05-28T20:27:00.000+02:00", "2026-05-28T20:27:60.000Z",
    "2026-05-28T24:00:00.000Z", "2026-02-29T00:00:00.000Z", "2024-02-29T00:00:00.000Z",
    "2000-02-29T00:00:00.000Z", "2026-02-30T00:00:00.000Z", "2026-04-31T00:00:00.000Z",
    "2026-03-31T23:59:59.999999Z", "2026-00-10T00:00:00.000Z", "2026-13-10T00:00:00.000Z",
    "1999-12-31T23:59:59.999Z", "2000-01-01T00:00:00.000Z", "2026-05-28T21:37:00.000Z",
    "2026-05-28T21:37:00.001Z", "2099-12-31T23:59:59.000Z", "2100-02-28T00:00:00.000Z",
    "20２6-05-28T20:27:00.000Z", "2026-05-28 20:27:00.000Z", "2026-05-28T20:27:00,000Z",
    "2026-05-28T20:27:00.1234567Z", "2026-05-28", "", "\\u0032026-05-28T20:27:00.000Z",
)  # fmt: skip
FIELDS = list(json.loads(encode_reading(reading(1))))
TEXTS = (
    '"a"', '""', '"x,y"', '"\\u00b0C"', '"°"', '"a\\"b"', '"\\ud800"', '"mast-07"', '"Cel"', '"%RH"',
    '"unsynced"', "[]", '["SPIKE"]', '["SPIKE","STUCK_VALUE"]', '["x"]', "null", "1", "9", "2147483648",
    '"temperature"',
)  # fmt: skip
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


def kafka_batch(values: list[bytes | None], kafka_us: int | None = KAFKA_US) -> Any:
    rows: list[dict[str, Any]] = [
        {
            "value": value,
            "key": b"k",
            "topic": "mqtt.x",
            "partition": 3,
            "offset": at,
            "timestamp": kafka_us,
            "headers": [],
        }
        for at, value in enumerate(values)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=KAFKA_ROWS)


_AS_THEY_ARE = (
    "gateway", "channel", "run", "seq", "quantity", "unit", "period_ms", "value", "raw", "raw_unit",
    "quality", "clock", "cal", "latitude", "longitude", "altitude_m",
)  # fmt: skip


def one_by_one(values: list[bytes | None], kafka_us: int | None) -> tuple[dict[int, Any], dict[int, str]]:
    """What each payload is to ``parse_reading``: columns by offset, and reasons by offset."""
    readings: dict[int, Any] = {}
    reasons: dict[int, str] = {}
    for at, value in enumerate(values):
        try:
            one = parse_reading(plain(value or b"", SCHEMAS), kafka_us)
        except InvalidReading as problem:
            reasons[at] = problem.reason
            continue
        since_boot = {"boot": one.boot, "mono_ms": one.mono_ms}
        extra = {**(one.extra or {}), **{name: each for name, each in since_boot.items() if each is not None}}
        readings[at] = (
            *(getattr(one, name) for name in _AS_THEY_ARE),
            list(one.reasons),
            one.time_us,
            one.time_us // 86_400_000_000,
            extra,
        )
    return readings, reasons


def in_batch(values: list[bytes | None], kafka_us: int | None) -> tuple[dict[int, Any], dict[int, str]]:
    """The same of ``parse_batch``."""
    parsed = parse_batch(kafka_batch(values, kafka_us), DEAD, schemas=SCHEMAS)
    for name, kind in (("time", pa.int64()), ("date", pa.int32())):
        at = parsed.readings.schema.get_field_index(name)
        whole = parsed.readings.set_column(at, name, parsed.readings[name].cast(kind))
        parsed = replace(parsed, readings=whole)
    readings = {
        row["kafka_offset"]: (
            *(row[name] for name in _AS_THEY_ARE),
            row["reasons"],
            row["time"],
            row["date"],
            json.loads(row["extra"] or "{}"),
        )
        for row in parsed.readings.to_pylist()
    }
    rejects = parsed.rejects.to_pylist()
    for row in rejects:
        value = values[row["kafka_offset"]] or b""
        assert (row["payload"], row["payload_bytes"]) == (value[: 64 << 10], len(value))
    return readings, {row["kafka_offset"]: row["reason"] for row in rejects}


@given(st.lists(payloads(), min_size=1, max_size=8))
@example([encode_reading(reading(1, -0.0))])
@example([encode_reading(reading(1)) + b"\n"])
@example([written([("raw", "1"), *[(name, "1") for name in FIELDS]])])
@example([encode_reading(replace(reading(1, clock="unsynced"), boot="b-1", mono_ms=7))])
@example([encode_reading(reading(1)).replace(b'"seq"', b'"note":"' + b"x" * 70_000 + b'","seq"')])
@example([b" " * 70_000 + encode_reading(reading(1))])
@example([in_avro(reading(1)), encode_reading(reading(2)), in_avro(reading(3))])
@example([in_avro(reading(1, extra={"rain": 1})), in_avro(reading(2)), in_avro(reading(2))[:-2]])
@example([in_avro(reading(1), 8), in_avro(reading(1)) + b"x", b"\0", in_avro(reading(1, None))])
def test_a_batch_is_what_it_is_one_by_one(given: list[bytes]) -> None:
    values: list[bytes | None] = [encode_reading(reading(5)), *given, None, *given]
    assert in_batch(values, KAFKA_US) == one_by_one(values, KAFKA_US)
    # All at once, where all of them are plain readings.
    assert in_batch([*given], KAFKA_US) == one_by_one([*given], KAFKA_US)


@given(st.sampled_from([b"", b"\0\0\0\0\7"]) | st.binary(max_size=40), st.binary(max_size=40))
def test_any_bytes_become_what_the_validator_decides(head: bytes, tail: bytes) -> None:
    values: list[bytes | None] = [
        head + b',"time":"2026-05-28T20:27:00.000Z","value":1,"raw":1,"seq":1,' + tail
    ]
    assert in_batch(values, KAFKA_US) == one_by_one(values, KAFKA_US)


def test_every_odd_number_and_time_becomes_what_the_validator_decides() -> None:
    usual = encode_reading(reading(77, 5.5)).decode()
    values: list[bytes | None] = [
        usual.replace(f'"{name}":{number}', f'"{name}":{text}').encode()
        for name, number in (("value", "5.5"), ("raw", "9.5"), ("seq", "77"))
        for text in NUMBERS
    ]
    values += [usual.replace(json.loads(usual)["time"], text).encode() for text in TIMES]
    assert in_batch(values, KAFKA_US) == one_by_one(values, KAFKA_US)


def test_without_a_time_of_receipt_the_future_is_not_known() -> None:
    values: list[bytes | None] = [encode_reading(reading(1, at_us=at_us)) for at_us in (1, KAFKA_US + 10**12)]
    assert in_batch(values, None) == one_by_one(values, None)
    assert in_batch(values, None)[1] == {0: "TIME_TOO_OLD"}


@given(
    st.lists(
        st.tuples(st.floats(-MAX_NUMBER, MAX_NUMBER), st.integers(1, 10**14), st.sampled_from([1, 3, 9])),
        min_size=1,
        max_size=20,
    )
)
def test_what_a_gateway_writes_is_validated_by_columns(given: list[tuple[float, int, int]]) -> None:
    values: list[bytes | None] = [
        encode_reading(reading(seq, value, quality=quality, at_us=KAFKA_US - seq % 10**9))
        for value, seq, quality in given
    ]
    expected = one_by_one(values, KAFKA_US)
    with pytest.MonkeyPatch.context() as patched:
        # One by one takes ten times as long.
        patched.setattr(validate, "parse_reading", None)
        assert in_batch(values, KAFKA_US) == expected


def test_one_bad_record_leaves_the_others_alone() -> None:
    values: list[bytes | None] = [encode_reading(reading(seq)) for seq in range(1, 201)]
    values[17], values[50], values[99] = b"bad", None, (values[99] or b"").replace(b"7.25", b"1e400")
    readings, reasons = in_batch(values, KAFKA_US)
    assert reasons == {17: "NOT_JSON", 50: "EMPTY", 99: "NOT_FINITE"}
    assert sorted(readings) == [at for at in range(200) if at not in reasons]


def test_a_reading_in_the_name_of_one_that_must_prove_itself_is_a_reject() -> None:
    master, since_us = "m" * 32, KAFKA_US
    key = gateway_key(master, "mast-08", 1)
    proven = proving_run(key, "mast-08", "0123456789ab")
    record = IdentityRecord("mast-08", 1, (Step(since_us, 1),), frozenset({"known"}))
    identities = Identities([Identity.of(record, master)])
    runs = [proven, "known", "run-1", proving_run(key, "mast-07", "0123456789ab")]
    sent = [reading(1, run=run, gateway="mast-08") for run in runs]
    sent += [reading(1), reading(2, run=proven)]
    garbage = b"garbage"

    def found(kafka_us: int, key: bytes) -> tuple[list[tuple[str, str]], list[tuple[Any, ...]]]:
        (batch,) = kafka_table([*encoded(sent), garbage], kafka_us=kafka_us, key=key).to_batches()
        parsed = parse_batch(batch, DEAD, identities)
        rejects = [
            (row["reason"], row["gateway"], row["kafka_offset"], row["payload"])
            for row in parsed.rejects.to_pylist()
        ]
        return [(row["gateway"], row["run"]) for row in parsed.readings.to_pylist()], rejects

    forged = [("IDENTITY", "", at, encode_reading(sent[at])) for at in (2, 3)]
    others = [("mast-07", "run-1"), ("mast-07", proven)]
    readings, rejects = found(since_us, b"mast-08/cup.wind_speed")
    assert readings == [("mast-08", proven), ("mast-08", "known"), *others]
    assert rejects == [*forged, ("NOT_JSON", "", 6, garbage)], "it takes nothing of the mast's own room"
    readings, rejects = found(since_us, b"mast-07/cup.wind_speed")
    assert [reject[:2] for reject in rejects] == [("IDENTITY", "mast-07")] * 2 + [("NOT_JSON", "mast-07")]
    # What Kafka had before.
    readings, rejects = found(since_us - 1, b"mast-08/cup.wind_speed")
    assert readings == [*(("mast-08", run) for run in runs), *others]
    assert rejects == [("NOT_JSON", "mast-08", 6, garbage)]
