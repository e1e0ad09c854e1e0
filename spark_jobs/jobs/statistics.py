"""``statistics``: readings to interval statistics.

An interval is over with a newer reading of its channel, by silence, or with ``--once``; then it is computed,
whole, from the table, as it is each time late readings touch it. So they correct it, and a batch that runs
twice computes the same. Open intervals are computed by the same code, when they begin and then now and again
(``--open-every``). What is done with readings and channels is done in executors; how far it has come is in
the lake (``sinks.statistics``), written last: what a crash leaves half done is done again, and
changes nothing where it was done.

Channels that were due get rows for intervals without readings (``jobs.missing_intervals``).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import reduce
from operator import or_
from typing import Final

from pyspark.sql import DataFrame, Row, SparkSession, functions as F
from pyspark.sql.types import IntegerType, StructField, StructType

from cloud.wire.number_set import NumberSet
from spark_jobs.jobs.missing_intervals import MissingIntervals
from spark_jobs.platform.frames import computed, empty_frame, few_of, kept, one_of
from spark_jobs.platform.intervals import SECOND_US, day_of, moment_of, now_us
from spark_jobs.platform.schemas import READINGS, STATISTICS, columns
from spark_jobs.platform.session import plan_for, small_batch_session
from spark_jobs.platform.settings import Settings
from spark_jobs.sinks.delta import ensure_table, latest_version, table_changes
from spark_jobs.sinks.statistics import Progress, close_left, merge_statistics
from spark_jobs.streaming.query import Job, Source, Timer
from spark_jobs.transforms.statistics import (
    CHANNEL,
    ROWS,
    begin_of,
    interval_statistics,
    timely,
    touched_intervals,
)
from spark_jobs.transforms.statistics_state import (
    LATE,
    SILENCE_S,
    STATE,
    advanced,
    completed,
    next_due_s,
    restored,
    silent_by_time,
    to_compute,
)

log = logging.getLogger("fieldgate.jobs.statistics")

_TRIGGER_S: Final = 0.5
"""Polls for new readings so often at most: it follows ``ingest``, which sets the pace."""
_SETTLE_EVERY_S: Final = 15.0
_RESTS: Final = 9.0
"""Open intervals are computed in a tenth of the time at most."""
_PART: Final = 100_000
"""Intervals computed and merged at a time."""
_INTERVALS: Final = columns("gateway channel: string, start_us: long")
_ROWS: Final = StructType([*ROWS, StructField("version", IntegerType())])


class StatisticsJob(Job):
    """One run of the query; after a failure, make a new one."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self.name = f"statistics-{settings.interval_s}s"
        self._spark = spark = small_batch_session(spark)
        self._settings = settings
        ensure_table(spark, settings, READINGS)
        self._location = ensure_table(spark, settings, STATISTICS)
        self._progress = Progress(spark, settings)
        self._missing = MissingIntervals(spark, settings, self._location)
        # The query's thread closes what newer readings end, the supervisor's what silence does.
        self._lock = threading.Lock()
        self._settle = Timer(_SETTLE_EVERY_S, at_once=False)
        self._show = Timer(settings.open_every_s, at_once=False)
        # Whether readings have come since the open intervals were computed.
        self._has_news = True
        # The latest pass found so many.
        self._channels = 0
        # When silence may change anything, in seconds of the wall clock.
        self._next_due_s = 0.0
        self._records_version = self._progress.records_version()
        self._state = self._progress.read()
        if not latest_version(spark, self._location):
            self._begin_again()
        elif self._records_version is None:
            self._restore()

    def source(self) -> Source:
        """The changes of ``readings``."""
        changes = table_changes(self._spark, self._settings, READINGS)
        return Source(changes, min(_TRIGGER_S, self._settings.trigger_s), follows=(READINGS,))

    def batch(self, rows: DataFrame, number: int) -> None:
        """Closes the intervals that changed readings end, or have touched late."""
        with self._lock:
            self._has_news = True
            # The plan is the query's own session's.
            plan_for(rows.sparkSession, 10 * self._channels)
            touched = touched_intervals(rows, self._settings.interval_s)
            # That one more reading has come into the newest interval of its channel is no news.
            news = kept(touched.join(_open(self._state), [*CHANNEL, "start_us"], "left_anti"))
            if not news.isEmpty():
                self._pass(f"batch={number}", touched=news)

    def tick(self) -> None:
        """Closes the intervals of channels that went silent; now and then computes what is open."""
        if self._settle.due():
            self.settle()
        if self._settings.open_every_s and self._has_news and self._show.due():
            self.show_open()

    def finish(self) -> None:
        """Closes what is open: nothing more will come in this run."""
        with self._lock:
            self._pass("end", ended=_open(self._state))
            while self._missing.owes:
                self._go_on()

    def settle(self) -> None:
        """Closes open intervals that went silent, and writes what is missing by now."""
        with self._lock:
            if self._missing.owes:
                self._go_on()
            wall_us = now_us()
            if wall_us < self._next_due_s * SECOND_US and self._missing.version() == self._records_version:
                return
            late = kept(silent_by_time(self._state, wall_us, self._settings.interval_s))
            starts = self._starts(late)
            if starts:
                readings = readings_in(self._spark, self._settings, late, starts)
                recent = readings.where(F.col("ingested_at") > moment_of(wall_us - SILENCE_S * SECOND_US))
                late = computed(late.join(recent.select(*CHANNEL).distinct(), list(CHANNEL), "left_anti"))
            self._pass("silence", ended=late)

    def _go_on(self) -> None:
        begun = time.monotonic()
        _log_computed("owed", (), self._missing.go_on(), begun)

    def show_open(self) -> None:
        """Computes the open intervals, beside the query: a row that is closed meanwhile is left as it is."""
        self._has_news = False
        begun = time.monotonic()
        wanted = _open(self._state).withColumn("version", F.lit(0))
        starts = self._starts(wanted)
        for part in _parts(starts):
            self._merge(self._compute(wanted, part), part)
        _log_computed("open", starts, 0, begun)
        # All readings of an interval so far are computed each time: a large fleet's take long.
        self._show.rest(_RESTS * (time.monotonic() - begun))

    def _begin_again(self) -> None:
        """Makes all rows again where ``statistics`` was removed, and the state beside it was not."""
        if self._records_version is not None:
            self._progress.clear()
            self._state, self._records_version = self._progress.read(), None
            readings = self._spark.read.format("delta").load(self._settings.table(READINGS.name))
            with self._lock:
                self._pass("table_removed", touched=touched_intervals(readings, self._settings.interval_s))

    def _restore(self) -> None:
        """Takes up ``statistics`` without a state beside it: that was lost, or an import made the table."""
        interval_s = self._settings.interval_s
        rows = self._spark.read.format("delta").load(self._location).where(F.col("interval_s") == interval_s)
        start_us = F.unix_micros("interval_start").alias("start_us")
        with self._lock:
            # Nobody knows by which records its missing rows were made: an empty table's are none.
            self._records_version = 0
            self._state = computed(restored(rows, interval_s))
            self._pass("start", touched=rows.where("version = 0").select(*CHANNEL, start_us))

    def _pass(self, cause: str, touched: DataFrame | None = None, ended: DataFrame | None = None) -> None:
        """Closes what is over by the intervals ``touched`` and the channels ``ended``."""
        begun = time.monotonic()
        interval_s = self._settings.interval_s
        if touched is None:
            touched = empty_frame(self._spark, _INTERVALS)
        now = kept(advanced(self._state, touched, ended))
        due = to_compute(now)
        starts = self._starts(due, LATE, "version > 0")
        parts, rows = list(_parts(starts)), list[DataFrame]()
        for number, part in enumerate(parts, start=1):
            rows.append(self._compute(due, part))
            # The last part goes with what is missing.
            if number < len(parts):
                self._merge(rows[-1], part)
        computed_rows = reduce(DataFrame.union, rows or [empty_frame(self._spark, _ROWS)])
        start_us = F.unix_micros("interval_start").alias("start_us")
        closed = computed_rows.where("version > 0").select(*CHANNEL, start_us, "period_ms", "unit")
        in_force, version = self._missing.records()
        after = kept(completed(now, closed, in_force, now_us(), interval_s))
        known = after.where("newest_us is not null or until_us is not null")
        is_same = f"struct({','.join(STATE)}) <=> before"
        figures = known.agg(
            F.expr("count_if(has_gaps)").alias("gaps"),
            F.expr(f"count_if(not ({is_same}))").alias("changed"),
            F.min(next_due_s(interval_s)).alias("next_due_s"),
            F.expr("coalesce(sum(number), 0)").alias("closed"),
            F.count("*").alias("channels"),
        ).collect()[0]
        if figures.closed < sum(row.closed for row in starts):
            left = due.where("version > 0").join(closed, [*CHANNEL, "start_us"], "left_anti")
            close_left(self._spark, self._location, left, interval_s, _starts_us(starts))
        missing = 0
        if figures.gaps:
            last_us = _starts_us(parts[-1] if parts else ())
            missing = self._missing.fill(after, closed, rows[-1] if rows else None, last_us)
        elif parts:
            self._merge(rows[-1], parts[-1])
        if late_us := [row.start_us for row in starts if row.is_late]:
            missing += self._missing.around_late(after, closed, due, late_us)
        if self._records_version not in (None, version):
            missing += self._missing.follow_records(after, self._records_version)
        if self._records_version != version:
            self._progress.add(known, version)
        elif figures.changed:
            self._progress.add(known.where(f"not ({is_same})"), version)
        self._channels = figures.channels
        self._state, self._records_version = known.select(*CHANNEL, *STATE), version
        self._next_due_s = float("inf") if figures.next_due_s is None else figures.next_due_s
        if starts or missing:
            _log_computed(cause, starts, missing, begun)

    def _starts(self, intervals: DataFrame, late: str = "false", closed: str = "false") -> list[Row]:
        """How many intervals begin at which time, in its order: start_us, number.

        Of them: how many are ``closed``, whether any ``is_late``, the ``first`` and ``last`` gateway.
        """
        figures = (
            F.expr("count(*) as number"),
            F.expr(f"count_if({closed}) as closed"),
            F.expr(f"coalesce(bool_or({late}), false) as is_late"),
            F.min("gateway").alias("first"),
            F.max("gateway").alias("last"),
            F.expr(f"sum({self._settings.interval_s * 1000} / coalesce(period_ms, 1000)) as readings"),
        )
        starts = sorted(intervals.groupBy("start_us").agg(*figures).collect())
        # The files that a merge writes again have rows of all channels.
        plan_for(self._spark, max(10 * self._channels, sum(row.readings for row in starts)))
        return starts

    def _compute(self, wanted: DataFrame, starts: Sequence[Row]) -> DataFrame:
        """The rows of the wanted intervals (``to_compute``) of these starts."""
        starts_us = [row.start_us for row in starts]
        part = wanted.where(F.col("start_us").between(min(starts_us), max(starts_us)))
        part = part.select(*CHANNEL, "start_us", "version")
        readings = readings_in(self._spark, self._settings, part, starts)
        rows = interval_statistics(readings, self._settings.interval_s)
        start_us = F.unix_micros("interval_start").alias("start_us")
        rows = rows.withColumn("start_us", start_us).join(F.broadcast(part), [*CHANNEL, "start_us"])
        return kept(rows.drop("start_us"))

    def _merge(self, rows: DataFrame, part: Sequence[Row]) -> None:
        merge_statistics(self._spark, self._location, rows, _starts_us(part))


