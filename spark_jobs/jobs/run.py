"""Runs jobs side by side in one Spark session, until SIGTERM or until nothing is left."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
from functools import partial
from types import FrameType
from typing import Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from spark_jobs.metrics import MetricsServer, serve
from spark_jobs.registry import STREAMING, load
from spark_jobs.session import spark_session
from spark_jobs.settings import Settings
from spark_jobs.streaming.batch_gate import BatchGate
from spark_jobs.streaming.progress import ProgressMetrics
from spark_jobs.streaming.query import Job, start_query
from spark_jobs.streaming.supervisor import QueryFailedError, Supervised, reason_of, run_until_stopped

log = logging.getLogger("fieldgate.jobs")

_DEADLINE_S: Final = 30.0
"""After a signal the process ends within this time, whatever hangs: supervisors kill after 30 s (Kubernetes)
or 90 s (systemd), and a batch that is cut short is done again at the next start."""


def _queries(settings: Settings) -> list[tuple[str, str]]:
    """Each query of the jobs that were named: what it is called until it has a name, and its class.

    With ``once`` the run records go before the readings: what they report as arrived is then among these.
    Otherwise the readings start first: the other queries follow them.
    """
    order = 1 if settings.once else -1
    return [(name, place) for name in settings.jobs for place in STREAMING[name].split()[::order]]


def _make(place: str, spark: SparkSession, settings: Settings) -> Job:
    job: Job = load(place)(spark, settings)
    return job


def _run_once(spark: SparkSession, settings: Settings, stopping: threading.Event) -> None:
    for name, place in _queries(settings):
        gate = BatchGate()
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


class _Stop:
    """Stops the jobs on a signal, and the process itself when they take too long."""

    def __init__(self) -> None:
        self.asked = threading.Event()

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.asked.is_set():
            return
        self.asked.set()
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

    Raises QueryFailedError when the jobs can't go on, SettingsError when they can't be started as asked.
    """
    stop = _Stop()
    signal.signal(signal.SIGTERM, stop.on_signal)
    server: MetricsServer | None = serve(settings.metrics) if settings.metrics else None
    if server is not None:
        log.info("event=metrics.listen address=%s", server.address)
    try:
        spark = spark_session(settings)
        # Only now: PySpark takes SIGINT for itself while it starts.
        signal.signal(signal.SIGINT, stop.on_signal)
        _run(spark, settings, stop.asked)
    finally:
        if server is not None:
            server.stop()
    log.info("event=jobs.stop reason=%s", "signal" if stop.asked.is_set() else "done")


def _run(spark: SparkSession, settings: Settings, stopping: threading.Event) -> None:
    log.info(
        "event=jobs.start jobs=%s lake=%s master=%s",
        ",".join(settings.jobs),
        settings.lake,
        spark.sparkContext.master,
    )
    try:
        if settings.once:
            _run_once(spark, settings, stopping)
        else:
            jobs = [
                Supervised(name, spark, settings, partial(_make, place, spark, settings))
                for name, place in _queries(settings)
            ]
            run_until_stopped(jobs, spark, stopping)
    finally:
        # A Java that has died can't be stopped any more, and that it died is being raised.
        with contextlib.suppress(Py4JError, OSError):
            spark.stop()
