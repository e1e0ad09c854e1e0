"""Maintenance changes how tables lie on the disk and no row of them."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from delta.exceptions import ConcurrentDeleteReadException
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession, functions as F

from spark_jobs.jobs import maintain
from spark_jobs.jobs.maintain import (
    AGED_BY,
    Compaction,
    Maintenance,
    MaintenanceOptions,
    Part,
    Report,
    compact,
    joins,
    mean_reads,
    options_of,
    parts,
)
from spark_jobs.platform import schemas
from spark_jobs.platform.errors import SettingsError
from spark_jobs.platform.intervals import TIMES
from spark_jobs.platform.schemas import ALERTS, QUARANTINE, READINGS, RECALIBRATIONS, RUNS, Table
from spark_jobs.platform.settings import Settings, parse_command
from spark_jobs.sinks.delta import ensure_table, retried, table_changes, table_version
from spark_jobs.sinks.merge import merge_alerts
from spark_jobs.sinks.readings import IngestSink
from spark_jobs.streaming.query import Source
from spark_jobs.streaming.supervisor import reason_of
from tests.spark.records import encoded, identities, kafka_frame, reading, rows_of
from tests.spark.running import SimpleJob, run_to_end
from tests.support.servers import eventually

NOW = datetime(2026, 5, 30, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("date", "small", "due"),
    [
        ("2026-05-30", 7, False),
        ("2026-05-30", 8, True),
        # A table without dates is like an open day; one that is over has no business with two small files.
        (None, 7, False),
        (None, 8, True),
        ("2026-05-29", 1, False),
        ("2026-05-29", 2, True),
    ],
)
def test_which_files_are_joined(date: str | None, small: int, due: bool) -> None:
    part = Part(date, files=60, bytes=1, newest_ms=0, small=small)
    assert joins("t", [part], "2026-05-30") == ([Compaction("t", part)] if due else [])


def test_a_day_of_many_files_is_judged_by_some_series() -> None:
    class Counted(str):
        """Counts how often it is compared."""

        compared = 0

        def __le__(self, other: str) -> bool:
            Counted.compared += 1
            return str(self) <= str(other)

    def work(files: int) -> int:
        names = [Counted(f"{number:06d}") for number in range(files + 10)]
        Counted.compared = 0
        # Each file begins with a series that the ten before it may hold too.
        found = mean_reads([[(names[at], names[at + 10])] for at in range(files)])
        assert 9.5 < found <= 11
        return Counted.compared

    # Three thousand files took 7 s in each round.
    assert work(6000) < 3 * work(3000) < 3_000_000
    assert mean_reads([]) == 0.0


@pytest.fixture
def today() -> datetime:
    """Two hours on: what the test writes is settled by then, and days are quiet."""
    return datetime.now(UTC) + timedelta(hours=2)


Day = Callable[[int], str]


@pytest.fixture
def day(today: datetime) -> Day:
    """Dates so many days ago."""
    return lambda ago: (today - timedelta(days=ago)).date().isoformat()


@pytest.fixture
def by_hand(spark: SparkSession) -> Iterator[None]:
    """Files stay as they are written."""
    spark.conf.set("spark.databricks.delta.autoCompact.enabled", "false")
    yield
    spark.conf.set("spark.databricks.delta.autoCompact.enabled", "true")


def store(spark: SparkSession, settings: Settings, date: str, files: int, rows: int) -> None:
    """Readings of one day in one commit of so many files, each with rows of all four gateways."""
    start = datetime.fromisoformat(date).replace(tzinfo=UTC).timestamp()
    number = F.col("id")
    frame = spark.range(rows).select(
        F.concat(F.lit("mast-"), number % 4).alias("gateway"),
        F.lit("cup.wind_speed").alias("channel"),
        F.lit("run-1").alias("run"),
        (number + 1).alias("seq"),
        F.timestamp_seconds(start + F.floor(number * 86_400 / rows)).alias("time"),
        F.sqrt(number).alias("value"),
        F.lit("synced").alias("clock"),
    )
    dated = frame.withColumn("date", F.to_date("time")).repartition(files)
    dated.write.format("delta").mode("append").save(ensure_table(spark, settings, READINGS))


def whole(settings: Settings) -> list[tuple[Any, ...]]:
    return sorted(
        (str(row["date"]), row["gateway"], row["channel"], row["seq"], row["value"])
        for row in rows_of(settings, "readings")
    )


def follow(spark: SparkSession, settings: Settings) -> int:
    """How many rows a reader of the change feed gets that goes on from where it stopped."""
    counts: list[int] = []
    source = Source(table_changes(spark, settings, READINGS), 0.1)
    reader = SimpleJob("reader", source, lambda rows, batch: counts.append(rows.count()))
    run_to_end(settings, reader)
    return sum(counts)


def steps(report: Report) -> list[tuple[Any, ...]]:
    return [(step["action"], step["table"], step.get("date")) for step in report.actions]


@pytest.mark.usefixtures("by_hand")
def test_a_round_changes_the_files_and_not_the_rows(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch, today: datetime, day: Day
) -> None:
    monkeypatch.setattr(maintain, "FILE_BYTES", 15_000)
    monkeypatch.setattr(maintain, "SMALL_BYTES", 5_000)
    store(spark, settings, day(3), 1, 12)
    slow = replace(settings, checkpoints=settings.checkpoints + "-slow")
    assert follow(spark, slow) == 12
    store(spark, settings, day(1), 6, 6000)
    store(spark, settings, day(0), 40, 240)
    rejects = ensure_table(spark, settings, QUARANTINE)
    came_in = spark.createDataFrame([("old", today - timedelta(days=31)), ("new", today)], ["reason", "at"])
    came_in.withColumnRenamed("at", "ingested_at").write.format("delta").mode("append").save(rejects)
    location = settings.table("readings")
    assert follow(spark, settings) == 12 + 6000 + 240
    before, version = whole(settings), table_version(spark, location)

    options = MaintenanceOptions(keep_days={"readings": 2, "quarantine": 30}, vacuum_days=0.0)
    dry = Maintenance(spark, settings, replace(options, dry_run=True), lambda: today).round()
    assert (whole(settings), table_version(spark, location)) == (before, version)
    maintenance = Maintenance(spark, settings, options, lambda: today)
    done = maintenance.round()
    assert whole(settings) == [row for row in before if row[0] != day(3)]
    assert [row["reason"] for row in rows_of(settings, "quarantine")] == ["new"]
    assert steps(dry) == [
        ("drop", "quarantine", None),
        ("drop", "readings", None),
        ("compact", "readings", day(0)),
        ("cluster", "readings", day(1)),
    ]
    assert [step for step in steps(done) if step[0] != "vacuum"] == steps(dry)

    (dropped,) = (step for step in done.actions if step["action"] == "drop" and step["table"] == "readings")
    assert (dropped["dates"], dropped["first"], dropped["files"]) == (1, day(3), 1)
    (joined,) = (step for step in done.actions if step["action"] == "compact")
    assert joined["files_before"] == 40
    assert joined["files_after"] < 20
    (clustered,) = (step for step in done.actions if step["action"] == "cluster")
    assert clustered["files_read_before"] == 6.0
    # Where a file ends depends on how well its rows are compressed.
    assert clustered["files_read_after"] <= 3.5
    # What no version needs is gone from the disk, and the sizes by which it is judged are those of the disk.
    on_disk = list(Path(location).glob("date=*/*.parquet"))
    left = parts(spark, location)
    assert sum(part.files for part in left) == len(on_disk)
    assert sum(part.bytes for part in left) == sum(file.stat().st_size for file in on_disk)
    assert f"action=drop table=readings dates=1 first={day(3)}" in done.text()

    # Nothing is left to do, and readers of the change feed get nothing of what was done.
    assert steps(maintenance.round(daily=False)) == []
    assert follow(spark, settings) == 0
    # A reader that was away for longer than files are kept fails with the remedy, and that helps.
    with pytest.raises(StreamingQueryException) as failure:
        follow(spark, slow)
    assert "its checkpoint" in reason_of(failure.value)
    shutil.rmtree(slow.checkpoint("reader"))
    assert follow(spark, slow) == 6000 + 240


def test_writers_join_what_gets_too_many(spark: SparkSession, settings: Settings, day: Day) -> None:
    spark.conf.set("spark.databricks.delta.autoCompact.minNumFiles", "5")
    try:
        for _ in range(6):
            store(spark, settings, day(0), 1, 4)
    finally:
        spark.conf.unset("spark.databricks.delta.autoCompact.minNumFiles")
    assert [found.files for found in parts(spark, settings.table("readings"))] == [2]
    assert len(rows_of(settings, "readings")) == 24


def test_every_table_that_grows_has_a_retention_and_a_name_in_the_catalog(
    spark: SparkSession, settings: Settings, today: datetime
) -> None:
    times = {"cleared_at": ALERTS, "ended": RUNS, "done_at": RECALIBRATIONS}
    for column, table in times.items():
        # What has no such time yet is going on.
        moments = [today - timedelta(days=days) for days in (401, 399)] + [None]
        rows = pa.table({"gateway": ["old", "new", "now"], column: pa.array(moments, TIMES)})
        frame = spark.createDataFrame(rows)
        if table is RUNS:
            # What it announced as dropped would count as lost.
            drops = F.expr(
                "array(struct('OLD' as reason, gateway, 'r' as run, 'c' as channel, 1L as first, 2L as last))"
            )
            with_drops = frame.where("gateway = 'old'").withColumns(
                {"gateway": F.lit("drops"), "dropped": drops}
            )
            frame = frame.unionByName(with_drops, allowMissingColumns=True).withColumn(
                "date", F.to_date(column)
            )
        frame.write.format("delta").mode("append").save(ensure_table(spark, settings, table))
    options = MaintenanceOptions(keep_days=dict.fromkeys(AGED_BY, 400))
    Maintenance(spark, settings, options, lambda: today).round()
    left = [
        spark.read.format("delta").load(settings.table(table.name)).select("gateway")
        for table in times.values()
    ]
    found = [sorted(row.gateway for row in rows.collect()) for rows in left]
    assert found == [["new", "now"], ["drops", "new", "now"], ["new", "now"]]
    tables = [table for table in vars(schemas).values() if isinstance(table, Table)]
    growing = {table.name for table in tables if table.partitioned_by_date}
    assert growing < AGED_BY.keys()


class Held:
    """A session whose frames are read only when ``go`` is there; ``started`` is there once one is."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self.started, self.go = folder / "started", folder / "go"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)

    def createDataFrame(self, rows: Any) -> DataFrame:  # noqa: N802 - Spark's name
        started, go = self.started, self.go

        def wait(batches: Iterable[Any]) -> Iterator[Any]:
            started.touch()
            eventually(go.exists, 120)
            yield from batches

        frame = self._spark.createDataFrame(rows)
        return frame.coalesce(1).mapInArrow(wait, frame.schema)