def _open(state: DataFrame) -> DataFrame:
    return state.where("is_open").select(*CHANNEL, F.col("newest_us").alias("start_us"), "period_ms")


def _parts(starts: Iterable[Row]) -> Iterator[list[Row]]:
    """In the order of time, so that a part touches few dates; in parts, so that its keys fit into memory."""
    part: list[Row] = []
    number = 0
    for row in starts:
        if part and number + row.number > _PART:
            yield part
            part, number = [], 0
        part.append(row)
        number += row.number
    if part:
        yield part


def _starts_us(starts: Iterable[Row]) -> set[int]:
    return {row.start_us for row in starts}


def _log_computed(cause: str, starts: Iterable[Row], missing: int, begun: float) -> None:
    figures = cause, sum(row.number for row in starts), missing, time.monotonic() - begun
    log.info("event=statistics.computed cause=%s intervals=%d missing=%d seconds=%.2f", *figures)


_MAX_SPANS: Final = 32
"""Above so many separate stretches of time the files are pruned by date alone."""


def readings_in(
    spark: SparkSession, settings: Settings, wanted: DataFrame, starts: Collection[Row]
) -> DataFrame:
    """All readings of the wanted intervals (gateway, channel, start_us), with ``start_us``.

    ``starts`` are those that occur: start_us, and the ``first`` and ``last`` of the gateways. Reads the dates
    they lie in, within them only files that can hold their times and gateways.
    """
    starts_us = [row.start_us for row in starts]
    gateways = {name for row in starts for name in (row.first, row.last)}
    length_us = settings.interval_s * SECOND_US
    spans = NumberSet((start_us, start_us + length_us - 1) for start_us in starts_us)
    time = F.col("time")
    readings = spark.read.format("delta").load(settings.table(READINGS.name))
    readings = readings.where(F.col("date").isin(sorted({day_of(start_us) for start_us in starts_us})))
    if spans.gaps < _MAX_SPANS:
        inside = ((time >= moment_of(first)) & (time < moment_of(last + 1)) for first, last in spans.spans())
        readings = readings.where(reduce(or_, inside))
    # Which they are takes a Spark job, unless it is one.
    by_gateway = one_of("gateway", gateways) if len(gateways) == 1 else few_of("gateway", wanted)
    return (
        readings.where(timely() & by_gateway)
        .withColumn("start_us", begin_of(F.unix_micros(time), settings.interval_s))
        .join(F.broadcast(wanted.select(*CHANNEL, "start_us")), [*CHANNEL, "start_us"], "left_semi")
    )
