"""Quarantine holds so many rows of a gateway and hour, and counts the others exactly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from cloud.wire.identities import NOBODY
from spark_jobs.platform.settings import Settings
from spark_jobs.sinks.quarantine import QuarantineSink
from spark_jobs.transforms.dedupe import as_quarantined
from tests.spark.records import KAFKA_US, rows_of

HOUR = 3_600_000_000
NOON_US = KAFKA_US // HOUR * HOUR

Reject = tuple[str, int, int, int]
"""Key, partition, offset, and microseconds after the hour began."""

SCHEMA = pa.schema(
    [
        ("reason", pa.string()),
        ("payload", pa.binary()),
        ("payload_bytes", pa.int64()),
        ("key", pa.string()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("source", pa.string()),
        ("kafka_topic", pa.string()),
        ("kafka_partition", pa.int32()),
        ("kafka_offset", pa.int64()),
        ("kafka_time", pa.timestamp("us", tz="UTC")),
        ("ingested_at", pa.timestamp("us", tz="UTC")),
        ("gateway", pa.string()),
    ]
)


def frame(spark: SparkSession, rejects: Iterable[Reject]) -> DataFrame:
    rows = [
        {
            "reason": "NOT_JSON", "payload": b"x" * 10, "payload_bytes": 10, "key": key, "kafka_topic": "t",
            "kafka_partition": partition, "kafka_offset": offset, "kafka_time": NOON_US + at_us,
            "ingested_at": KAFKA_US, "gateway": NOBODY.counted(key, None, 0),
        }
        for key, partition, offset, at_us in rejects
    ]  # fmt: skip
    return as_quarantined(spark.createDataFrame(pa.Table.from_pylist(rows, schema=SCHEMA)))


def write(sink: QuarantineSink, spark: SparkSession, rejects: list[Reject], app: str, batch: int) -> int:
    since_us = NOON_US + min(at_us for _, _, _, at_us in rejects)
    reasons = sink.write(frame(spark, rejects), since_us, app, batch)
    assert set(reasons) <= {"NOT_JSON"}
    return reasons.total()


def test_two_queries_have_one_cap(spark: SparkSession, settings: Settings) -> None:
    settings = replace(settings, quarantine_cap=3)
    readings, records = QuarantineSink(spark, settings), QuarantineSink(spark, settings)

    def rejects(partition: int, *offsets: int) -> list[Reject]:
        return [("a/x", partition, offset, offset) for offset in offsets]

    assert write(readings, spark, rejects(0, 1), "readings", 0) == 1
    assert write(records, spark, rejects(1, 1), "records", 0) == 1
    # Each has to count what the other has written since.
    assert write(readings, spark, rejects(0, 2, 3), "readings", 1) == 2
    assert write(records, spark, rejects(1, 2, 3), "records", 1) == 2
    found = rows_of(settings, "quarantine")
    assert sorted((row["kafka_partition"], row["kafka_offset"], row["overflow"]) for row in found) == [
        (0, 1, None), (0, 2, None), (0, 3, 1), (1, 1, None), (1, 3, 2),
    ]  # fmt: skip


def test_beyond_the_cap_rejects_are_counted_and_each_once(spark: SparkSession, settings: Settings) -> None:
    settings = replace(settings, quarantine_cap=3)
    # Three gateways and one that is unknown, on two partitions, around the full hour.
    first: list[Reject] = [("a/x", 0, offset, offset) for offset in (0, 2, 4, 6, 8)]
    first += [("b/x", 0, offset, offset) for offset in (1, 3)] + [("\\xff", 1, 0, 5)]
    second: list[Reject] = [("a/y", 1, offset, 100 + offset) for offset in (1, 3)]
    second += [("a/x", 0, offset, HOUR + offset) for offset in range(9, 14)]
    second += [("b/x", 1, offset, 100 + offset) for offset in (2, 4)]

    def stored() -> tuple[Counter[tuple[str, int]], Counter[tuple[str, int]]]:
        """Rows and counted records by gateway and hour."""
        rows, counted = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
        for row in rows_of(settings, "quarantine"):
            hour = (round(row["kafka_time"].timestamp() * 1e6) - NOON_US) // HOUR
            if row["overflow"] is None:
                rows[row["gateway"], hour] += 1
            else:
                assert (row["reason"], row["payload"], row["payload_bytes"]) == (
                    "OVERFLOW",
                    None,
                    10 * row["overflow"],
                )
                counted[row["gateway"], hour] += row["overflow"]
        return rows, counted

    assert write(QuarantineSink(spark, settings), spark, first, "app", 0) == 8
    assert stored() == ({("a", 0): 3, ("b", 0): 2, ("", 0): 1}, {("a", 0): 2})
    # The oldest are kept.
    kept = {row["kafka_offset"] for row in rows_of(settings, "quarantine") if row["overflow"] is None}
    assert kept == {0, 2, 4, 1, 3}
    # A start counts what is there, and the same batch again is nothing new.
    sink = QuarantineSink(spark, settings)
    assert write(sink, spark, first, "app", 0) == 0
    assert write(sink, spark, second, "app", 1) == 9
    whole = ({("a", 0): 3, ("b", 0): 3, ("", 0): 1, ("a", 1): 3}, {("a", 0): 4, ("b", 0): 1, ("a", 1): 2})
    assert stored() == whole
    # A lost checkpoint gives all of it again, in one batch; a single one of it is new.
    late: Reject = ("a/x", 0, 14, HOUR + 14)
    assert write(QuarantineSink(spark, settings), spark, [*second, *first, late], "again", 0) == 1
    assert stored() == (whole[0], {**whole[1], ("a", 1): 3})
