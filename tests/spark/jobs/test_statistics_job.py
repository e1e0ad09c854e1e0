"""The statistics job: what it closes and when, open rows, what it goes on from, readings that have left."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_jobs.jobs import statistics
from spark_jobs.platform.intervals import now_us
from spark_jobs.platform.schemas import READINGS, STATISTICS
from spark_jobs.platform.settings import Settings
from spark_jobs.sinks.delta import latest_version
from spark_jobs.sinks.statistics import Progress
from spark_jobs.transforms.statistics import interval_statistics, touched_intervals
from tests.spark.jobs.test_jobs import M, rows
from tests.spark.records import START_US, append_readings, reading, rows_of
from tests.spark.running import run_to_end, started


@contextmanager
def running(
    spark: SparkSession, settings: Settings
) -> Iterator[tuple[statistics.StatisticsJob, StreamingQuery]]:
    job = statistics.StatisticsJob(spark, settings)
    query = started(settings, job)
    try:
        yield job, query
    finally:
        query.stop()


class Clock:
    """The job's: it stands still."""

    us = now_us()

    def __call__(self) -> int:
        return self.us


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(statistics, "now_us", found)
    return found


def test_open_rows_come_now_and_then_and_closed_ones_with_the_next_reading(
    spark: SparkSession, settings: Settings, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing is closed by silence, however long a busy machine takes.
    clock.us = now_us()
    settings = replace(settings, once=False, open_every_s=0.0)
    with running(spark, settings) as (job, query):
        append_readings(spark, settings, [reading(1, 4.0)])
        query.processAllAvailable()
        # That it is open is shown once, and not what comes later: it is not to be.
        assert rows(settings) == {0: (0, 1, 4.0)}
        append_readings(spark, settings, [reading(2, 6.0)])
        query.processAllAvailable()
        job.tick()
        assert rows(settings) == {0: (0, 1, 4.0)}
        job.show_open()
        assert rows(settings) == {0: (0, 2, 5.0)}
        # Its last reading and those of the next come together: all but the last are over as they arrive.
        backlog = [reading(3, 8.0), *(reading(60 * at + 1, float(at)) for at in (1, 2, 3, 4))]
        append_readings(spark, settings, backlog)
        query.processAllAvailable()
        assert rows(settings) == {
            0: (1, 3, 6.0),
            **{at: (1, 1, float(at)) for at in (1, 2, 3)},
            4: (0, 1, 4.0),
        }

    # Started again it goes on; what is open is shown if there is news.
    settings = replace(settings, open_every_s=0.001)
    monkeypatch.setattr(statistics, "_RESTS", 0.0)
    with running(spark, settings) as (job, query):
        job.tick()
        assert rows(settings)[4] == (0, 1, 4.0)
        version = latest_version(spark, settings.table(STATISTICS.name))
        job.tick()
        assert latest_version(spark, settings.table(STATISTICS.name)) == version
        append_readings(spark, settings, [reading(242, 5.0)])
        query.processAllAvailable()
        monkeypatch.setattr(statistics, "_RESTS", 1e6)
        job.tick()
        assert rows(settings)[4] == (0, 2, 4.5)

        # What is closed while its open row is being computed stays closed.
        compute = interval_statistics

        def compute_and_close(*given: Any) -> Any:
            monkeypatch.undo()
            found = compute(*given)
            found = found.localCheckpoint()
            append_readings(spark, settings, [reading(243, 6.0), reading(301, 1.0)])
            query.processAllAvailable()
            return found

        monkeypatch.setattr(statistics, "interval_statistics", compute_and_close)
        job.show_open()
        assert rows(settings)[4] == (1, 3, 5.0)

        # After a computation that took long it rests.
        append_readings(spark, settings, [reading(302, 3.0)])
        query.processAllAvailable()
        job.tick()
        assert rows(settings)[5] == (0, 1, 1.0)


def test_silence_closes_a_minute_after_the_end_and_the_last_reading(
    spark: SparkSession, settings: Settings, clock: Clock
) -> None:
    settings = replace(settings, once=False)
    twin = "twin.wind_speed"
    with running(spark, settings) as (job, query):
        clock.us = now_us()
        append_readings(spark, settings, [reading(1), reading(1, channel=twin)])
        query.processAllAvailable()
        job.settle()
        # Its end is long ago, but it may still be coming in.
        assert sorted(row["version"] for row in rows_of(settings, "statistics")) == [0, 0]
        clock.us = now_us() + 61_000_000
        job.settle()
        assert sorted(row["version"] for row in rows_of(settings, "statistics")) == [1, 1]
        # One goes on: its newest interval is where the other is missing once it is over, and not before.
        # The other one's come late: they are corrections.
        clock.us = now_us()
        append_readings(spark, settings, [reading(121), reading(2, 9.25, channel=twin)])
        query.processAllAvailable()
        job.settle()

        def missing() -> dict[str, list[int]]:
            found: dict[str, list[int]] = {}
            for row in sorted(rows_of(settings, "statistics"), key=lambda row: row["interval_start"]):
                if not row["count"]:
                    at = (round(row["interval_start"].timestamp() * 1e6) - START_US) // M
                    found.setdefault(row["channel"], []).append(at)
            return found

        assert missing() == {"cup.wind_speed": [1], twin: [1]}
        clock.us = now_us() + 61_000_000
        job.settle()
        assert missing() == {"cup.wind_speed": [1], twin: [1, 2]}
        (row,) = (
            row for row in rows_of(settings, "statistics") if row["channel"] == twin and row["count"] == 2
        )
        assert (row["version"], row["avg"]) == (2, 8.25)


def test_a_gateway_that_fell_silent_is_missing_if_it_was_live(
    spark: SparkSession, settings: Settings, clock: Clock, full: bool
) -> None:
    if not full:
        pytest.skip("only with --full: the silence of single channels is closed above")
    # Of a month each minute would be a row.
    length_us = 10 * M
    settings = replace(settings, once=False, interval_s=600)
    begin_us = now_us() // length_us * length_us - 3 * length_us
    with running(spark, settings) as (job, query):
        live = [reading(at + 1, gateway="live", at_us=begin_us + at * length_us) for at in (0, 1)]
        replayed = [reading(1, gateway="old"), reading(601, gateway="old")]
        append_readings(spark, settings, [*live, *replayed], kafka_us=now_us())
        query.processAllAvailable()

        def after_s(seconds: float) -> list[tuple[str, int]]:
            """What is missing so long after the end of the last interval with readings."""
            clock.us = begin_us + 2 * length_us + int(seconds * 1e6)
            job.settle()
            return sorted(
                (row["gateway"], (round(row["interval_start"].timestamp() * 1e6) - begin_us) // length_us)
                for row in rows_of(settings, "statistics")
                if not row["count"]
            )

        # Rows stay: before that there were none either.
        assert after_s(1495.0) == []
        # A quarter of an hour after the end of the interval that is missing.
        assert after_s(1501.0) == [("live", 2)]
        # A late reading, of an interval that is closed hours after it, makes no replay of a live mast.
        clock.us += 7_200_000_000
        late = [reading(3, gateway="live", at_us=begin_us + M)]
        append_readings(spark, settings, late, kafka_us=now_us())
        query.processAllAvailable()
        assert len(after_s(40 * 86_400.0)) == 31 * 144 - 1


def test_it_goes_on_from_a_lake_without_its_state_or_rows(spark: SparkSession, settings: Settings) -> None:
    """Its open rows may be of intervals that are over."""
    settings = replace(settings, once=False)
    with running(spark, settings) as (_, query):
        append_readings(spark, settings, [reading(1, 4.0), reading(241, 2.0), reading(301, 6.0)])
        query.processAllAvailable()
    table = DeltaTable.forPath(spark, settings.table(STATISTICS.name))
    table.update(f"unix_micros(interval_start) = {START_US + 4 * M}", {"version": "0"})
    shutil.rmtree(settings.table("_progress_60s"))
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]
    with running(spark, settings) as (_, query):
        assert rows(settings)[4] == (1, 1, 2.0)
        assert rows(settings)[5] == (0, 1, 6.0)
        append_readings(spark, settings, [reading(302, 8.0), reading(421, 1.0)])
        query.processAllAvailable()
        assert rows(settings) == {
            0: (1, 1, 4.0),
            **dict.fromkeys((1, 2, 3, 6), (1, 0, None)),
            4: (1, 1, 2.0),
            5: (1, 2, 7.0),
            7: (0, 1, 1.0),
        }
    # The table itself was removed, and its state beside it and the checkpoint were left.
    before = rows(settings)
    shutil.rmtree(settings.table("statistics"))
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]
    with running(spark, settings):
        assert rows(settings) == before
    # The checkpoint is lost: all readings come again, and nothing changes.
    written = rows_of(settings, "statistics")
    shutil.rmtree(settings.checkpoints)
    with running(spark, settings) as (_, query):
        query.processAllAvailable()
    assert sorted(map(repr, rows_of(settings, "statistics"))) == sorted(map(repr, written))