def alert(id: str, value: float) -> dict[str, Any]:
    row = dict.fromkeys(ALERTS.without("updated_at").names)
    return {**row, "id": id, "historical": False, "raised_at": 1_780_000_000_000_000, "value": value}


def alerts_of(settings: Settings) -> dict[str, float]:
    found = rows_of(settings, "alerts")
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: row["value"] for row in found}


@pytest.mark.usefixtures("by_hand")
def test_a_merge_that_meets_a_compaction_is_done_again(
    spark: SparkSession, settings: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    location = ensure_table(spark, settings, ALERTS)
    for id in ("a", "b"):
        merge_alerts(spark, location, [alert(id, 1.0)])
    held: Any = Held(spark, tmp_path)
    changed = [alert("a", 2.0), alert("b", 3.0), alert("c", 4.0)]
    failures: list[BaseException] = []

    def merge() -> None:
        try:
            merge_alerts(held, location, changed)
        except ConcurrentDeleteReadException as error:
            failures.append(error)

    caplog.set_level("INFO", "fieldgate.jobs.delta")
    merging = threading.Thread(target=merge)
    merging.start()
    eventually(held.started.exists, 120)
    (there,) = parts(spark, location)
    done = compact(spark.newSession(), location, Compaction("alerts", there))
    assert (done.numFilesRemoved, done.numFilesAdded) == (2, 1)
    held.go.touch()
    merging.join(120)
    assert failures == []
    conflicts = [record.getMessage() for record in caplog.records]
    assert len(conflicts) == 1
    assert "what=merge-alerts attempt=1" in conflicts[0]
    assert alerts_of(settings) == {"a": 2.0, "b": 3.0, "c": 4.0}


def test_conflicts_that_never_end_are_raised() -> None:
    waits: list[float] = []

    def step() -> None:
        raise ConcurrentDeleteReadException("taken")

    with pytest.raises(ConcurrentDeleteReadException):
        retried(step, "test", waits.append)
    assert len(waits) == 7
    assert all(0.5 <= wait / expected <= 1.5 for wait, expected in zip(waits, WAITS_S, strict=True))


WAITS_S = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4)


