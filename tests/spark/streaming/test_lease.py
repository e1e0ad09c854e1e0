"""One writer at a time, wherever it runs; and one that was left behind writes nothing more."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from delta.exceptions import ConcurrentTransactionException
from pyspark.sql import SparkSession

from cloud.wire.status_records import StatusRecord, encode_status
from spark_jobs.jobs.ingest import LEASE, TABLES
from spark_jobs.platform.schemas import SEEN, STATUS
from spark_jobs.platform.settings import Settings
from spark_jobs.sinks import delta, readings as readings_sink
from spark_jobs.sinks.delta import (
    FencedError,
    ensure_table,
    fence,
    table_version,
    write as write_plainly,
    write_once,
    writing_as,
)
from spark_jobs.sinks.readings import BatchCounts, IngestSink
from spark_jobs.sinks.records import RecordSink
from spark_jobs.streaming import lease as lease_module
from spark_jobs.streaming.lease import EXPIRES_S, RENEW_S, Lease, LeaseTakenError
from spark_jobs.transforms.records import STATUS_RECORDS
from tests.spark.records import encoded, identities, kafka_frame, merge_records, reading, rows_of

Leases = Callable[..., Lease]


class Clock:
    """Wall time that passes while somebody waits; ``meanwhile`` is done each time."""

    def __init__(self) -> None:
        self.now_s = 1_795_000_000.0
        self.meanwhile: Callable[[], Any] = lambda: None

    def __call__(self) -> float:
        return self.now_s

    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        self.meanwhile()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    # No thread renews: the tests do.
    monkeypatch.setattr(Lease, "_keep", lambda self: None)
    return Clock()


@pytest.fixture
def elsewhere(
    spark: SparkSession, settings: Settings, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> Leases:
    """Leases as other processes have them, whatever their machine."""

    def made(job: str = "ingest", *, wall: Callable[[], float] = clock) -> Lease:
        with monkeypatch.context() as other:
            other.setattr(lease_module, "_TOKEN", uuid.uuid4().hex)
            return Lease(spark, settings, LEASE, job, wall, clock.wait)

    return made


def test_a_second_one_is_refused_while_the_first_renews(elsewhere: Leases, clock: Clock) -> None:
    first, second = elsewhere(), elsewhere("replay")
    first.take()
    began_s, renewed_s = clock.now_s, [clock.now_s]

    def renew() -> None:
        if clock.now_s - renewed_s[0] >= RENEW_S:
            renewed_s[0] = clock.now_s
            first.renew()

    clock.meanwhile = renew
    with pytest.raises(LeaseTakenError, match=r"^ingest \(process \d+ on .+\) writes the readings of .*stop"):
        second.take()
    assert clock.now_s - began_s <= RENEW_S + 1
    # Whatever its clock shows: a machine whose clock is wrong takes nothing from one that lives.
    with pytest.raises(LeaseTakenError):
        elsewhere(wall=lambda: clock.now_s + 3600).take()
    first.give_back()
    began_s = clock.now_s
    second.take()
    assert clock.now_s == began_s


def test_one_that_was_killed_is_replaced(elsewhere: Leases, clock: Clock, settings: Settings) -> None:
    elsewhere().take()
    began_s = clock.now_s
    second = elsewhere()
    second.take()
    assert EXPIRES_S <= clock.now_s - began_s <= EXPIRES_S + 1
    # After a longer time it is only seen whether it lives, with another clock.
    clock.now_s += 3600
    began_s = clock.now_s
    third = elsewhere()
    third.take()
    assert 2 * (RENEW_S + 1) > clock.now_s - began_s > RENEW_S
    # A query that is restarted in its process doesn't wait for itself; a replay in it does.
    again = Lease(third._spark, settings, LEASE, "ingest", clock, clock.wait)
    again._me = replace(third._me)
    began_s = clock.now_s
    again.take()
    assert (clock.now_s, again._me.epoch > third._me.epoch) == (began_s, True)
    for lost in (second, third):
        with pytest.raises(LeaseTakenError, match="writes the readings"):
            lost.renew()
        lost.give_back()
    again.renew()
    # A power cut may leave a file of zeros: nobody holds that.
    (newest,) = sorted(Path(settings.lake, "_lease", LEASE).glob("0*"))[-1:]
    newest.write_bytes(bytes(newest.stat().st_size))
    Path(newest.parent, f".{newest.name}.crc").unlink(missing_ok=True)
    began_s = clock.now_s
    elsewhere().take()
    assert clock.now_s == began_s


def test_of_two_that_take_it_at_once_one_does(
    elsewhere: Leases, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = elsewhere(), elsewhere()
    # The second has looked before the first wrote.
    monkeypatch.setattr(second, "_last", lambda: (0, None))
    first.take()
    with pytest.raises(LeaseTakenError):
        second.take()
    first.renew()
    files = Path(settings.lake, "_lease", LEASE).glob("0*")
    assert [json.loads(file.read_text())["token"] for file in sorted(files)] == [first._me.token] * 2


def test_a_renewal_that_finds_another_holder_ends_the_query(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_module, "RENEW_S", 0.01)
    suspended = Lease(spark, settings, LEASE, "ingest")
    suspended.take()
    monkeypatch.setattr(lease_module, "_TOKEN", "another process")
    for patience in ("EXPIRES_S", "_WATCHED_S"):
        monkeypatch.setattr(lease_module, patience, -1.0)
    after = Lease(spark, settings, LEASE, "ingest")
    while not after._keeper.is_alive():
        # The first renews very often.
        with suppress(LeaseTakenError):
            after.take()
    suspended._keeper.join(30)
    with pytest.raises(LeaseTakenError):
        suspended.next_write()
    after.give_back()


def feed(sink: IngestSink, spark: SparkSession, seqs: range, lease: Lease) -> BatchCounts:
    """A batch of readings and one reject; the kth reading is at offset k."""
    frame = kafka_frame(spark, [*encoded(map(reading, seqs)), b"bad"], first_offset=seqs[0])
    return sink.write(frame, *lease.next_write())


def test_a_writer_that_was_suspended_writes_nothing_more(
    spark: SparkSession, settings: Settings, elsewhere: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readings_sink, "_COMPACT_EVERY", 1)
    first, second = elsewhere(), elsewhere()
    first.take(TABLES)
    old = IngestSink(spark, settings)
    feed(old, spark, range(1, 3), first)
    # It sleeps for longer than the lease, and wakes before the other one has written anything.
    second.take(TABLES)
    new = IngestSink(spark, settings)
    before = [table_version(spark, settings.table(table.name)) for table in TABLES]
    # A batch and, woken in the middle of one, the readings and the ranges of it alone.
    with pytest.raises(FencedError, match="taken over"):
        feed(old, spark, range(3, 6), first)
    good = kafka_frame(spark, encoded(map(reading, range(3, 6))), first_offset=3)
    with pytest.raises(FencedError):
        old.write(good, *first.next_write())
    range_of_one = {"gateway": "mast-07", "channel": "cup.wind_speed", "run": "run-1", "first": 1, "last": 1}
    old._unstored = [pa.Table.from_pylist([range_of_one])]
    with pytest.raises(FencedError):
        old.flush()
    assert [table_version(spark, settings.table(table.name)) for table in TABLES] == before
    assert feed(new, spark, range(3, 6), second).readings == 3
    assert identities(settings) == [("mast-07", "cup.wind_speed", "run-1", seq) for seq in range(1, 6)]


def test_records_are_fenced_too(spark: SparkSession, settings: Settings) -> None:
    sink = RecordSink(spark, settings, STATUS_RECORDS)
    location = settings.table(STATUS.name)

    def write(number: int) -> int:
        record = encode_status(StatusRecord("mast-07", "online", f"run-{number}"))
        with writing_as(spark, location, "fieldgate-records", number):
            return merge_records(sink, kafka_frame(spark, [record]))[0]

    fence(spark, location, "fieldgate-records", 20)
    with pytest.raises(FencedError):
        write(11)
    assert write(21) == 1
    assert sorted(row["run"] for row in rows_of(settings, STATUS.name)) == ["run-21"]
    # What other jobs write in this session has no number.
    fence(spark, location, "fieldgate-records", 30)
    write_plainly(spark.read.format("delta").load(location), location)
    assert len(rows_of(settings, STATUS.name)) == 2


def test_a_commit_under_way_is_fenced(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = ensure_table(spark, settings, SEEN)
    rows = spark.createDataFrame([("m", "c", "r", 1, 2, 3)], SEEN.schema).coalesce(1)
    fence(spark, location, "app", 10)
    with pytest.raises(FencedError):
        fence(spark, location, "app", 9)
    look = delta._refuse_fenced

    def look_before_it_is_fenced(*asked: Any) -> bool:
        monkeypatch.undo()
        seen = look(*asked)
        fence(spark, location, "app", 20)
        return seen

    monkeypatch.setattr(delta, "_refuse_fenced", look_before_it_is_fenced)
    with pytest.raises(ConcurrentTransactionException):
        write_once(rows, location, "app", 11)

    def look_before_another_writes(*asked: Any) -> bool:
        write_plainly(rows, location)
        return look(*asked)

    # What others commit is no conflict.
    monkeypatch.setattr(delta, "_refuse_fenced", look_before_another_writes)
    versions = [write_once(rows, location, "app", 21), write_once(rows, location, "app", 21)]
    assert versions == [table_version(spark, location) - 1] * 2
    assert len(rows_of(settings, SEEN.name)) == 3


def test_a_fence_holds_without_checksums_too(spark: SparkSession, settings: Settings) -> None:
    location = ensure_table(spark, settings, SEEN)
    rows = spark.createDataFrame([("m", "c", "r", 1, 2, 3)], SEEN.schema).coalesce(1)
    fence(spark, location, "app", 10)
    for checksum in Path(location, "_delta_log").glob("*.crc"):
        checksum.unlink()
    jvm: Any = spark._jvm
    jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    assert not delta.snapshot(spark, location).checksumOpt().isDefined()
    with pytest.raises(FencedError):
        write_once(rows, location, "app", 9)
    assert write_once(rows, location, "app", 11) == 2