def test_an_open_row_whose_readings_have_left_is_closed_as_it_is(
    spark: SparkSession, settings: Settings
) -> None:
    settings = replace(settings, once=False, open_every_s=0.0)
    with running(spark, settings) as (_, query):
        append_readings(spark, settings, [reading(1, 4.0), reading(2, 6.0)])
        query.processAllAvailable()
        assert rows(settings) == {0: (0, 2, 5.0)}
        DeltaTable.forPath(spark, settings.table(READINGS.name)).delete()
        append_readings(spark, settings, [reading(61, 1.0)])
        query.processAllAvailable()
        assert rows(settings) == {0: (1, 2, 5.0), 1: (0, 1, 1.0)}


@pytest.mark.parametrize("broken", ["merge", "missing", "state"])
def test_what_is_cut_short_between_two_writes_is_finished_by_the_next_start(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch, broken: str, full: bool
) -> None:
    if broken != "state" and not full:
        pytest.skip("only with --full: a minute each")
    places: dict[str, tuple[Any, str]] = {
        "merge": (statistics, "merge_statistics"),
        "missing": (statistics.MissingIntervals, "_merge"),
        "state": (Progress, "add"),
    }
    twin = "twin.wind_speed"
    batches = [
        [reading(1, 4.0), reading(2, 6.0), reading(1, 3.0, channel=twin)],
        # The twin misses what the cup goes on by, without a reading in the batch.
        [reading(3, 8.0), reading(61, 1.0), reading(301, 2.0)],
    ]
    cuts = 0
    for at, batch in enumerate(batches):
        append_readings(spark, settings, batch)
        feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", at + 1)
        changes = feed.load(settings.table(READINGS.name))
        with monkeypatch.context() as cut:
            place, name = places[broken]
            whole = getattr(place, name)

            def then_killed(*given: Any, whole: Any = whole, **named: Any) -> None:
                nonlocal cuts
                whole(*given, **named)
                cuts += 1
                raise KeyboardInterrupt

            cut.setattr(place, name, then_killed)
            job = statistics.StatisticsJob(spark, settings)
            with suppress(KeyboardInterrupt):
                job.batch(changes, at)
                job.finish()
        # The batch comes again, with what has been done of it.
        job = statistics.StatisticsJob(spark, settings)
        job.batch(changes, at)
        job.finish()
    written = {(row["channel"], row["interval_start"]): row for row in rows_of(settings, "statistics")}
    found = [
        [
            (row["version"], row["count"], row["avg"])
            for (name, _), row in sorted(written.items())
            if name == each
        ]
        for each in ("cup.wind_speed", twin)
    ]
    missing = (1, 0, None)
    assert found == [
        [(2, 3, 6.0), (1, 1, 1.0), missing, missing, missing, (1, 1, 2.0)],
        [(1, 1, 3.0), *[missing] * 5],
    ]
    assert cuts


