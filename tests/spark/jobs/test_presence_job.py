"""Presence from tables to its table: states and counts of a story, restarts, lost checkpoints."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from cloud.wire.number_set import NumberSet
from cloud.wire.reading_records import IMPORT_RUN, encode_reading
from cloud.wire.status_records import StatusRecord, encode_status
from spark_jobs.jobs.presence import PresenceJob
from spark_jobs.platform.schemas import PRESENCE, QUARANTINE, READINGS, SEEN
from spark_jobs.platform.settings import Settings
from spark_jobs.sinks.delta import ensure_table
from spark_jobs.sinks.records import RecordSink
from spark_jobs.transforms.presence import arrivals, claimed, presence_rows, with_arrivals
from spark_jobs.transforms.records import RUN_RECORDS, STATUS_RECORDS
from spark_jobs.transforms.seen import identity_ranges
from tests.spark.jobs.test_records_job import run_record
from tests.spark.records import (
    KAFKA_US,
    SCHEMAS,
    START_US,
    append_rows,
    in_avro,
    kafka_frame,
    merge_records,
    reading,
    rows_of,
)
from tests.spark.running import run_to_end, started

S = 1_000_000


class Tables:
    """The tables ``presence`` is made of, filled by hand; seconds are counted from ``KAFKA_US``."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self._spark, self._settings = spark, settings
        for table in (READINGS, QUARANTINE, SEEN):
            ensure_table(spark, settings, table)
        self._runs = RecordSink(spark, settings, RUN_RECORDS)
        self._status = RecordSink(spark, settings, STATUS_RECORDS)

    def readings(self, at_s: int, numbers: dict[str, Iterable[int]], gateway: str = "mast-07") -> None:
        rows = [
            {
                "gateway": gateway, "channel": "cup.wind_speed", "run": run, "seq": seq, "clock": "synced",
                "time": START_US + seq * S, "value": float(seq), "period_ms": 1000,
                "kafka_time": KAFKA_US + at_s * S,
            }
            for run, seqs in numbers.items()
            for seq in seqs
        ]  # fmt: skip
        append_rows(self._spark, self._settings, READINGS, rows)

    def rejects(self, at_s: int, *payloads: bytes, gateway: str = "mast-07") -> None:
        """Rejects whose key names this gateway."""
        at_us = KAFKA_US + at_s * S
        of_all = {"reason": "WRONG_UNIT", "kafka_time": at_us, "ingested_at": at_us, "gateway": gateway}
        rows = [{**of_all, "payload": payload} for payload in payloads]
        append_rows(self._spark, self._settings, QUARANTINE, rows)

    def runs(self, at_s: int, *records: bytes) -> None:
        merge_records(self._runs, kafka_frame(self._spark, records, kafka_us=KAFKA_US + at_s * S))

    def statuses(self, *reported_at: tuple[int, str, str]) -> None:
        frames = [
            kafka_frame(
                self._spark,
                [encode_status(StatusRecord("mast-07", state, run))],
                first_offset=at_s,
                kafka_us=KAFKA_US + at_s * S,
            )
            for at_s, state, run in reported_at
        ]
        merge_records(self._status, reduce(DataFrame.union, frames))


def test_the_table_follows_the_tables_it_is_made_of(spark: SparkSession, settings: Settings) -> None:
    tables = Tables(spark, settings)
    now_s = 13

    def presence(job: PresenceJob, settings: Settings = settings) -> list[tuple[Any, ...]]:
        """State, pending, lost and announced, after one pass of the job."""
        query = started(settings, job)
        query.awaitTermination()
        assert query.exception() is None
        return _counts(settings)

    # Of the first run 11 and 12 were dropped with a word, 13 without; of the second 4 and 5 are under way, 3
    # is in quarantine. The will of the first comes after the second has begun. A logger's
    # file is nobody's news.
    drops = [{"reason": "OUTBOX_FULL", "count": 2, "ranges": ["r1 cup.wind_speed 11-12"]}]
    first = run_record("r1", "killed", 20, in_flight=0, outbox_records=1, dropped=drops)
    second = {"previous_run": "r1", "in_flight": 0}
    tables.readings(12, {"r1": [*range(1, 11), *range(14, 21)], "r2": [1, 2, *range(6, 11)]})
    tables.readings(13, {f"{IMPORT_RUN}1000": [300]})
    tables.rejects(11, encode_reading(reading(3, run="r2")).replace(b'"m/s"', b'"km/h"'), b"noise")
    tables.runs(12, first, run_record("r2", "running", 10, outbox_records=2, **second))
    tables.statuses((10, "online", "r2"), (12, "offline", "r1"))
    job = PresenceJob(spark, settings, now_us=lambda: KAFKA_US + now_s * S)
    assert presence(job) == [("online", 2, 1, 2)]
    (row,) = rows_of(settings, "presence")
    micros = [round(row[name].timestamp() * 1e6) for name in ("last_seen", "last_time")]
    assert (*micros, row["last_value"], row["period_ms"]) == (
        KAFKA_US + 12 * S,
        START_US + 20 * S,
        20.0,
        1000,
    )

    # 5 comes, and then the run stops with nothing left: 4 is lost.
    now_s = 91
    tables.readings(30, {"r2": [5]})
    tables.runs(90, run_record("r2", "stopped", 10, outbox_records=0, **second))
    presence(job)
    job.finish()
    assert _counts(settings) == [("offline", 0, 2, 2)]

    # Once all has had its time to come, a lost checkpoint changes nothing, nor a quarantine that forgot.
    now_s = 151
    before = rows_of(settings, "presence")
    DeltaTable.forPath(spark, settings.table("quarantine")).delete()
    again = replace(settings, checkpoints=settings.checkpoints + "-lost")
    job = PresenceJob(spark, again, now_us=lambda: KAFKA_US + now_s * S)
    assert presence(job, again) == [("offline", 0, 2, 2)]
    assert rows_of(settings, "presence") == before


