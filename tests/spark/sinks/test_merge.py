"""Rows merged by key, and tables of another layout."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession, functions as F

from spark_jobs.platform.errors import JobError
from spark_jobs.platform.frames import computed, rows_frame
from spark_jobs.platform.schemas import MAST, PRESENCE, STATISTICS
from spark_jobs.platform.settings import Settings
from spark_jobs.sinks import delta
from spark_jobs.sinks.delta import ensure_table
from spark_jobs.sinks.merge import merge_changed, starts_of
from spark_jobs.sinks.records import RecordSink
from spark_jobs.sinks.statistics import merge_statistics
from spark_jobs.transforms.records import RUN_RECORDS
from spark_jobs.transforms.statistics import begin_of, interval_statistics, missing_statistics
from tests.spark.jobs.test_records_job import run_record
from tests.spark.records import (
    KAFKA_US,
    START_US,
    kafka_frame,
    merge_records,
    reading,
    reading_table,
    rows_of,
)

NOON = datetime(2026, 5, 28, 12, tzinfo=UTC)
NUMBERS = pa.map_(pa.string(), pa.float64())
ROWS = pa.schema(
    [
        ("gateway", pa.string()),
        ("interval_s", pa.int32()),
        ("interval_start", pa.timestamp("us", tz="UTC")),
        *((name, NUMBERS) for name in ("turbulence_intensity", "wind_power_density", "pair_difference")),
        *((name, pa.float64()) for name in ("shear_alpha", "veer", "air_density", "insolation")),
        ("inputs", pa.map_(pa.string(), pa.string())),
        ("date", pa.date32()),
        ("insolation_by_channel", NUMBERS),
    ]
)


def mast(minute: int, intensity: dict[str, float], density: float | None) -> dict[str, Any]:
    return {
        "gateway": "mast-07",
        "interval_s": 60,
        "interval_start": NOON.replace(minute=minute),
        "turbulence_intensity": list(intensity.items()),
        "air_density": density,
        "date": date(2026, 5, 28),
    }


def test_only_what_changed_is_written(spark: SparkSession, settings: Settings) -> None:
    location = ensure_table(spark, settings, MAST)

    def merge(*rows: dict[str, Any]) -> dict[datetime, dict[str, Any]]:
        given = spark.createDataFrame(pa.Table.from_pylist(list(rows), schema=ROWS))
        merge_changed(location, MAST, given)
        return {row["interval_start"]: row for row in rows_of(settings, "mast")}

    before = merge(mast(0, {"a": 0.1, "b": 0.2}, 1.2), mast(1, {}, None))
    assert [row["version"] for row in before.values()] == [1, 1]
    # The same entries in another order are the same.
    after = merge(mast(0, {"b": 0.2, "a": 0.1}, 1.2), mast(1, {}, 1.1))
    unchanged, changed = NOON, NOON.replace(minute=1)
    assert after[unchanged] == before[unchanged]
    assert (after[changed]["version"], after[changed]["air_density"]) == (2, 1.1)
    assert after[changed]["updated_at"] > before[changed]["updated_at"]
    assert len(after) == 2


def run_files(settings: Settings) -> dict[str | None, set[str]]:
    """The files of ``runs`` by the day in their path."""
    found: dict[str | None, set[str]] = {}
    for uri in DeltaTable(settings.table("runs")).file_uris():
        day = re.search(r"date=(\d{4}-\d\d-\d\d)", uri)
        found.setdefault(day and day[1], set()).add(uri)
    return found


def test_runs_that_have_ended_are_not_written_again_with_those_that_go_on(
    spark: SparkSession, settings: Settings
) -> None:
    sink = RecordSink(spark, settings, RUN_RECORDS)

    def write(*records: bytes, day: int = 0) -> dict[str, tuple[str, int]]:
        at_us = KAFKA_US + day * 86_400_000_000
        merge_records(sink, kafka_frame(spark, records, kafka_us=at_us))
        rows = rows_of(settings, "runs")
        assert all((row["date"] is None) == (row["state"] == "running") for row in rows)
        assert len(rows) == len({row["run"] for row in rows})
        return {row["run"]: (row["state"], dict(row["last_seq"])["cup.wind_speed"]) for row in rows}

    write(run_record("r1", "stopped", 5), run_record("r2", "running", 1))
    before = run_files(settings)
    assert write(run_record("r2", "running", 2), run_record("r3", "running", 1), day=1)["r2"] == (
        "running",
        2,
    )
    after = run_files(settings)
    assert (set(before), after["2026-05-28"]) == ({None, "2026-05-28"}, before["2026-05-28"])
    assert after[None] != before[None]
    # One ends, and of one that has ended a record comes late.
    found = write(run_record("r2", "stopped", 3), run_record("r1", "stopped", 6), day=2)
    assert found == {"r1": ("stopped", 6), "r2": ("stopped", 3), "r3": ("running", 1)}
    assert set(run_files(settings)) == {None, "2026-05-30"}


def test_a_table_without_a_column_is_refused_with_the_way_out(
    spark: SparkSession, settings: Settings
) -> None:
    other = replace(PRESENCE, schema=PRESENCE.without("pending", "lost"))
    location = ensure_table(spark, settings, other)
    with pytest.raises(JobError, match=f"{location} lacks pending, lost: .* Move the lake"):
        ensure_table(spark, settings, PRESENCE)


def test_statistics_give_way_to_all_of_their_readings_and_to_nothing_less(
    spark: SparkSession, settings: Settings
) -> None:
    location = ensure_table(spark, settings, STATISTICS)
    names = "gateway channel: string, start_us: long, period_ms: int, unit: string"
    empty = rows_frame(spark, names, [("mast-07", "cup.wind_speed", START_US + 60_000_000, 1000, "m/s")])

    def merged(seqs: Iterable[int], ingested_at: datetime, *, missing: bool = False) -> list[tuple[Any, ...]]:
        """Version, count and mean of two minutes, after readings of these numbers alone."""
        readings = spark.createDataFrame(reading_table(reading(seq, float(seq)) for seq in seqs))
        readings = readings.withColumn("start_us", begin_of(F.unix_micros("time"), 60))
        rows = interval_statistics(readings.withColumn("ingested_at", F.lit(ingested_at)), 60)
        if missing:
            rows = rows.unionByName(missing_statistics(empty, 60))
        closed = computed(rows.withColumn("version", F.lit(1)))
        merge_statistics(spark, location, closed, starts_of(closed))
        found = sorted(rows_of(settings, "statistics"), key=lambda row: row["interval_start"])
        return [(row["version"], row["count"], row["avg"]) for row in found]

    early = datetime(2026, 5, 28, tzinfo=UTC)
    assert merged([1, 2, 3], early, missing=True) == [(1, 3, 2.0), (1, 0, None)]
    # Ten minutes are for clocks that differ.
    latest = max(row["updated_at"] for row in rows_of(settings, "statistics")) + timedelta(minutes=10)
    assert merged([1, 2], early) == [(1, 3, 2.0), (1, 0, None)]
    # The first ones have left the lake: of an interval that had none these are all there is.
    late = [5, 6, 7, 8, 61]
    assert merged(late, latest + timedelta(microseconds=1)) == [(1, 3, 2.0), (2, 1, 61.0)]
    assert merged([1, 2, 3, 4], latest)[0] == (2, 4, 2.5)


def test_a_table_that_a_kill_left_without_a_commit_is_made(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta makes the folder of its log first; whoever is killed then leaves it empty."""
    log = Path(settings.table(MAST.name), "_delta_log")
    (log / "_staged_commits").mkdir(parents=True)
    monkeypatch.setattr(delta, "_MAKING_S", 0.5)
    place = ensure_table(spark, settings, MAST)
    assert DeltaTable(place).version() == 0
    assert ensure_table(spark, settings, MAST) == place
