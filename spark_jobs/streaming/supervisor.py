"""Keeps jobs running side by side: restarts what fails, says why, and stops all of them within a deadline.

Each job has a thread that supervises it and nothing else touches it, until the jobs are to stop.

A query that fails is started again after 1, 2, 4 … 60 s, for ever: the others go on, and what ails it may
pass (a broker, a full disk) or be mended meanwhile (a checkpoint moved away). Only when no query is left that
runs well, each of them has failed six times in a row, or Spark itself has ended, the process gives up, so
that whoever started it begins with a fresh one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_jobs import metrics
from spark_jobs.errors import JobError, SettingsError
from spark_jobs.streaming.batch_gate import Gate
from spark_jobs.streaming.progress import Watch

log = logging.getLogger("fieldgate.jobs")

_BACKOFF_S: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 60.0)
"""Waits before the restarts of a query that fails again and again; the last one is kept."""
_HOPELESS: Final = 6
"""So many failures in a row, of every query, and the process gives up."""
_HEALTHY_S: Final = 120.0
"""A query that ran so long starts with the first wait again."""
_PATIENCE_S: Final = 15.0
"""How long batches under way may take to end once the jobs are to stop; then they are interrupted."""


class Job(Protocol):
    """A streaming query and what it needs beside its batches."""

    name: str

    def start(self) -> StreamingQuery:
        """Starts the query; with ``--once`` it ends by itself."""

    def tick(self) -> None:
        """Called about once a second while the query runs: what is due by the clock."""

    def finish(self) -> None:
        """Called after a ``--once`` query has ended."""


class QueryFailedError(JobError):
    """A query that failed for good."""


def reason_of(error: BaseException | None) -> str:
    """The one line of an error that says what is wrong: of Spark's, its beginning and its last cause."""
    if error is None:
        return "stopped without an error"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith(("Caused by:", "py4j.Py4JException"))]
    said = [line for line in lines if not line.startswith("===")][:2] or [type(error).__name__]
    if not isinstance(error, JobError) and type(error).__module__ == "builtins":
        said[0] = f"{type(error).__name__}: {said[0]}"
    told = " | ".join(dict.fromkeys([*said, *causes[-1:]]))[:1000]
    if "FAILED_READ_FILE.FILE_NOT_EXIST" in str(error):
        told += " | the table was vacuumed before this was read: move its checkpoint away, it begins anew"
    return told


