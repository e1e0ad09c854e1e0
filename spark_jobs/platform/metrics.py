"""Prometheus metrics of the jobs; counted always, served where ``--metrics`` names an address.

Batches count what happens in them (``late``, ``quarantined``, …); the supervisor adds the queries' progress.
prometheus_client's metrics are safe to use from any thread; all live in the driver's process.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    start_http_server,
)

from spark_jobs.platform.errors import SettingsError

log = logging.getLogger("fieldgate.jobs")

REGISTRY: Final = CollectorRegistry()
ProcessCollector(registry=REGISTRY)

_gauge = partial(Gauge, registry=REGISTRY)
_query_gauge = partial(_gauge, labelnames=("query",))
_query_counter = partial(Counter, labelnames=("query",), registry=REGISTRY)
_counter = partial(Counter, registry=REGISTRY)

UP: Final = _query_gauge("fieldgate_jobs_up", "1 while the query runs, 0 while it waits to be restarted")
RESTARTS: Final = _query_counter("fieldgate_jobs_restarts", "Starts of the query after a failure")
PROGRESS_TIME: Final = _query_gauge(
    "fieldgate_jobs_last_progress_timestamp_seconds",
    "When the query last ended a batch or found nothing to do (Unix time)",
)
INPUT_ROWS: Final = _query_counter("fieldgate_jobs_input_rows", "Rows the query has read from its source")
BATCH_SECONDS: Final = Histogram(
    "fieldgate_jobs_batch_duration_seconds",
    "Duration of a batch with rows, from planning to commit",
    ("query",),
    buckets=(0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 300),
    registry=REGISTRY,
)
LAG_OFFSETS: Final = _query_gauge(
    "fieldgate_jobs_lag_offsets",
    "What the query has not read yet: Kafka records, or versions of the table it follows",
)
LAG_SECONDS: Final = _query_gauge(
    "fieldgate_jobs_lag_seconds", "Age of what the query has read last, 0 when it has read everything"
)
STATE_ROWS: Final = _gauge(
    "fieldgate_jobs_state_rows", "Entries a query remembers between batches", ("query", "state")
)
LAST_FAILURE: Final = _gauge(
    "fieldgate_jobs_last_failure_timestamp_seconds",
    "When the query last failed (Unix time), and with what error",
    ("query", "error"),
)
READINGS: Final = _counter("fieldgate_jobs_readings", "Readings stored")
REPEATED: Final = _counter("fieldgate_jobs_repeated", "Records that were stored before")
QUARANTINED: Final = _counter(
    "fieldgate_jobs_quarantined", "Records that went to quarantine", labelnames=("reason",)
)
SET_ASIDE: Final = _query_counter(
    "fieldgate_jobs_set_aside", "Records, or masts' parts of a batch, that made the batch fail"
)
LATE: Final = _counter(
    "fieldgate_jobs_late", "Readings that Kafka received over 5 minutes after their time, or as replayed"
)

_last_errors: Final[dict[str, str]] = {}
_read_up_to: Final[dict[str, float]] = {}


def failed(query: str, reason: str) -> None:
    """Sets the last error of a query: one series a query, whatever the text."""
    before, _last_errors[query] = _last_errors.get(query), reason[:300]
    LAST_FAILURE.labels(query, reason[:300]).set_to_current_time()
    if before not in (None, reason[:300]):
        LAST_FAILURE.remove(query, before)


def quarantined(reasons: Mapping[str, int]) -> None:
    """Counts records that were written to quarantine, by reason."""
    for reason, count in reasons.items():
        QUARANTINED.labels(reason).inc(count)


def read_up_to(query: str, unix_s: float) -> None:
    """Notes Kafka's timestamp of the newest record that a query has read."""
    _read_up_to[query] = max(unix_s, _read_up_to.get(query, unix_s))


def age_s(query: str) -> float | None:
    """Age in seconds of the newest record that the query has read; None before any."""
    newest = _read_up_to.get(query)
    return None if newest is None else max(0.0, time.time() - newest)


@contextmanager
def serving(listen: str | None) -> Iterator[None]:
    """Serves the metrics at HOST:PORT meanwhile, or not; port 0 takes a free one. Raises SettingsError."""
    if listen is None:
        yield
        return
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65_535:
        raise SettingsError(f"--metrics {listen!r} is not HOST:PORT, e.g. 127.0.0.1:9108")
    try:
        server, thread = start_http_server(int(port), host or "0.0.0.0", REGISTRY)  # noqa: S104 - the user's
    except OSError as error:
        raise SettingsError(f"--metrics {listen}: {error.strerror or error}") from error
    log.info("event=metrics.listen address=http://%s:%d/metrics", host, server.server_port)
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
