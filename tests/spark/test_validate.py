"""Every byte string becomes a reading or a reject with its reason."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from cloud.wire.schema import dead_letter, encode_dead_letter, encode_reading
from spark_jobs.transforms.packing import packed, readings_of, rejects_of
from tests.spark.records import KAFKA_US, START_US, encoded, kafka_frame, reading

DEAD = "gateway.dead-letter"
GOOD = encode_reading(reading(1))


def parsed(frame: DataFrame) -> tuple[list[Row], list[Row]]:
    """Readings and rejects, each in the order of their offsets."""
    rows = packed(frame, DEAD).persist()
    found = readings_of(rows).collect(), rejects_of(rows).collect()
    rows.unpersist()
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


def test_what_an_unsynced_reading_tells_of_its_time_is_kept(spark: SparkSession) -> None:
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
        # The first as one, the others by what they have in common.
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