@dataclass
class Supervised:
    """One query under supervision; called as its job until it has a name."""

    name: str
    spark: SparkSession
    make: Callable[[Gate], Job]
    failures: int = 0
    gate: Gate = field(default_factory=Gate)
    job: Job | None = None
    query: StreamingQuery | None = None
    _watch: Watch | None = None
    _began: bool = False
    _started_at: float = 0.0
    _retry_at: float = 0.0

    def supervise(self) -> None:
        """Looks after the job once: starts it when that is due, notices its end, lets it tick."""
        if self.query is None:
            if time.monotonic() >= self._retry_at:
                self._attempt(self._start)
        elif not self.query.isActive:
            self._fail(self.gate.failure or self.query.exception())
        elif self.job is not None and self._watch is not None:
            self._look(self._watch, self.query)
            self._attempt(self.job.tick)

    def interrupt(self) -> None:
        """Ends the query, whatever it does."""
        if self.query is not None:
            self.query.stop()

    @property
    def hopeless(self) -> bool:
        """Whether it waits, having failed so often in a row that another process might do better."""
        return self.query is None and self.failures >= _HOPELESS

    def _start(self) -> None:
        self.gate = Gate()
        self._started_at = time.monotonic()
        self.job = self.make(self.gate)
        self.name = self.job.name
        self.query = self.job.start()
        self._watch = Watch(self.spark, self.name)
        self._began = True
        metrics.UP.labels(self.name).set(1)
        log.info("event=query.start query=%s id=%s", self.name, self.query.id)

    def _fail(self, error: BaseException | None) -> None:
        now = time.monotonic()
        if self.query is not None and now - self._started_at > _HEALTHY_S:
            self.failures = 0
        self.query = self.job = None
        reason = reason_of(error)
        wait_s = _BACKOFF_S[min(self.failures, len(_BACKOFF_S) - 1)]
        self.failures += 1
        self._retry_at = now + wait_s
        metrics.UP.labels(self.name).set(0)
        metrics.RESTARTS.labels(self.name).inc()
        metrics.LAST_FAILURES.note(self.name, reason)
        log.error(
            "event=query.failed query=%s attempt=%d wait_s=%g %s", self.name, self.failures, wait_s, reason
        )

    def _look(self, watch: Watch, query: StreamingQuery) -> None:
        try:
            watch.look(query)
        except Exception as error:  # noqa: BLE001 - figures that can't be had are no reason to end a query
            log.debug("event=metrics.failed query=%s %s", self.name, reason_of(error))

    def _attempt(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as error:  # the supervisor's: one job's fault must not end the others
            if isinstance(error, SettingsError) and not self._began:
                raise
            if self.gate.is_shut:
                # Being stopped, and Spark with it: what is cut short is done again at the next start.
                log.info("event=query.cut_short query=%s %s", self.name, reason_of(error))
                return
            self.gate.shut()
            self.gate.wait(time.monotonic() + _PATIENCE_S)
            self.interrupt()
            self._fail(error)


def _ended(spark: SparkSession) -> bool:
    """Whether Spark is no more: its context stopped, or its JVM died."""
    try:
        return bool(spark.sparkContext._jsc.sc().isStopped())
    except (Py4JError, OSError):
        return True


def run_until_stopped(
    jobs: Sequence[Supervised], spark: SparkSession, stopping: threading.Event, *, look_every_s: float = 1.0
) -> None:
    """Supervises the jobs until ``stopping``. Raises QueryFailedError when none of them can go on."""
    trouble: list[Exception] = []
    threads = [
        threading.Thread(target=_look_after, args=(job, stopping, trouble, look_every_s), daemon=True)
        for job in jobs
    ]
    try:
        # In order the first time: the first job's tables are what the next one follows.
        for job in jobs:
            job.supervise()
        for thread in threads:
            thread.start()
        while not stopping.wait(look_every_s):
            if _ended(spark):
                raise QueryFailedError("Spark has ended: its JVM died or its context was stopped")
            if trouble:
                raise trouble[0]
            if all(job.hopeless for job in jobs):
                raise QueryFailedError(f"nothing runs well: each query failed {_HOPELESS} times in a row")
    except (Py4JError, OSError) as error:
        if _ended(spark):
            raise QueryFailedError("Spark has ended: its JVM died or its context was stopped") from error
        raise
    finally:
        stopping.set()
        if not _ended(spark):
            _stop(jobs, threads)


def _look_after(
    job: Supervised, stopping: threading.Event, trouble: list[Exception], look_every_s: float
) -> None:
    """In a thread of its own: what one job does by the clock can take minutes, the others go on."""
    while not stopping.wait(look_every_s):
        try:
            job.supervise()
        except Exception as error:  # noqa: BLE001 - the main thread's to raise
            trouble.append(error)
            return


def _stop(jobs: Sequence[Supervised], supervisors: Sequence[threading.Thread]) -> None:
    """Ends the queries between two batches; side by side, so that the wait is that of the longest."""
    deadline = time.monotonic() + _PATIENCE_S
    for job in jobs:
        job.gate.shut()
    for thread in supervisors:
        if thread.is_alive():
            thread.join(max(0.0, deadline - time.monotonic()))
    # Again: one may have been about to start a query.
    for job in jobs:
        job.gate.shut()
    for job in jobs:
        if not job.gate.wait(deadline):
            log.warning("event=query.interrupted query=%s its batch will be done again", job.name)
    threads = [threading.Thread(target=_interrupt, args=(job,), daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _interrupt(job: Supervised) -> None:
    try:
        job.interrupt()
    except Exception as error:  # noqa: BLE001 - the process ends; the others are still to be stopped
        log.warning("event=query.stop_failed query=%s %s", job.name, reason_of(error))
