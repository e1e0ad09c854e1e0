"""Runs jobs side by side in one Spark session, until SIGTERM or until nothing is left."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from functools import partial
from types import FrameType
from typing import ClassVar, Final

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from spark_jobs.platform.java import java_gateway, java_of
from spark_jobs.platform.metrics import serving
from spark_jobs.platform.registry import load
from spark_jobs.platform.session import running_session
from spark_jobs.platform.settings import Settings
from spark_jobs.streaming.query import BatchGate, Job, TopicsRecreatedError, start_query
from spark_jobs.streaming.supervisor import (
    ProgressMetrics,
    QueryFailedError,
    Supervised,
    reason_of,
    run_until_stopped,
)

log = logging.getLogger("fieldgate.jobs")

_DEADLINE_S: Final = 30.0
"""After a signal the process ends within this time, whatever hangs: supervisors kill after 30 s (Kubernetes)
or 90 s (systemd), and a batch that is cut short is done again at the next start."""


def _make(place: str, spark: SparkSession, settings: Settings) -> Job:
    job: Job = load(place)(spark, settings)
    return job


def _run_once(spark: SparkSession, of_all: Settings, stopping: threading.Event) -> None:
    for name, place, settings in of_all.queries():
        gate = BatchGate()
        job = _make(place, spark, settings)
        try:
            try:
                query = start_query(settings, job, gate)
            except TopicsRecreatedError:
                job.close()
                job = _make(place, spark, settings)
                query = start_query(settings, job, gate)
            progress = ProgressMetrics(spark, job.name)
            while query.isActive and not stopping.is_set():
                query.awaitTermination(1)
                progress.update(query)
            if stopping.is_set():
                gate.close()
                query.stop()
                return
            if error := gate.failure or query.exception():
                raise QueryFailedError(f"{name} failed: {reason_of(error)}") from error
            job.finish()
        finally:
            job.close()


class _Stop:
    """Stops the jobs on a signal, and the process itself when they take too long.

    Java gets the signal too, or alone: as a cluster's driver, in a process group. It would stop Spark beneath
    the batches, so it waits in a hook of its own until the jobs have ended.
    """

    class Java:
        """What Java calls: its name is py4j's."""

        implements: ClassVar = ["java.lang.Runnable"]

    def __init__(self) -> None:
        self.requested = threading.Event()
        self.done = threading.Event()

    def before_java(self, spark: SparkSession) -> None:
        """Makes the jobs end before Java does."""
        ensure_callback_server_started(java_gateway(spark))  # type: ignore[no-untyped-call]
        packages = java_of(spark)
        java, hooks = packages.java, packages.org.apache.hadoop.util.ShutdownHookManager.get()
        # A thread, never started, for its hash, which no object of ours has in Java.
        hook, seconds = java.lang.Thread(self), java.util.concurrent.TimeUnit.SECONDS
        # Before the hooks of Spark (40 and 50) and of the file systems (10).
        hooks.addShutdownHook(hook, 100, int(_DEADLINE_S), seconds)

    def run(self) -> None:
        """Called by Java when it is to end, in a thread of its own."""
        self.on_signal(signal.SIGTERM, None)
        self.done.wait(_DEADLINE_S)

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        # Java that ends after the jobs, which may take long where it archives its classes, stops none.
        if self.requested.is_set() or self.done.is_set():
            return
        self.requested.set()
        limit = threading.Timer(_DEADLINE_S, self._give_up)
        limit.daemon = True
        limit.start()

    @staticmethod
    def _give_up() -> None:
        log.error("event=jobs.stop reason=deadline not stopped after %g s", _DEADLINE_S)
        sys.stderr.flush()
        os._exit(1)


def run(settings: Settings) -> None:
    """Runs the jobs until SIGTERM or SIGINT, or with ``once`` until nothing is left.

    Raises QueryFailedError when the jobs can't go on, SettingsError when they can't be started.
    """
    stop = _Stop()
    signal.signal(signal.SIGTERM, stop.on_signal)
    with serving(settings.metrics), running_session(settings) as spark:
        # Only now: PySpark takes SIGINT for itself while it starts.
        signal.signal(signal.SIGINT, stop.on_signal)
        stop.before_java(spark)
        jobs, master = ",".join(settings.jobs), spark.sparkContext.master
        log.info("event=jobs.start jobs=%s lake=%s master=%s", jobs, settings.lake, master)
        if settings.once:
            _run_once(spark, settings, stop.requested)
        else:
            supervised = [
                Supervised(name, spark, each, partial(_make, place, spark, each))
                for name, place, each in settings.queries()
            ]
            run_until_stopped(supervised, spark, stop.requested)
    stop.done.set()
    log.info("event=jobs.stop reason=%s", "signal" if stop.requested.is_set() else "done")
