"""A query's progress as metrics, read by the supervisor about once a second.

Polled, because a Python StreamingQueryListener gets each event through a callback of its own into this
process, some fifty calls back to take it apart, has to be added to every session, and its exceptions are
lost. Spark keeps the last hundred batches of a query; those that ended since the last update are read once.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_jobs.platform import metrics
from spark_jobs.platform.files import Files
from spark_jobs.sinks.delta import table_version
from spark_jobs.streaming.checkpoint import VERSION_ENDED

_DELTA: Final = re.compile(r"DeltaSource\[(.+)\]")


class ProgressMetrics:
    """The metrics of one start of a query. Owned by the supervisor's thread."""

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
