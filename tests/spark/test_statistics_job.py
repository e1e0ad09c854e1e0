"""The statistics job: open rows carried on from sums, and closed beside the query."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_jobs.jobs import statistics
from spark_jobs.schemas import STATISTICS
from spark_jobs.settings import Settings
from spark_jobs.sinks.delta import latest_version
from spark_jobs.sinks.readings import IngestSink
from tests.spark.records import reading
from tests.spark.running import started
from tests.spark.test_jobs import rows, store


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


def computed(caplog: pytest.LogCaptureFixture) -> list[tuple[int, int]]:
    """How many rows each batch since the last time had, and how many of them were computed whole."""
    logged = [text for text in caplog.messages if "event=statistics.computed cause=batch" in text]
    caplog.clear()
    return [
        (int(text.partition("intervals=")[2].split()[0]), int(text.partition("whole=")[2].split()[0]))
        for text in logged
    ]


def test_an_open_row_is_carried_on_in_order_and_computed_after_anything_else(
    spark: SparkSession, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="fieldgate.jobs.statistics")
    settings = replace(settings, once=False)
    sink = IngestSink(spark, settings)
    with running(spark, settings) as (_, query):
        for at, value in enumerate((4.0, 6.0, 8.0)):
            store(spark, sink, [reading(at + 1, value)], at)
            query.processAllAvailable()
        assert rows(settings) == {0: (0, 3, 6.0)}
        assert computed(caplog) == [(1, 0), (1, 0), (1, 0)]

    # What was counted before a restart is in the table only.
    with running(spark, settings) as (job, query):
        store(spark, sink, [reading(4, 2.0)], 3)
        query.processAllAvailable()
        assert rows(settings) == {0: (0, 4, 5.0)}
        # An interval that begins after it is carried on again.
        store(spark, sink, [reading(61, 1.0), reading(63, 3.0)], 4)
        query.processAllAvailable()
        store(spark, sink, [reading(64, 8.0)], 5)
        query.processAllAvailable()
        assert rows(settings) == {0: (0, 4, 5.0), 1: (0, 3, 4.0)}
        job.tick()
        assert rows(settings) == {0: (1, 4, 5.0), 1: (0, 3, 4.0)}
        assert computed(caplog) == [(1, 1), (1, 0), (1, 0)]
        # A late reading, and then one in order.
        store(spark, sink, [reading(62, 0.0)], 6)
        query.processAllAvailable()
        store(spark, sink, [reading(65, 3.0)], 7)
        query.processAllAvailable()
        assert rows(settings) == {0: (1, 4, 5.0), 1: (0, 5, 3.0)}
        assert computed(caplog) == [(1, 1), (1, 1)]


def test_a_batch_too_large_to_pass_the_driver_is_computed_whole(
    spark: SparkSession, settings: Settings, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, logger="fieldgate.jobs.statistics")
    monkeypatch.setattr(statistics, "_MOST_ROWS", 2)
    settings = replace(settings, once=False)
    sink = IngestSink(spark, settings)
    with running(spark, settings) as (_, query):
        for at, seqs in enumerate(((1, 2), (3, 4, 5), (6,))):
            store(spark, sink, [reading(seq, float(seq)) for seq in seqs], at)
            query.processAllAvailable()
    assert rows(settings) == {0: (0, 6, 3.5)}
    assert computed(caplog) == [(1, 0), (1, 1), (1, 1)]


def test_what_is_over_is_closed_beside_the_query_and_by_the_next_job(
    spark: SparkSession, settings: Settings
) -> None:
    settings = replace(settings, once=False)
    sink = IngestSink(spark, settings)
    with running(spark, settings) as (job, query):
        store(spark, sink, [reading(1, 4.0)], 0)
        query.processAllAvailable()
        # Its last reading and the first one of the next come together.
        store(spark, sink, [reading(2, 6.0), reading(61, 1.0)], 1)
        query.processAllAvailable()
        assert rows(settings) == {0: (0, 2, 5.0), 1: (0, 1, 1.0)}
    # Killed before it closed the first.
    with running(spark, settings) as (job, query):
        job.tick()
        assert rows(settings) == {0: (0, 2, 5.0), 1: (0, 1, 1.0)}
        store(spark, sink, [reading(62, 3.0)], 2)
        query.processAllAvailable()
        job.tick()
        assert rows(settings) == {0: (1, 2, 5.0), 1: (0, 2, 2.0)}
    job.finish()
    assert rows(settings) == {0: (1, 2, 5.0), 1: (1, 2, 2.0)}


def test_only_open_intervals_are_carried_on(spark: SparkSession, settings: Settings) -> None:
    settings = replace(settings, once=False)
    sink = IngestSink(spark, settings)
    with running(spark, settings) as (job, query):
        # A backlog: all but the last are over as soon as they arrive.
        store(spark, sink, [reading(1, 4.0), reading(61, 1.0), reading(121, 2.0)], 0)
        query.processAllAvailable()
        assert rows(settings) == {0: (1, 1, 4.0), 1: (1, 1, 1.0), 2: (0, 1, 2.0)}
        assert len(job._running) == 1
        store(spark, sink, [reading(122, 2.0), reading(181, 3.0)], 1)
        query.processAllAvailable()
        assert len(job._running) == 2
        job.tick()
        assert len(job._running) == 1
        job.finish()
        assert len(job._running) == 0


def test_closing_is_one_merge_also_beside_a_gap(spark: SparkSession, settings: Settings) -> None:
    """What is missing was written with the open row: closing must not read for it again, nor rewrite it."""
    settings = replace(settings, once=False)
    sink = IngestSink(spark, settings)
    location = settings.table(STATISTICS.name)
    with running(spark, settings) as (job, query):
        # Each 90 s, in intervals of 60 s: every third interval has no sample due.
        for at, seq in enumerate((1, 5, 6)):
            store(spark, sink, [reading(seq, 1.0, period_ms=90_000)], at)
            query.processAllAvailable()
            before = latest_version(spark, location)
            job.tick()
            assert latest_version(spark, location) == before + (at > 0)
    assert {at: version for at, (version, *_) in rows(settings).items()} == {
        **dict.fromkeys((0, 1, 6), 1),
        **dict.fromkeys((3, 4), 1),
        7: 0,
    }


def test_once_closes_as_it_goes(spark: SparkSession, settings: Settings) -> None:
    sink = IngestSink(spark, settings)
    for at in range(2):
        store(spark, sink, [reading(60 * at + 1, 1.0), reading(60 * at + 2, 3.0)], at)
        job = statistics.StatisticsJob(spark, settings)
        query = started(settings, job)
        query.awaitTermination()
        assert query.exception() is None
        # As it is killed before it ends, the newest stays open.
        assert rows(settings) == {**dict.fromkeys(range(at), (1, 2, 2.0)), at: (0, 2, 2.0)}


def test_a_reading_that_comes_while_its_interval_is_being_closed_is_not_taken_back(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = replace(settings, once=False)
    sink = IngestSink(spark, settings)
    with running(spark, settings) as (job, query):
        store(spark, sink, [reading(1, 4.0)], 0)
        query.processAllAvailable()
        store(spark, sink, [reading(61, 1.0)], 1)
        query.processAllAvailable()

        compute = job._rows

        def compute_before_it_comes(*given: Any) -> Any:
            monkeypatch.undo()
            found = compute(*given)
            store(spark, sink, [reading(2, 6.0)], 2)
            query.processAllAvailable()
            return found

        monkeypatch.setattr(job, "_rows", compute_before_it_comes)
        job.tick()
        assert rows(settings) == {0: (1, 2, 5.0), 1: (0, 1, 1.0)}