@pytest.mark.parametrize("is_more_coming", [False, True])
def test_a_run_that_ends_closes_what_is_open_with_its_last_batch(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch, *, is_more_coming: bool
) -> None:
    append_readings(spark, settings, [reading(1, 4.0), reading(61, 5.0)])
    passes: list[Any] = []
    compute, touched = interval_statistics, touched_intervals

    def counted(*given: Any) -> Any:
        passes.append(given)
        return compute(*given)

    def touched_and_more(*given: Any) -> Any:
        if is_more_coming and not passes:
            # By a replay, say: after the run has planned its batches.
            append_readings(spark, settings, [reading(62, 7.0)])
        return touched(*given)

    monkeypatch.setattr(statistics, "interval_statistics", counted)
    monkeypatch.setattr(statistics, "touched_intervals", touched_and_more)
    run_to_end(settings, statistics.StatisticsJob(spark, settings))
    assert len(passes) == (2 if is_more_coming else 1)
    newest = (2, 6.0) if is_more_coming else (1, 5.0)
    assert rows(settings) == {0: (1, 1, 4.0), 1: (1, *newest)}
    run_to_end(settings, statistics.StatisticsJob(spark, settings))
    assert rows(settings) == {0: (1, 1, 4.0), 1: (1, *newest)}
