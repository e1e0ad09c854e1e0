"""What the jobs tell Prometheus; counted always, served where ``--metrics`` names an address.

Batches report what only they know (``late``, ``quarantined``, …); the supervisor adds what it sees of the
queries. prometheus_client's metrics are safe to use from any thread; all live in the driver's process.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from threading import Thread
from typing import Final
from wsgiref.simple_server import WSGIServer

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    start_http_server,
)
from prometheus_client.metrics_core import GaugeMetricFamily

from spark_jobs.errors import SettingsError

REGISTRY: Final = CollectorRegistry()
ProcessCollector(registry=REGISTRY)

_QUERY: Final = ("query",)

UP: Final = Gauge(
    "fieldgate_jobs_up", "1 while the query runs, 0 while it waits to be restarted", _QUERY, registry=REGISTRY
)
RESTARTS: Final = Counter(
    "fieldgate_jobs_restarts", "Starts of the query after a failure", _QUERY, registry=REGISTRY
)
PROGRESS_TIME: Final = Gauge(
    "fieldgate_jobs_last_progress_timestamp_seconds",
    "When the query last ended a batch or found nothing to do (Unix time)",
    _QUERY,
    registry=REGISTRY,
)
INPUT_ROWS: Final = Counter(
    "fieldgate_jobs_input_rows", "Rows the query has read from its source", _QUERY, registry=REGISTRY
)
INPUT_RATE: Final = Gauge(
    "fieldgate_jobs_input_rows_per_second",
    "Rows per second that came in before the last batch",
    _QUERY,
    registry=REGISTRY,
)
PROCESSED_RATE: Final = Gauge(
    "fieldgate_jobs_processed_rows_per_second",
    "Rows per second the last batch worked through",
    _QUERY,
    registry=REGISTRY,
)
BATCH_SECONDS: Final = Histogram(
    "fieldgate_jobs_batch_duration_seconds",
    "Duration of a batch with rows, from planning to commit",
    _QUERY,
    buckets=(0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 300),
    registry=REGISTRY,
)
LAG_OFFSETS: Final = Gauge(
    "fieldgate_jobs_lag_offsets",
    "What the query has not read yet: Kafka records, or versions of the table it follows",
    _QUERY,
    registry=REGISTRY,
)
LAG_SECONDS: Final = Gauge(
    "fieldgate_jobs_lag_seconds",
    "Age of what the query has read last, 0 when it has read everything",
    _QUERY,
    registry=REGISTRY,
)
STATE_ROWS: Final = Gauge(
    "fieldgate_jobs_state_rows",
    "Entries a query remembers between batches",
    ("query", "state"),
    registry=REGISTRY,
)
STATE_BYTES: Final = Gauge(
    "fieldgate_jobs_state_bytes", "Memory of Spark's own state stores", _QUERY, registry=REGISTRY
)
READINGS: Final = Counter("fieldgate_jobs_readings", "Readings stored", registry=REGISTRY)
REPEATED: Final = Counter("fieldgate_jobs_repeated", "Records that were stored before", registry=REGISTRY)
QUARANTINED: Final = Counter(
    "fieldgate_jobs_quarantined", "Records that went to quarantine", ("reason",), registry=REGISTRY
)
LATE: Final = Counter(
    "fieldgate_jobs_late",
    "Readings that Kafka received over 5 minutes after their time, or from an outbox",
    registry=REGISTRY,
)


@dataclass(frozen=True)
class _Failure:
    reason: str
    at: float


class _LastFailures:
    """The last error of each query as a label: one series a query, whatever the text."""

    def __init__(self) -> None:
        self._of: dict[str, _Failure] = {}

    def note(self, query: str, reason: str) -> None:
        self._of = {**self._of, query: _Failure(reason[:300], time.time())}

    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = GaugeMetricFamily(
            "fieldgate_jobs_last_failure_timestamp_seconds",
            "When the query last failed (Unix time), and with what error",
            labels=("query", "error"),
        )
        for query, failure in self._of.items():
            family.add_metric((query, failure.reason), failure.at)
        yield family


LAST_FAILURES: Final = _LastFailures()
REGISTRY.register(LAST_FAILURES)


def quarantined(reasons: Mapping[str, int]) -> None:
    """Counts records that were written to quarantine, by reason."""
    for reason, count in reasons.items():
        QUARANTINED.labels(reason).inc(count)


def state_rows(query: str, state: str, count: int) -> None:
    """Says how many entries a query remembers in one of its states."""
    STATE_ROWS.labels(query, state).set(count)


_read_up_to: Final[dict[str, float]] = {}


def read_up_to(query: str, unix_s: float) -> None:
    """Says how new (Kafka's timestamp) the newest record is that a query has read."""
    _read_up_to[query] = max(unix_s, _read_up_to.get(query, unix_s))


def age_s(query: str) -> float | None:
    """Age in seconds of what ``read_up_to`` was told last; None when it was told nothing."""
    newest = _read_up_to.get(query)
    return None if newest is None else max(0.0, time.time() - newest)


@dataclass(frozen=True)
class MetricsServer:
    """A running HTTP server; ``address`` is what it listens on, with the port it got."""

    address: str
    _server: WSGIServer
    _thread: Thread

    def stop(self) -> None:
        """Ends it; nobody is served any more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


def serve(listen: str) -> MetricsServer:
    """Serves the metrics at HOST:PORT; port 0 takes a free one. Raises SettingsError when that can't be."""
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65_535:
        raise SettingsError(f"--metrics {listen!r} is not HOST:PORT, e.g. 127.0.0.1:9108")
    try:
        server, thread = start_http_server(int(port), host or "0.0.0.0", REGISTRY)  # noqa: S104 - as asked for
    except OSError as error:
        raise SettingsError(f"--metrics {listen}: {error.strerror or error}") from error
    return MetricsServer(f"http://{host}:{server.server_port}/metrics", server, thread)
