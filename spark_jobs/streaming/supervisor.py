"""Keeps jobs running side by side: restarts what fails, logs why, and stops all of them within a deadline.

Each job has a thread that supervises it, and no other thread touches it until the jobs are to stop.

A query that fails is started again after 1, 2, 4 … 60 s, without end: the others go on, and its fault may
pass (a broker, a full disk) or be mended meanwhile (a checkpoint moved away). Only when no query is left that
runs, each of them having failed six times in a row, or when Spark itself has ended, the process gives up, so
that its supervisor starts a fresh one.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from cloud.backoff import backoff_s
from spark_jobs.platform import metrics
from spark_jobs.platform.errors import JobError, SettingsError
from spark_jobs.platform.files import Files
from spark_jobs.platform.java import is_stopped
from spark_jobs.platform.kafka_access import refusal_in
from spark_jobs.platform.settings import Settings
from spark_jobs.sinks.delta import table_version
from spark_jobs.streaming.checkpoint import VERSION_ENDED
from spark_jobs.streaming.query import PATIENCE_S, BatchGate, Job, start_query

log = logging.getLogger("fieldgate.jobs")

_FIRST_WAIT_S: Final = 1.0
_LONGEST_WAIT_S: Final = 60.0
_HOPELESS: Final = 6
"""So many failures in a row, of every query, and the process gives up."""
_HEALTHY_S: Final = 120.0
"""A query that ran so long starts with the first wait again."""
_ACCESS_S: Final = 30.0
"""A running query's permissions in Kafka are looked at so often."""
_FIRST_BATCH_S: Final = 10.0
"""The other queries wait at most so long: a backlog's batch, or a Kafka that is away, takes longer."""
_FIRST_BATCH_POLL_S: Final = 0.1
_ENDED: Final = "Spark has ended: its JVM died or its context was stopped"


_DELTA: Final = re.compile(r"DeltaSource\[(.+)\]")


class ProgressMetrics:
    """The metrics of one start of a query. Owned by the supervisor's thread, which reads it once a second.

    Polled, because a Python StreamingQueryListener gets each event through a callback of its own into this
    process, some fifty calls back to take it apart, has to be added to every session, and its exceptions are
    lost. Spark keeps the last hundred batches of a query; those that ended since the last update are read.
    """

    def __init__(self, spark: SparkSession, name: str) -> None:
        self._spark = spark
        self._name = name
        self._seen: tuple[str, int] | None = None
        self._last: Mapping[str, Any] | None = None

    def update(self, query: StreamingQuery) -> None:
        """Counts the batches that have ended since the last update, and how far behind the query is."""
        for progress in self._new(query):
            self._take(progress)
        if self._last is not None:
            self._lag(self._last, found_nothing=not query.status["isDataAvailable"])

    def _new(self, query: StreamingQuery) -> list[Mapping[str, Any]]:
        """Progress since the last update, oldest first."""
        found: list[Mapping[str, Any]] = []
        # One call for each that is read; all of them would be a hundred.
        for kept in reversed(query._jsq.recentProgress()):
            progress = json.loads(kept.json())
            if (progress["timestamp"], progress["batchId"]) == self._seen:
                break
            found.insert(0, progress)
        if found:
            self._seen = (found[-1]["timestamp"], found[-1]["batchId"])
        return found

    def _take(self, progress: Mapping[str, Any]) -> None:
        self._last = progress
        name, duration_s = self._name, progress["batchDuration"] / 1000
        began = datetime.fromisoformat(progress["timestamp"]).timestamp()
        metrics.PROGRESS_TIME.labels(name).set(began + duration_s)
        metrics.INPUT_ROWS.labels(name).inc(progress["numInputRows"])
        if progress["numInputRows"]:
            metrics.BATCH_SECONDS.labels(name).observe(duration_s)

    def _lag(self, progress: Mapping[str, Any], *, found_nothing: bool) -> None:
        sources = [] if found_nothing else [self._behind(source) for source in progress["sources"]]
        metrics.LAG_OFFSETS.labels(self._name).set(sum(offsets for offsets, _ in sources))
        ages_s = [age_s for _, age_s in sources if age_s is not None]
        if ages_s or not sources:
            metrics.LAG_SECONDS.labels(self._name).set(max(ages_s, default=0.0))

    def _behind(self, source: Mapping[str, Any]) -> tuple[int, float | None]:
        """Offsets not read yet, and the age in seconds of the oldest of them; None where it is unknown."""
        table = _DELTA.fullmatch(source["description"])
        if table is not None:
            return self._versions_behind(table[1], source["endOffset"])
        ends, latest = source.get("endOffset") or {}, source.get("latestOffset") or {}
        behind = sum(
            max(0, last - ends.get(topic, {}).get(partition, 0))
            for topic, partitions in latest.items()
            for partition, last in partitions.items()
        )
        return behind, metrics.age_s(self._name)

    def _versions_behind(self, location: str, end: Mapping[str, Any]) -> tuple[int, float]:
        first_unread = end["reservoirVersion"] + (end["index"] >= VERSION_ENDED)
        behind = table_version(self._spark, location) + 1 - first_unread
        if behind <= 0:
            return 0, 0.0
        written_ms = Files(self._spark).modified_ms(f"{location}/_delta_log/{first_unread:020d}.json")
        # A version whose log was cleaned up is of unknown age.
        return behind, 0.0 if written_ms is None else max(0.0, time.time() - written_ms / 1000)


