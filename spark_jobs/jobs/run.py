"""Runs jobs side by side in one Spark session: start, supervise, stop."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import FrameType
from typing import Final, Protocol

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_jobs.errors import JobError
from spark_jobs.jobs.gate import Gate
from spark_jobs.jobs.registry import STREAMING, load
from spark_jobs.session import spark_session
from spark_jobs.settings import Settings

log = logging.getLogger("fieldgate.jobs")

_BACKOFF_S: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""Waits before the restarts of a query that fails again and again; after the last it is given up."""
_HEALTHY_S: Final = 120.0
"""A query that ran so long starts with the first wait again."""


class Job(Protocol):
    """A streaming query and what it needs beside its batches."""

    name: str

    def start(self) -> StreamingQuery:
        """Starts the query; with ``--once`` it ends by itself."""

    def tick(self) -> None:
        """Called about once a second while the query runs: what is due by the clock."""

    def finish(self) -> None:
        """Called after a ``--once`` query has ended."""


def _make(name: str, spark: SparkSession, settings: Settings, gate: Gate) -> Job:
    job: Job = load(STREAMING[name])(spark, settings, gate)
    return job


class QueryFailedError(JobError):
    """A query that failed for good."""


def _reason(error: BaseException | None) -> str:
    """The one line of a Spark error that says what is wrong."""
    text = str(error) if error is not None else "stopped without an error"
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("===")]
    causes = [line for line in lines if line.startswith(("Caused by:", "py4j.Py4JException"))]
    return " | ".join(dict.fromkeys([*lines[:2], *causes[-1:]]))[:1000]


@dataclass
class _Running:
    """One job under supervision."""

    make: Callable[[Gate], Job]
    name: str
    gate: Gate = field(default_factory=Gate)
    job: Job | None = None
    query: StreamingQuery | None = None
    failures: int = 0
    started_at: float = 0.0
    retry_at: float = 0.0

    def start(self) -> None:
        self.gate = Gate()
        self.job = self.make(self.gate)
        self.query = self.job.start()
        self.started_at = time.monotonic()
        log.info("event=query.start query=%s id=%s", self.name, self.query.id)

    def fail(self, error: BaseException | None) -> None:
        now = time.monotonic()
        if self.started_at and now - self.started_at > _HEALTHY_S:
            self.failures = 0
        self.query = self.job = None
        reason = _reason(error)
        if self.failures >= len(_BACKOFF_S):
            raise QueryFailedError(f"{self.name} failed {self.failures + 1} times: {reason}") from error
        wait_s = _BACKOFF_S[self.failures]
        self.failures += 1
        self.retry_at = now + wait_s
        log.error(
            "event=query.failed query=%s attempt=%d wait_s=%g %s", self.name, self.failures, wait_s, reason
        )

    def stop(self) -> None:
        """Ends the query between two batches, or within one that takes too long."""
        if self.query is not None:
            self.gate.close()
            self.query.stop()

    def supervise(self) -> None:
        if self.query is None:
            if time.monotonic() >= self.retry_at:
                self.attempt(self.start)
        elif not self.query.isActive:
            self.fail(self.query.exception())
        elif self.job is not None:
            self.attempt(self.job.tick)

    def attempt(self, step: Callable[[], None]) -> None:
        try:
            step()
        except PySparkException as error:
            self.stop()
            self.fail(error)


def _run_once(spark: SparkSession, settings: Settings, stopping: threading.Event) -> None:
    for name in settings.jobs:
        gate = Gate()
        job = _make(name, spark, settings, gate)
        query = job.start()
        while query.isActive and not stopping.is_set():
            query.awaitTermination(1)
        if stopping.is_set():
            gate.close()
            query.stop()
            return
        if error := query.exception():
            raise QueryFailedError(f"{name} failed: {_reason(error)}") from error
        job.finish()


def _run_until_stopped(spark: SparkSession, settings: Settings, stopping: threading.Event) -> None:
    running = [_Running(partial(_make, name, spark, settings), name) for name in settings.jobs]
    try:
        while not stopping.is_set():
            for job in running:
                job.supervise()
            stopping.wait(1.0)
    finally:
        # Side by side, so that the wait for the batches under way is that of the longest.
        for job in running:
            job.gate.shut()
        for job in running:
            job.stop()


def run(settings: Settings) -> None:
    """Runs the jobs until SIGTERM or SIGINT, or with ``once`` until nothing is left.

    Raises QueryFailedError when a query fails for good, SettingsError when Spark can't be started as asked.
    """
    stopping = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        stopping.set()

    signal.signal(signal.SIGTERM, stop)
    spark = spark_session(settings)
    # Only now: PySpark takes SIGINT for itself while it starts.
    signal.signal(signal.SIGINT, stop)
    log.info(
        "event=jobs.start jobs=%s lake=%s master=%s", ",".join(settings.jobs), settings.lake, settings.master
    )
    try:
        (_run_once if settings.once else _run_until_stopped)(spark, settings, stopping)
    finally:
        spark.stop()
    log.info("event=jobs.stop reason=%s", "signal" if stopping.is_set() else "done")
