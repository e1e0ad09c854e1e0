"""``statistics``: readings to interval statistics.

The intervals that new readings touch, and no others, are computed again, whole, from the table. So late
readings correct them, and a batch that runs twice computes the same. While an interval is open its sums are
kept where that gives the same (``state.running_intervals``): its readings are not read again and again.
Configured channels get rows for intervals without readings (``jobs.missing_intervals``).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.frames import interval_frame
from spark_jobs.intervals import Interval, intervals_of, now_us
from spark_jobs.jobs.missing_intervals import MissingIntervals
from spark_jobs.schemas import READINGS, STATISTICS
from spark_jobs.session import small_batch_session
from spark_jobs.settings import Settings
from spark_jobs.sinks.delta import ensure_table, table_changes
from spark_jobs.sinks.statistics import delete_missing, merge_statistics
from spark_jobs.sources.configured import ConfiguredChannels
from spark_jobs.sources.readings import readings_in, timely_readings
from spark_jobs.sources.statistics import StatisticsRows
from spark_jobs.state.intervals import OpenIntervals
from spark_jobs.state.running_intervals import RunningIntervals
from spark_jobs.streaming.query import Job, Source
from spark_jobs.streaming.timer import Timer
from spark_jobs.transforms.interval_sums import ReadingsByInterval
from spark_jobs.transforms.statistics import interval_statistics, touched_intervals

log = logging.getLogger("fieldgate.jobs.statistics")

_TRIGGER_S: Final = 0.5
"""Polls for new readings so often at most: it follows ``ingest``, which sets the pace."""
_TICK_S: Final = 5.0
_PART: Final = 50_000
"""Intervals computed and merged at a time."""
_MOST_ROWS: Final = 250_000
"""Readings of a batch that pass the driver, to be added; of a larger one the intervals are computed whole."""


class StatisticsJob(Job):
    """One run of the query; after a failure, make a new one."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self.name = f"statistics-{settings.interval_s}s"
        self._spark = spark = small_batch_session(spark)
        self._settings = settings
        ensure_table(spark, settings, READINGS)
        self._location = ensure_table(spark, settings, STATISTICS)
        # The query's thread computes what new readings touch, the supervisor's closes what is over.
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
        self._running = RunningIntervals(settings.interval_s)
        self._restore()
        self._timer = Timer(_TICK_S, at_once=False)

    def source(self) -> Source:
        """The changes of ``readings``."""
        changes = table_changes(self._spark, self._settings, READINGS)
        return Source(changes, min(_TRIGGER_S, self._settings.trigger_s), follows=(READINGS,))

    def tick(self) -> None:
        """Closes the intervals that are over, and those of channels that went silent."""
        self._close_over()
        if not self._timer.due():
            return
        with self._lock:
            now_s, wall_us = time.monotonic(), now_us()
            silent = self._intervals.silent(wall_us, now_s)
        self._close(silent, "silence")
        with self._lock:
            self._log_missing(self._missing.silent(now_s, wall_us), "silence")

    def finish(self) -> None:
        """Closes what is open: nothing more will come in this run."""
        with self._lock:
            everything = self._intervals.all()
        self._close(everything, "end")
        with self._lock:
            self._log_missing(self._missing.all(), "end")

    def _restore(self) -> None:
        started = time.monotonic()
        for row in self._missing.restore(started):
            self._intervals.restore(row.channel, row.row_us, is_open=False, now_s=started)
        for channel, start_us in self._table.open():
            self._intervals.restore(channel, start_us, is_open=True, now_s=started)
        log.info("event=statistics.restored seconds=%.2f", time.monotonic() - started)

    def batch(self, rows: DataFrame, number: int) -> None:
        """Computes the intervals that changed readings touch."""
        interval_s = self._settings.interval_s
        table = timely_readings(rows, _MOST_ROWS)
        readings = None if table is None else ReadingsByInterval.of_changes(table, interval_s)
        if readings is None:
            touched = intervals_of(touched_intervals(rows, interval_s).toArrow())
        else:
            touched = readings.intervals
        with self._lock:
            now_s = time.monotonic()
            for row in self._missing.learn({channel for channel, _ in touched}, now_s):
                self._intervals.restore(row.channel, row.row_us, is_open=False, now_s=now_s)
            new = set(filter(self._missing.is_new, touched))
            running = set() if readings is None else self._running.add(readings, new)
            due = self._intervals.touch(touched, now_s)
            # What ended with its first readings is closed, and so computed whole.
            running -= {interval for interval, closed in due.items() if closed}
            self._running.drop(due.keys() - running)
            for part in _parts(due):
                begun = time.monotonic()
                whole = [interval for interval in part if interval not in running]
                found = self._rows(whole, [interval for interval in part if interval in running])
                missing = self._missing.before(found, now_s, now_us())
                self._closed = due
                written = self._missing.write(missing, found) + self._missing.around_late()
                _log_computed(f"batch={number}", found, due, len(whole), written, begun)
        if self._settings.once:
            # No query waits for new readings, and what is over would only become more.
            self._close_over()

    def _close_over(self) -> None:
        with self._lock:
            over = self._intervals.over()
        self._close(over, "over")

    def _close(self, intervals: Iterable[Interval], cause: str) -> None:
        """Computes intervals whole and closes them, beside the query: it goes on meanwhile.

        What is missing around them was written with their open rows.
        """
        for part in _parts(intervals):
            begun = time.monotonic()
            rows = self._rows(part, [])
            with self._lock:
                closed = dict.fromkeys(self._intervals.closed(part), True)
                self._running.drop(closed)
                rows = rows.filter(pa.array([each in closed for each in intervals_of(rows)], pa.bool_()))
                self._closed = closed
                self._merge(rows)
            _log_computed(cause, rows, closed, len(part), 0, begun)

    def _rows(self, whole: list[Interval], running: list[Interval]) -> Any:
        """Rows of intervals: of the first computed from the table, of the others from their sums."""
        if not whole:
            return self._running.rows(running)
        keys = interval_frame(self._spark, whole)
        readings = readings_in(self._spark, self._settings, whole, keys)
        rows = interval_statistics(readings, self._settings.interval_s).toArrow()
        if not running:
            return rows
        added = self._running.rows(running).select(rows.column_names).cast(rows.schema)
        return pa.concat_tables([rows, added])

    def _merge(self, rows: Any) -> None:
        merge_statistics(self._spark, self._location, rows, self._closed)

    def _log_missing(self, missing: int, cause: str) -> None:
        if missing:
            log.info("event=statistics.missing cause=%s intervals=%d", cause, missing)


def _log_computed(
    cause: str, rows: Any, closed: Mapping[Interval, bool], whole: int, missing: int, begun: float
) -> None:
    log.info(
        "event=statistics.computed cause=%s intervals=%d whole=%d closed=%d missing=%d seconds=%.2f",
        *(cause, rows.num_rows, whole, sum(closed.values()), missing, time.monotonic() - begun),
    )


def _parts(intervals: Iterable[Interval]) -> Iterator[list[Interval]]:
    """In the order of time, so that a part touches few dates; in parts, because results pass the driver."""
    in_order = sorted(intervals, key=lambda interval: interval[1])
    for at in range(0, len(in_order), _PART):
        yield in_order[at : at + _PART]