class QueryFailedError(JobError):
    """A query that failed for good."""


def reason_of(error: BaseException | None) -> str:
    """An error in one line: of Spark's errors the beginning and the last cause."""
    if error is None:
        return "stopped without an error"
    if not isinstance(error, JobError) and (refusal := refusal_in(str(error))) is not None:
        return refusal
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith(("Caused by:", "py4j.Py4JException"))]
    begin = [line for line in lines if not line.startswith("===")][:2] or [type(error).__name__]
    if not isinstance(error, JobError) and type(error).__module__ == "builtins":
        begin[0] = f"{type(error).__name__}: {begin[0]}"
    reason = " | ".join(dict.fromkeys([*begin, *causes[-1:]]))[:1000]
    if "FAILED_READ_FILE.FILE_NOT_EXIST" in str(error):
        reason += " | the table was vacuumed before this was read: move its checkpoint away, it starts over"
    return reason


@dataclass
class Supervised:
    """One query under supervision; called by its job's name until it has one of its own."""

    name: str
    spark: SparkSession
    settings: Settings
    make: Callable[[], Job]
    failures: int = field(init=False, default=0)
    gate: BatchGate = field(init=False, default_factory=BatchGate)
    job: Job | None = field(init=False, default=None)
    query: StreamingQuery | None = field(init=False, default=None)
    _metrics: ProgressMetrics | None = field(init=False, default=None)
    _began: bool = field(init=False, default=False)
    _started_at: float = field(init=False, default=0.0)
    _retry_at: float = field(init=False, default=0.0)
    _access_at: float = field(init=False, default=0.0)

    def supervise(self) -> None:
        """One round: starts the query when that is due, handles its end, or calls the job's tick."""
        if self.query is None:
            if time.monotonic() >= self._retry_at:
                self._attempt(self._start)
        elif not self.query.isActive:
            error = self.gate.failure or self.query.exception()
            self.interrupt()
            self._fail(error)
        else:
            self._attempt(self._tick)

    def interrupt(self) -> None:
        """Ends the query, in the middle of a batch too."""
        if self.query is not None:
            self.query.stop()
        if self.job is not None:
            self.job.close()

    @property
    def hopeless(self) -> bool:
        """Whether it waits, having failed so often in a row that another process might do better."""
        return self.query is None and self.failures >= _HOPELESS

    def _start(self) -> None:
        self.gate = BatchGate()
        self._started_at = time.monotonic()
        self.job = self.make()
        self.name = self.job.name
        self.query = start_query(self.settings, self.job, self.gate)
        self._metrics = ProgressMetrics(self.spark, self.name)
        self._began = True
        metrics.UP.labels(self.name).set(1)
        log.info("event=query.start query=%s id=%s", self.name, self.query.id)

    def _tick(self) -> None:
        if self.job is None or self.query is None or self._metrics is None:
            return
        try:
            self._metrics.update(self.query)
        except Exception as error:  # noqa: BLE001 - figures that can't be had are no reason to end a query
            log.debug("event=metrics.failed query=%s %s", self.name, reason_of(error))
        if self.job.topic_ids is not None and time.monotonic() >= self._access_at:
            # Topics that may be seen no more are gone to Spark, and a query without topics is idle for ever.
            self._access_at = time.monotonic() + _ACCESS_S
            self.job.topic_ids.check(running=True)
        self.job.tick()

    def _fail(self, error: BaseException | None) -> None:
        now = time.monotonic()
        if self.query is not None and now - self._started_at > _HEALTHY_S:
            self.failures = 0
        self.query = self.job = None
        reason = reason_of(error)
        self.failures += 1
        wait_s = backoff_s(self.failures, _FIRST_WAIT_S, _LONGEST_WAIT_S)
        self._retry_at = now + wait_s
        metrics.UP.labels(self.name).set(0)
        metrics.RESTARTS.labels(self.name).inc()
        metrics.failed(self.name, reason)
        figures = self.name, self.failures, wait_s
        log.error("event=query.failed query=%s attempt=%d wait_s=%g %s", *figures, reason)

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
            self.gate.close()
            self.interrupt()
            self._fail(error)


