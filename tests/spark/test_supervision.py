"""Restarts, their limits, and stopping: the supervisor with queries that fail as told."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_jobs import metrics
from spark_jobs.errors import JobError, SettingsError
from spark_jobs.jobs import supervise
from spark_jobs.jobs.gate import Gate
from spark_jobs.jobs.supervise import QueryFailedError, Supervised, reason_of, run_until_stopped
from tests.servers import unique_name


class Rate:
    """A job on Spark's own source of numbers; ``batch`` gets the batch's number."""

    def __init__(
        self, name: str, spark: SparkSession, place: Path, batch: Callable[[int], None], gate: Gate
    ) -> None:
        self.name = name
        self._spark, self._checkpoint, self._batch, self._gate = spark, place / "checkpoint", batch, gate

    def start(self) -> StreamingQuery:
        numbers = self._spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 3).load()
        writer = numbers.writeStream.queryName(self.name).foreachBatch(
            self._gate.guard(lambda frame, number: (frame.count(), self._batch(number))[1])
        )
        return writer.option("checkpointLocation", str(self._checkpoint)).start()

    def tick(self) -> None:
        pass

    def finish(self) -> None:
        pass


def value(metric: str, query: str) -> float | None:
    return metrics.REGISTRY.get_sample_value(metric, {"query": query})


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervise, "_BACKOFF_S", (0.0,) * 6 + (60.0,))


def run(jobs: list[Supervised], spark: SparkSession, stopping: threading.Event) -> None:
    """As the program does, but looking again at once."""
    stopping.wait = lambda timeout=None: stopping.is_set()  # type: ignore[method-assign]
    run_until_stopped(jobs, spark, stopping)


def test_one_that_fails_for_ever_leaves_the_other_running(spark: SparkSession, tmp_path: Path) -> None:
    good, bad = unique_name("good"), unique_name("bad")
    stopping = threading.Event()
    attempts = 0

    def fails(gate: Gate) -> Rate:
        nonlocal attempts
        attempts += 1
        raise JobError(f"rules.toml:{attempts}: no such rule")

    def batch(number: int) -> None:
        if attempts >= 7 and (value("fieldgate_jobs_input_rows_total", good) or 0) >= 6:
            stopping.set()

    jobs = [
        Supervised(bad, spark, fails),
        Supervised(good, spark, lambda gate: Rate(good, spark, tmp_path, batch, gate)),
    ]
    run(jobs, spark, stopping)
    # Six waits of none, and then a minute.
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


def test_a_batch_that_fails_once_is_done_again(spark: SparkSession, tmp_path: Path) -> None:
    name = unique_name("again")
    stopping = threading.Event()
    numbers: list[int] = []

    def batch(number: int) -> None:
        numbers.append(number)
        if numbers == [0, 1]:
            raise ValueError("one bad moment")
        if number == 2:
            stopping.set()

    run([Supervised(name, spark, lambda gate: Rate(name, spark, tmp_path, batch, gate))], spark, stopping)
    assert numbers[:4] == [0, 1, 1, 2]
    assert value("fieldgate_jobs_restarts_total", name) == 1
    assert f'error="ValueError: one bad moment",query="{name}"' in generate_latest(metrics.REGISTRY).decode()


def test_with_nothing_left_that_runs_the_process_gives_up(spark: SparkSession) -> None:
    name = unique_name("hopeless")

    def fails(gate: Gate) -> Rate:
        raise OSError("disk full")

    with pytest.raises(QueryFailedError, match="each query failed 6 times in a row"):
        run([Supervised(name, spark, fails)], spark, threading.Event())
    assert value("fieldgate_jobs_restarts_total", name) == 6


def test_settings_that_cannot_work_end_the_first_start_only(spark: SparkSession) -> None:
    def fails(gate: Gate) -> Rate:
        raise SettingsError("no such rules file")

    job = Supervised(unique_name("settings"), spark, fails)
    with pytest.raises(SettingsError):
        job.supervise()


def test_a_reason_is_one_line() -> None:
    spark_says = "[STREAM_FAILED] boom\n=== Streaming Query ===\nIdentifier: x\nCaused by: a\nCaused by: b"
    assert reason_of(JobError(spark_says)) == ("[STREAM_FAILED] boom | Identifier: x | Caused by: b")
    assert reason_of(ValueError("bad")) == "ValueError: bad"
    assert reason_of(None) == "stopped without an error"
    assert reason_of(JobError("")) == "JobError"
