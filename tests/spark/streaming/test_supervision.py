"""Restarts, their limits, and stopping: the supervisor with queries that fail on demand."""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from prometheus_client import generate_latest
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.jobs import run as run_module
from spark_jobs.platform import metrics
from spark_jobs.platform.errors import JobError, SettingsError
from spark_jobs.platform.registry import STREAMING
from spark_jobs.platform.session import _cores, _slots
from spark_jobs.platform.settings import Settings
from spark_jobs.streaming import supervisor
from spark_jobs.streaming.query import Job, Source
from spark_jobs.streaming.supervisor import QueryFailedError, Supervised, reason_of, run_until_stopped
from tests.support.servers import eventually, unique_name


class Rate(Job):
    """A job on Spark's own source of numbers; ``batch`` gets the batch's number."""

    def __init__(self, name: str, spark: SparkSession, batch: Callable[[int], None]) -> None:
        self.name = name
        self._spark, self._batch = spark, batch

    def source(self) -> Source:
        numbers = self._spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 3).load()
        return Source(numbers, 0.0)

    def batch(self, rows: DataFrame, number: int) -> None:
        rows.count()
        self._batch(number)


def value(metric: str, query: str) -> float | None:
    return metrics.REGISTRY.get_sample_value(metric, {"query": query})


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, once=False)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "backoff_s", lambda failures, *_: 0.0 if failures <= 6 else 3600.0)


def run(jobs: list[Supervised], spark: SparkSession, stopping: threading.Event) -> None:
    """As the program does, but with short rounds."""
    run_until_stopped(jobs, spark, stopping, tick_s=0.02)


def test_one_that_fails_for_ever_leaves_the_other_running(spark: SparkSession, settings: Settings) -> None:
    good, bad = unique_name("good"), unique_name("bad")
    stopping = threading.Event()
    attempts = 0

    def fails() -> Rate:
        nonlocal attempts
        attempts += 1
        raise JobError(f"rules.toml:{attempts}: no such rule")

    def batch(number: int) -> None:
        if attempts >= 7 and (value("fieldgate_jobs_input_rows_total", good) or 0) >= 6:
            stopping.set()

    jobs = [
        Supervised(bad, spark, settings, fails),
        Supervised(good, spark, settings, lambda: Rate(good, spark, batch)),
    ]
    run(jobs, spark, stopping)
    # Six waits of none, and then a long one.
    assert attempts == 7
    assert (value("fieldgate_jobs_up", bad), value("fieldgate_jobs_up", good)) == (0, 1)
    assert value("fieldgate_jobs_restarts_total", bad) == 7
    assert value("fieldgate_jobs_restarts_total", good) is None
    text = generate_latest(metrics.REGISTRY).decode()
    assert f'error="rules.toml:7: no such rule",query="{bad}"' in text
    assert "rules.toml:6" not in text
    rows = value("fieldgate_jobs_input_rows_total", good)
    assert rows is not None
    assert rows % 3 == 0
    assert value("fieldgate_jobs_batch_duration_seconds_count", good) == rows / 3


def test_a_batch_that_fails_once_is_done_again(spark: SparkSession, settings: Settings) -> None:
    name = unique_name("again")
    stopping = threading.Event()
    numbers: list[int] = []

    def batch(number: int) -> None:
        numbers.append(number)
        if numbers == [0, 1]:
            raise RuntimeError("a bad moment")
        if number == 2:
            stopping.set()

    run([Supervised(name, spark, settings, lambda: Rate(name, spark, batch))], spark, stopping)
    assert numbers[:4] == [0, 1, 1, 2]
    assert value("fieldgate_jobs_restarts_total", name) == 1
    assert f'error="RuntimeError: a bad moment",query="{name}"' in generate_latest(metrics.REGISTRY).decode()


def test_the_others_start_after_the_first_ones_first_batch(spark: SparkSession, settings: Settings) -> None:
    first, second = unique_name("first"), unique_name("second")
    stopping = threading.Event()
    order: list[str] = []

    def follow() -> Rate:
        order.append("second starts")
        return Rate(second, spark, lambda _: stopping.set())

    jobs = [
        Supervised(first, spark, settings, lambda: Rate(first, spark, lambda _: order.append("batch"))),
        Supervised(second, spark, settings, follow),
    ]
    run(jobs, spark, stopping)
    assert order[0] == "batch"
    assert "second starts" in order