def ingest(spark: SparkSession, settings: Settings, source: Path) -> None:
    """All that is in ``source`` through the ingest sink, as the job does it."""
    sink = IngestSink(spark, settings)

    def batch(frame: DataFrame, number: int) -> None:
        query = frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        sink.write(frame, f"ingest-{query}", number)

    stream = spark.readStream.format("delta").load(str(source))
    run_to_end(settings, SimpleJob("ingest", Source(stream, 0.1), batch))


def test_a_restored_checkpoint_loses_nothing(spark: SparkSession, settings: Settings, tmp_path: Path) -> None:
    source = tmp_path / "source"

    def produce(first: int, last: int) -> None:
        values = encoded(reading(seq) for seq in range(first, last + 1))
        kafka_frame(spark, values, first_offset=first).write.format("delta").mode("append").save(str(source))

    produce(1, 3)
    ingest(spark, settings, source)
    copy = tmp_path / "copy"
    # Without its id, by which a job would take another batch of the same number for a repeat.
    shutil.copytree(settings.checkpoint("ingest"), copy, ignore=shutil.ignore_patterns("metadata"))
    # One batch more, and then a disk that forgets it; meanwhile more has come.
    produce(4, 6)
    ingest(spark, settings, source)
    produce(7, 9)
    shutil.rmtree(settings.checkpoint("ingest"))
    shutil.copytree(copy, settings.checkpoint("ingest"))
    ingest(spark, settings, source)
    assert identities(settings) == [("mast-07", "cup.wind_speed", "run-1", seq) for seq in range(1, 10)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--keep-readings", "0"], "--keep-readings must be at least 1 day"),
        (["--vacuum-after", "0s"], "--vacuum-after must be at least 1h"),
        (["--vacuum-after", "59m"], "--vacuum-after must be at least 1h"),
        (["--vacuum-after", "soon"], "'soon' is not a duration"),
    ],
)
def test_wrong_options_are_named(arguments: list[str], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        options_of(*parse_command("maintain", arguments))


def test_options_make_the_plan() -> None:
    options, settings = parse_command("maintain", ["--lake", "s3://b/lake", "--keep-readings", "400"])
    assert options_of(options, settings) == MaintenanceOptions(
        keep_days={"quarantine": 30, "readings": 400}, vacuum_days=7.0
    )