def _ended(spark: SparkSession) -> bool:
    """Whether Spark is no more: its context stopped, or its JVM died."""
    try:
        return is_stopped(spark)
    except (Py4JError, OSError):
        return True


def run_until_stopped(
    jobs: Sequence[Supervised], spark: SparkSession, stopping: threading.Event, *, tick_s: float = 1.0
) -> None:
    """Supervises the jobs until ``stopping``. Raises QueryFailedError when none of them can go on."""
    trouble: list[Exception] = []
    threads = [
        threading.Thread(target=_supervise, args=(job, stopping, trouble, tick_s), daemon=True)
        for job in jobs
    ]
    try:
        # The order counts the first time: the first job's tables are what the next one follows.
        for job in jobs:
            if stopping.is_set():
                break
            job.supervise()
            if job is jobs[0] and len(jobs) > 1:
                _wait_for_first_batch(job, stopping)
        for thread in threads:
            thread.start()
        while not stopping.wait(tick_s):
            if _ended(spark):
                raise QueryFailedError(_ENDED)
            if trouble:
                raise trouble[0]
            if all(job.hopeless for job in jobs):
                raise QueryFailedError(f"nothing runs well: each query failed {_HOPELESS} times in a row")
    except (Py4JError, OSError) as error:
        if _ended(spark):
            raise QueryFailedError(_ENDED) from error
        raise
    finally:
        stopping.set()
        if not _ended(spark):
            _stop(jobs, threads)


def _wait_for_first_batch(job: Supervised, stopping: threading.Event) -> None:
    """Leaves the processors to a first batch, which takes longest: starting the others would double that."""
    end_s = time.monotonic() + _FIRST_BATCH_S
    while job.query is not None and job.query.isActive and job.query.lastProgress is None:
        if stopping.wait(_FIRST_BATCH_POLL_S) or time.monotonic() >= end_s:
            return


def _supervise(job: Supervised, stopping: threading.Event, trouble: list[Exception], tick_s: float) -> None:
    """Runs in a thread of its own: what one job does by the clock can take minutes, the others go on."""
    while not stopping.wait(tick_s):
        try:
            job.supervise()
        except Exception as error:  # noqa: BLE001 - the main thread's to raise
            trouble.append(error)
            return


def _stop(jobs: Sequence[Supervised], supervisors: Sequence[threading.Thread]) -> None:
    """Ends the queries between two batches; side by side, so that the wait is that of the longest."""
    deadline = time.monotonic() + PATIENCE_S
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
    with ThreadPoolExecutor(len(jobs)) as pool:
        ends = [pool.submit(job.interrupt) for job in jobs]
    for job, end in zip(jobs, ends, strict=True):
        if (error := end.exception()) is not None:
            log.warning("event=query.stop_failed query=%s %s", job.name, reason_of(error))
