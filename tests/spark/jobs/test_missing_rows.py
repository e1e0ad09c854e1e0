"""Missing intervals in the table itself: late readings, records that come later, a restart in between."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from cloud.wire.reading_records import Reading
from spark_jobs.jobs import statistics
from spark_jobs.jobs.statistics import MissingIntervals, StatisticsJob
from spark_jobs.platform.intervals import DAY_US
from spark_jobs.platform.schemas import CHANNELS, READINGS, STATISTICS
from spark_jobs.platform.settings import Settings
from tests.spark.records import START_US, append_readings, append_rows, reading, rows_of
from tests.spark.running import run_to_end

M = 60_000_000
CUP, BARO, VANE = "cup.wind_speed", "dht.temperature", "vane.wind_direction"


def minute(at: int, channel: str, period_ms: int = 1000) -> Reading:
    """One reading at the beginning of a minute; each has a seq of its own."""
    return reading(at + 1, float(at), channel=channel, at_us=START_US + at * M, period_ms=period_ms)


def run(spark: SparkSession, settings: Settings, readings: Iterable[Reading]) -> None:
    append_readings(spark, settings, readings)
    once = replace(settings, once=True)
    run_to_end(once, StatisticsJob(spark, once))


def store(
    spark: SparkSession,
    settings: Settings,
    channel: str,
    *minutes: tuple[float, float | None],
    gateway: str = "mast-07",
) -> None:
    """A record that was in force in these times, in minutes."""

    def time(at: float | None) -> datetime | None:
        return None if at is None else datetime.fromtimestamp((START_US + at * M) / 1e6, UTC)

    periods = [{"begin": time(begin), "end": time(end)} for begin, end in minutes]
    row = {
        "gateway": gateway, "channel": channel, "cal": "5d1c0a7e", "periods": periods, "revision": 1,
        "in_force": minutes[-1][1] is None, "interval_s": 2.0, "unit": "m/s", "updated_at": datetime.now(UTC),
    }  # fmt: skip
    append_rows(spark, settings, CHANNELS, [row])


def rows(settings: Settings) -> dict[str, dict[int, tuple[int, float, int]]]:
    """By channel and minute: count, samples expected, version."""
    found: dict[str, dict[int, tuple[int, float, int]]] = {}
    for row in sorted(rows_of(settings, "statistics"), key=lambda row: row["interval_start"]):
        at = (round(row["interval_start"].timestamp() * 1e6) - START_US) // M
        found.setdefault(row["channel"], {})[at] = (row["count"], row["expected"], row["version"])
    return found


def test_what_retention_has_dropped_stays_away_and_changes_before_a_lost_state_are_followed(
    spark: SparkSession, settings: Settings, full: bool
) -> None:
    """A day of one mast leaves; then the state is lost, as at an upgrade of a version that had none."""
    if not full:
        pytest.skip("only with --full: test_statistics_job.py has a lost state, and readings that have left")
    midnight = -(START_US % DAY_US) // M

    def early(*minutes: int) -> list[Reading]:
        seqs = ((at, at - midnight + 9) for at in minutes)
        return [reading(seq, channel=BARO, gateway="mast-08", at_us=START_US + at * M) for at, seq in seqs]

    run(spark, settings, [*early(midnight - 3, midnight + 2), minute(0, CUP), minute(5, CUP)])
    assert sorted(rows(settings)[BARO]) == list(range(midnight - 3, midnight + 3))
    assert sorted(rows(settings)[CUP]) == [0, 1, 2, 3, 4, 5]
    statistics = DeltaTable.forPath(spark, settings.table(STATISTICS.name))
    statistics.delete(f"unix_micros(interval_start) < {START_US + midnight * M}")
    # A record that comes later has nothing to add to the day that is gone.
    store(spark, settings, BARO, (midnight - 99, None), gateway="mast-08")
    run(spark, settings, early(midnight + 4))
    assert sorted(rows(settings)[BARO]) == list(range(midnight, midnight + 5))

    shutil.rmtree(settings.table("_progress_60s"))
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]
    store(spark, settings, CUP, (0, 1.5), (4, None))
    run(spark, settings, [minute(6, CUP)])
    assert sorted(rows(settings)[CUP]) == [0, 4, 5, 6]
    assert sorted(rows(settings)[BARO]) == list(range(midnight, midnight + 5))


def test_years_without_readings_take_few_merges(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    """A station with a dead clock: each of twelve channels has one reading of 2020 beside those of today."""
    settings, merges = replace(settings, interval_s=3600), list[int]()
    whole = MissingIntervals._merge

    def merge(missing: MissingIntervals, rows: DataFrame, starts_us: Collection[int]) -> None:
        merges.append(len(starts_us))
        whole(missing, rows, starts_us)

    monkeypatch.setattr(MissingIntervals, "_merge", merge)
    before_us = START_US - 300 * DAY_US
    names = [f"cup-{number}.wind_speed" for number in range(12)]
    long_ago = [reading(1, channel=name, at_us=START_US - 2300 * DAY_US) for name in names]
    now = [reading(at + 2, channel=name, at_us=before_us + at * 60 * M) for name in names for at in range(2)]
    run(spark, settings, [*long_ago, *now])
    assert len(merges) == 1
    assert len(rows_of(settings, "statistics")) == 12 * (3 + 23)
    if not full:
        return
    # An outage of 300 days, of all of them: the rows are there, in parts that fit into memory.
    merges.clear()
    monkeypatch.setattr(statistics, "_PART", 4_000)
    back = [reading(9, channel=name, at_us=START_US) for name in names[:2]]
    run(spark, settings, back)
    assert len(merges) <= 12 * 300 * 24 // 4_000 + 3
    assert sum(merges) >= 300 * 24 - 3


def test_a_mast_that_comes_back_after_months_holds_nobody_up(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass writes a part of its rows, a restart goes on, and a late reading among what is owed counts."""
    monkeypatch.setattr(statistics, "_EACH", 200, raising=False)
    settings = replace(settings, interval_s=21_600, once=False)
    before_us = START_US - 100 * DAY_US
    others = [reading(at + 1, gateway="mast-08", at_us=START_US - (3 - 3 * at) * 360 * M) for at in range(2)]
    long_ago = [reading(1, channel=CUP, at_us=before_us), reading(1, channel=BARO, at_us=before_us)]
    back = [reading(9, channel=CUP, at_us=START_US), reading(9, channel=BARO, at_us=START_US)]

    def starts(gateway: str, *, data: bool = False) -> list[datetime]:
        rows = [row for row in rows_of(settings, "statistics") if row["gateway"] == gateway]
        return sorted(row["interval_start"] for row in rows if row["channel"] == CUP and data <= row["count"])

    def passed(version: int, *readings: Reading) -> StatisticsJob:
        """A job that has just started, after a batch of these."""
        append_readings(spark, settings, readings)
        feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", version)
        job = StatisticsJob(spark, settings)
        job.batch(feed.load(settings.table(READINGS.name)), version)
        return job

    passed(1, *long_ago, others[0])
    job = passed(2, *back, others[1])
    assert len(starts("mast-08")) == 4
    assert 2 < len(starts("mast-07")) <= 103
    job.settle()
    assert 103 < len(starts("mast-07")) <= 205
    # Among what is owed, after a restart.
    job = passed(3, reading(5, channel=CUP, at_us=before_us + 10 * DAY_US))
    job.finish()
    found = starts("mast-07")
    assert found == [found[0] + at * timedelta(hours=6) for at in range(401)]
    assert len(starts("mast-07", data=True)) == 3