def test_run_records_go_first_only_where_all_is_read_once(settings: Settings) -> None:
    def classes(**changes: Any) -> list[str]:
        changed = replace(settings, jobs=("ingest", "statistics"), **changes)
        return [place.rpartition(":")[2] for _, place, _ in changed.queries()]

    assert classes() == ["IngestJob", "RecordsJob", "StatisticsJob"]
    assert classes(once=True) == ["RecordsJob", "IngestJob", "StatisticsJob"]


def test_what_is_cut_short_by_the_end_is_no_failure(spark: SparkSession, settings: Settings) -> None:
    name = unique_name("cut")
    stopping = threading.Event()
    cut: list[bool] = []

    class Busy(Rate):
        def tick(self) -> None:
            stopping.set()
            cut.append(eventually(lambda: job.gate.is_shut))
            raise RuntimeError("Spark has ended under it")

    job = Supervised(name, spark, settings, lambda: Busy(name, spark, print))
    run([job], spark, stopping)
    assert cut == [True]
    assert value("fieldgate_jobs_restarts_total", name) in (None, 0)


def test_with_nothing_left_that_runs_the_process_gives_up(spark: SparkSession, settings: Settings) -> None:
    name = unique_name("hopeless")

    def fails() -> Rate:
        raise OSError("disk full")

    with pytest.raises(QueryFailedError, match="each query failed 6 times in a row"):
        run([Supervised(name, spark, settings, fails)], spark, threading.Event())
    # It may have been started once more before it was to stop.
    assert value("fieldgate_jobs_restarts_total", name) in (6, 7)


def test_settings_that_cannot_work_end_the_first_start_only(spark: SparkSession, settings: Settings) -> None:
    def fails() -> Rate:
        raise SettingsError("no such rules file")

    job = Supervised(unique_name("settings"), spark, settings, fails)
    with pytest.raises(SettingsError):
        job.supervise()


def test_tasks_that_wait_leave_room_for_another_query(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    """As many as a query has at a time wait, as they do for a Kafka that is away."""
    waiting, go_on = tmp_path / "waiting", tmp_path / "go-on"
    waiting.mkdir()

    def wait(frames: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        (waiting / uuid.uuid4().hex).touch()
        while not go_on.exists():
            time.sleep(0.05)
        yield from frames

    cores = _cores(settings.master)
    numbers = spark.range(0, 10, 1, cores)
    blocked = threading.Thread(target=lambda: numbers.mapInArrow(wait, "id long").count())
    blocked.start()
    answers: list[int] = []
    other = threading.Thread(target=lambda: answers.append(spark.range(0, 1000, 1, cores).count()))
    try:
        eventually(lambda: len(list(waiting.iterdir())), until=lambda tasks: tasks == cores)
        other.start()
        other.join(120)
        assert answers == [1000]
        assert blocked.is_alive()
    finally:
        go_on.touch()
        blocked.join()


def test_each_query_has_slots_of_its_own_on_local_cores_only(settings: Settings) -> None:
    def slots(master: str, *jobs: str) -> str:
        return _slots(replace(settings, master=master, jobs=jobs))

    queries = sum(len(STREAMING[name].split()) for name in ("ingest", "statistics"))
    assert slots("local[3]", "ingest", "statistics") == f"local[{3 * queries}]"
    assert slots("local[2]", "statistics") == "local[2]"
    assert slots("local[2]") == "local[2]"
    for master in ("local", "local[*]", "local-cluster[2,1,1024]", "spark://127.0.0.1:7077"):
        assert slots(master, "ingest", "statistics") == master


def test_a_program_that_does_not_stop_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[int] = []
    ended = threading.Event()
    monkeypatch.setattr(run_module, "_DEADLINE_S", 0.01)

    def exit_now(code: int) -> None:
        codes.append(code)
        ended.set()

    monkeypatch.setattr(os, "_exit", exit_now)
    stop = run_module._Stop()
    stop.on_signal(15, None)
    stop.on_signal(15, None)
    assert stop.requested.is_set()
    assert ended.wait(30)
    assert codes == [1]


def test_java_that_ends_after_the_jobs_has_all_the_time_it_takes() -> None:
    stop = run_module._Stop()
    stop.done.set()
    stop.run()
    assert not stop.requested.is_set()


def test_a_reason_is_one_line() -> None:
    spark_says = "[STREAM_FAILED] boom\n=== Streaming Query ===\nIdentifier: x\nCaused by: a\nCaused by: b"
    assert reason_of(JobError(spark_says)) == ("[STREAM_FAILED] boom | Identifier: x | Caused by: b")
    assert reason_of(ValueError("bad")) == "ValueError: bad"
    assert reason_of(None) == "stopped without an error"
    assert reason_of(JobError("")) == "JobError"