def _counts(settings: Settings) -> list[tuple[Any, ...]]:
    rows = rows_of(settings, "presence")
    return [(row["state"], row["pending"], row["lost"], row["announced"]) for row in rows]


def test_no_gateway_makes_losses_of_another_disappear(spark: SparkSession, settings: Settings) -> None:
    tables = Tables(spark, settings)

    def rejected(gateway: str, *seqs: int) -> list[bytes]:
        made = (encode_reading(reading(seq, gateway=gateway, run="r1")) for seq in seqs)
        return [payload.replace(b'"m/s"', b'"km/h"') for payload in made]

    def drops(*ranges: str) -> list[dict[str, Any]]:
        return [{"reason": "OUTBOX_FULL", "count": len(ranges), "ranges": list(ranges)}]

    # Each has 1 to 20 of 30 in the table, and what it reports of its own counts.
    masts = ("mast-v", "mast-w", "mast-x")
    own = {"mast-v": ["r1 cup.wind_speed 21-22"], "mast-w": [], "mast-x": ["mast-x/r1 cup.wind_speed 29-29"]}
    for mast in masts:
        tables.readings(12, {"r1": range(1, 21)}, mast)
        record = run_record("r1", "stopped", 30, in_flight=0, outbox_records=0, dropped=drops(*own[mast]))
        tables.runs(12, record.replace(b'"mast-07"', f'"{mast}"'.encode()))
    tables.readings(12, {"r1": [1, 2]}, "fridge")
    # The last one announces another's, and its rejects claim another's, too.
    others = ["mast-v/r1 cup.wind_speed 21-30", "fridge/r1 cup.wind_speed 3-5"]
    tables.runs(12, run_record("q1", "running", 0, dropped=drops(*others)))
    tables.rejects(12, *rejected("mast-w", *range(21, 31)), gateway="mast-07")
    tables.rejects(12, *rejected("mast-w", 21, 22), gateway="mast-w")
    # A forward gives its readings a key of its own.
    tables.rejects(12, *rejected("mast-x", 21), gateway="shed")
    tables.rejects(12, *rejected("mast-x", 22), gateway="")
    run_to_end(settings, PresenceJob(spark, settings))
    found = {row["gateway"]: (row["lost"], row["announced"]) for row in rows_of(settings, "presence")}
    expected = {"mast-v": (8, 2), "mast-w": (8, 0), "mast-x": (7, 1), "fridge": (0, 3), "mast-07": (0, 0)}
    assert found == expected


def test_readings_that_are_not_in_the_stored_ranges_yet(spark: SparkSession, settings: Settings) -> None:
    tables = Tables(spark, settings)
    job = PresenceJob(spark, settings)

    def unseen() -> list[int]:
        return sorted(row.seq for row in job._unseen().collect())

    for seq in (1, 2, 3):
        tables.readings(seq, {"r1": [seq]})
    assert unseen() == [1, 2, 3]
    seen = {"gateway": "mast-07", "channel": "cup.wind_speed", "run": "r1", "first_seq": 1, "last_seq": 1}
    append_rows(spark, settings, SEEN, [{**seen, "readings_version": 1}])
    assert unseen() == [2, 3]
    # What its log no longer has may be anything that is there.
    deltalake.DeltaTable(settings.table("readings")).create_checkpoint()
    for version in (0, 1, 2):
        (Path(settings.table("readings")) / "_delta_log" / f"{version:020d}.json").unlink()
    assert unseen() == [1, 2, 3]
    append_rows(spark, settings, SEEN, [{**seen, "readings_version": 3}])
    assert unseen() == []


