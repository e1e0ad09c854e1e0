"""``statistics``: readings to interval statistics.

New readings say which intervals to compute again; these are computed whole, from the table, and no others.
So late readings correct what they touch, and a batch that runs twice computes the same. Configured channels
get rows for the intervals they have no readings in (``jobs.missing``).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own name for it
from pyspark.sql.streaming.query import StreamingQuery

from spark_jobs.jobs.gate import Gate
from spark_jobs.jobs.missing import MissingIntervals
from spark_jobs.jobs.pace import Pace
from spark_jobs.jobs.query import start_query
from spark_jobs.schemas import READINGS, STATISTICS
from spark_jobs.session import small_batch_session
from spark_jobs.settings import Settings
from spark_jobs.sinks.delta import ensure_table
from spark_jobs.sinks.statistics import delete_missing, merge_statistics
from spark_jobs.sources.changes import table_changes
from spark_jobs.sources.configured import ConfiguredChannels
from spark_jobs.sources.readings import interval_frame, readings_in
from spark_jobs.sources.statistics import StatisticsRows
from spark_jobs.state.intervals import Interval, OpenIntervals
from spark_jobs.transforms.statistics import interval_statistics, touched_intervals

log = logging.getLogger("fieldgate.jobs.statistics")

_TRIGGER_S: Final = 0.5
"""Looks for new readings so often at most: it follows ``ingest``, which sets the pace."""
_TICK_S: Final = 5.0
_PART: Final = 50_000
"""Intervals computed and merged at a time."""


class StatisticsJob:
    """One run of the query; after a failure, make a new one."""

    def __init__(self, spark: SparkSession, settings: Settings, gate: Gate) -> None:
        self._gate = gate
        self.name = f"statistics-{settings.interval_s}s"
        self._spark = spark = small_batch_session(spark)
        self._settings = settings
        ensure_table(spark, settings, READINGS)
        self._location = ensure_table(spark, settings, STATISTICS)
        # The query's thread computes what new readings touch, the supervisor's what silence closes.
        self._lock = threading.Lock()
        self._closed: Mapping[Interval, bool] = {}
        self._table = StatisticsRows(spark, self._location, settings.interval_s)
        self._missing = MissingIntervals(
            settings.interval_s,
            self._table,
            ConfiguredChannels(spark, settings),
            self._merge,
            partial(delete_missing, spark, self._location, settings.interval_s),
        )
        self._intervals = OpenIntervals(settings.interval_s)
        self._restore()
        self._pace = Pace(_TICK_S, at_once=False)

    def start(self) -> StreamingQuery:
        """Starts the query."""
        stream = table_changes(self._spark, self._settings, READINGS)
        pace_s = min(_TRIGGER_S, self._settings.trigger_s)
        return start_query(
            self._settings,
            self.name,
            stream,
            self._batch,
            self._gate,
            trigger_s=pace_s,
            follows=(READINGS,),
        )

    def tick(self) -> None:
        """Closes the intervals of channels that went silent."""
        if not self._pace.due():
            return
        with self._lock:
            now_s, wall_us = time.monotonic(), time.time_ns() // 1000
            self._compute(self._intervals.silent(wall_us, now_s), "silence")
            self._log_missing(self._missing.silent(now_s, wall_us), "silence")

    def finish(self) -> None:
        """Closes what is open: nothing more will come in this run."""
        with self._lock:
            self._compute(self._intervals.all(), "end")
            self._log_missing(self._missing.all(), "end")

    def _restore(self) -> None:
        started = time.monotonic()
        for row in self._missing.restore(started):
            self._intervals.restore(row.channel, row.row_us, is_open=False, now_s=started)
        for channel, start_us in self._table.open():
            self._intervals.restore(channel, start_us, is_open=True, now_s=started)
        log.info("event=statistics.restored seconds=%.2f", time.monotonic() - started)

    def _batch(self, changes: DataFrame, batch: int) -> None:
        touched = touched_intervals(changes, self._settings.interval_s)
        starts = touched.select("gateway", "channel", F.unix_micros("interval_start").alias("start_us"))
        found = [((row.gateway, row.channel), row.start_us) for row in starts.collect()]
        with self._lock:
            now_s = time.monotonic()
            for row in self._missing.learn({channel for channel, _ in found}, now_s):
                self._intervals.restore(row.channel, row.row_us, is_open=False, now_s=now_s)
            self._compute(self._intervals.touch(found, now_s), f"batch={batch}")

    def _compute(self, due: dict[Interval, bool], cause: str) -> None:
        """Computes these intervals; the value says whether one is closed by now."""
        if not due:
            return
        started = time.monotonic()
        missing = 0
        self._closed = due
        # In the order of time, so that a part touches few dates; in parts, because results pass the driver.
        in_order = sorted(due, key=lambda interval: interval[1])
        for at in range(0, len(in_order), _PART):
            part = in_order[at : at + _PART]
            keys = interval_frame(self._spark, part)
            readings = readings_in(self._spark, self._settings, part, keys)
            rows = interval_statistics(readings, self._settings.interval_s).toArrow()
            missing += self._missing.write(self._missing.before(rows, started, time.time_ns() // 1000), rows)
        missing += self._missing.around_late()
        log.info(
            "event=statistics.computed cause=%s intervals=%d closed=%d missing=%d seconds=%.2f",
            cause,
            len(due),
            sum(due.values()),
            missing,
            time.monotonic() - started,
        )

    def _merge(self, rows: Any) -> None:
        merge_statistics(self._spark, self._location, rows, self._closed)

    def _log_missing(self, missing: int, cause: str) -> None:
        if missing:
            log.info("event=statistics.missing cause=%s intervals=%d", cause, missing)