def test_silence_is_five_periods_and_a_minute_at_least(spark: SparkSession) -> None:
    old = [
        {"gateway": gateway, "channel": channel, "last_seen": KAFKA_US, "last_time": START_US,
         "last_value": 7.0, "period_ms": period_ms, "pending": 1, "lost": 2, "announced": 3}
        for gateway, channel, period_ms in
        (("mast-07", "cup", 1000), ("mast-07", "baro", 20_000), ("slow", "cup", 1000), ("gone", "cup", 1000))
    ]  # fmt: skip
    schema = to_arrow_schema(PRESENCE.without("state", "updated_at"))
    none = arrivals(spark.createDataFrame([], READINGS.schema))
    channels = with_arrivals(spark.createDataFrame(pa.Table.from_pylist(old, schema=schema)), none)
    losses = [{"channel": "baro", "pending": 0, "lost": 9, "announced": 0}]
    gateways = spark.createDataFrame(
        [
            ("mast-07", False, False, False, losses),
            ("slow", False, False, True, None),
            ("gone", True, False, False, None),
        ],
        "gateway string, offline boolean, cloned boolean, metered boolean, "
        "losses array<struct<channel: string, pending: long, lost: long, announced: long>>",
    )

    def states(after_s: int) -> list[tuple[str, str, str]]:
        rows = presence_rows(channels, gateways, 60 * S, KAFKA_US + after_s * S).collect()
        # What is not known anew stays.
        assert {row.lost for row in rows if row.channel == "cup"} == {2}
        assert {row.lost for row in rows if row.channel == "baro"} == {9}
        return sorted((row.gateway, row.channel, row.state) for row in rows)

    def expected(cup: str, baro: str, slow: str) -> list[tuple[str, str, str]]:
        gone = ("gone", "cup", "offline")
        return [gone, ("mast-07", "baro", baro), ("mast-07", "cup", cup), ("slow", "cup", slow)]

    assert states(60) == expected("online", "online", "online")
    assert states(61) == expected("silent", "online", "online")
    assert states(101) == expected("silent", "silent", "online")
    # A metered gateway sends once a minute.
    assert states(180) == expected("silent", "silent", "online")
    assert states(181) == expected("silent", "silent", "silent")


def test_the_hour_that_comes_twice_hides_no_reject(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end of daylight saving 01:10 UTC is before 00:40 UTC by local time."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        tables = Tables(spark, settings)
        job = PresenceJob(spark, settings)
        first_s = int(datetime(2026, 10, 25, 0, 40, tzinfo=UTC).timestamp()) - KAFKA_US // S
        for seq, minutes in enumerate((0, 30), start=1):
            tables.rejects(first_s + 60 * minutes, encode_reading(reading(seq)).replace(b'"m/s"', b'"km/h"'))
            job._set_rejects_aside()
    finally:
        monkeypatch.undo()
        time.tzset()
    found = NumberSet((row["first_seq"], row["last_seq"]) for row in rows_of(settings, "_set_aside"))
    assert list(found) == [1, 2]


def test_frames_of_what_arrived_and_what_rejects_claim(spark: SparkSession) -> None:
    rows = [
        ("mast-07", "cup", "run-1", 1, 100, 1.0, "synced", 500),
        ("mast-07", "cup", "run-1", 3, 300, 3.0, "synced", 400),
        ("mast-07", "cup", "run-1", 2, 200, None, "synced", 300),
        ("mast-07", "cup", "run-2", 7, 700, 7.0, "repaired", 200),
        # By a clock that was not set: its time doesn't count, its arrival does.
        ("mast-07", "cup", "run-1", 4, 900, 9.0, "unsynced", 600),
        ("mast-07", "cup", "run-1", 9, 200, 9.0, "synced", 100),
    ]
    names = ("gateway", "channel", "run", "seq", "time", "value", "clock", "kafka_time")
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    moments = {name: pa.array(columns[name], pa.timestamp("us", tz="UTC")) for name in ("time", "kafka_time")}
    periods = {"period_ms": pa.array([1000] * len(rows), pa.int32())}
    found = spark.createDataFrame(pa.table({**columns, **moments, **periods}))
    assert [tuple(row) for row in arrivals(found).collect()] == [("mast-07", "cup", 600, (700, 1, 7.0, 1000))]
    numbers: defaultdict[str, NumberSet] = defaultdict(NumberSet)
    for row in identity_ranges(found.union(found)).collect():
        numbers[row.run].add(row.first, row.last)
    assert {run: list(there.spans()) for run, there in numbers.items()} == {
        "run-1": [(1, 4), (9, 9)],
        "run-2": [(7, 7)],
    }

    rejected = [
        ("NOT_FINITE", encode_reading(reading(5)).replace(b"7.25", b"1e999"), None),
        ("OUT_OF_RANGE", b'{"gateway":"mast-07","channel":"cup.x","run":"r","seq":0}', None),
        ("NOT_UTF8", b"\xff\x00", None),
        ("EMPTY", None, None),
        ("FORGED", encode_reading(reading(6)), None),
        ("TIME_IN_FUTURE", in_avro(reading(8)), None),
        ("UNKNOWN_SCHEMA", in_avro(reading(10), 99), None),
        ("OVERFLOW", None, 7),
    ]
    reasons, payloads, overflow = zip(*rejected, strict=True)
    rejects = pa.table(
        {
            "reason": pa.array(reasons),
            "payload": pa.array(payloads, pa.binary()),
            "gateway": pa.array(["shed"] * len(rejected)),
            "overflow": pa.array(overflow, pa.int64()),
        }
    )
    claims = [tuple(row) for row in claimed(spark.createDataFrame(rejects), SCHEMAS).collect()]
    assert claims == [("mast-07", "cup.wind_speed", "run-1", seq, "shed") for seq in (5, 8)]
