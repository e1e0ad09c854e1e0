"""``statistics``: readings to interval statistics.

An interval is over with a newer reading of its channel, by silence, or with ``--once``; then it is computed,
whole, from the table, as it is each time late readings touch it. So they correct it, and a batch that runs
twice computes the same. Open intervals are computed by the same code, when they begin and then now and again
(``--open-every``). What is done with readings and channels is done in executors; how far it has come is in
the lake (``sinks.statistics``), written last: what a crash leaves half done is done again, and
changes nothing where it was done.

Channels that were due get rows for intervals without readings (``MissingIntervals``).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from dataclasses import replace
from datetime import timedelta
from functools import reduce
from operator import or_
from typing import Final

from delta.tables import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession, Window, functions as F
from pyspark.sql.types import IntegerType, StructField, StructType

from cloud.wire.number_set import NumberSet
from spark_jobs.platform.frames import computed, empty_frame, few_of, kept, one_of
from spark_jobs.platform.intervals import DAY_US, FOREVER_US, SECOND_US, day_of, moment_of, now_us
from spark_jobs.platform.schemas import CHANNELS, OWED, READINGS, STATISTICS, columns
from spark_jobs.platform.session import plan_for, small_batch_session
from spark_jobs.platform.settings import Settings
from spark_jobs.sinks.delta import ensure_table, latest_version, table_changes, write
from spark_jobs.sinks.statistics import Progress, close_left, delete_missing, merge_statistics
from spark_jobs.streaming.checkpoint import has_all
from spark_jobs.streaming.query import Job, Source, Timer
from spark_jobs.transforms.missing import (
    LONGEST_US,
    changed_times,
    missing_intervals,
    next_due_us,
    stretches,
    times_in_force,
)
from spark_jobs.transforms.statistics import (
    CHANNEL,
    ROWS,
    begin_of,
    has_readings,
    interval_statistics,
    missing_statistics,
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
"""Intervals computed and merged at a time. More rows of missing ones are written in parts, of so many or of a
day."""
_BACKLOG: Final = 1_000_000
"""Readings, about, that a run that ends plans for: how many there are it learns too late."""
_INTERVALS: Final = columns("gateway channel: string, start_us: long")
_ROWS: Final = StructType([*ROWS, StructField("version", IntegerType())])
_EACH: Final = 50_000
"""About so many missing rows of one gateway are written at a time, in whole days: others wait for no more."""
_RECORD: Final = ("record_ms", "record_unit", "spans")


class MissingIntervals:
    """Rows for missing intervals: those that time has come to, those that late readings or records change.

    What is missing follows from the rows with readings and the records alone (``transforms.missing``). A
    channel's rows are added from where they are complete (``until_us``), as time goes on; what changes before
    that is looked up in the table and made what it is by the definition. What is more for a gateway than a
    pass may write is owed: it is stored as stretches, and written by later turns. Guarded by the lock of the
    statistics job.
    """

    def __init__(self, spark: SparkSession, settings: Settings, location: str) -> None:
        self._spark = spark
        self._location = location
        self._interval_s = settings.interval_s
        self._length_us = settings.interval_s * SECOND_US
        self._channels = ensure_table(spark, settings, CHANNELS)
        self._records: tuple[int, DataFrame] | None = None
        self._settings = settings
        self._owed_table = replace(OWED, name=f"{OWED.name}_{settings.interval_s}s")
        self._owed = empty_frame(spark, OWED.schema)
        at = settings.table(self._owed_table.name)
        if DeltaTable.isDeltaTable(spark, at):
            self._owed = computed(spark.read.format("delta").load(at))
        self.owes = not self._owed.isEmpty()
        """Whether ``go_on`` has something to write."""

    def records(self) -> tuple[DataFrame, int]:
        """The ``times_in_force`` of all records, and the version of ``channels`` they are of."""
        version = self.version()
        if self._records is None or self._records[0] != version:
            records = self._in_force(version)
            # A new table has none.
            self._records = (
                version,
                computed(records) if version else empty_frame(self._spark, records.schema),
            )
        return self._records[1], version

    def version(self) -> int:
        """The version that ``channels`` has by now."""
        return latest_version(self._spark, self._channels)

    def _in_force(self, version: int) -> DataFrame:
        records = self._spark.read.format("delta").option("versionAsOf", version).load(self._channels)
        return times_in_force(records)

    def fill(self, after: DataFrame, closed: DataFrame, beside: DataFrame | None, starts_us: Set[int]) -> int:
        """Adds what is missing in the windows of ``statistics_state.completed``; how many intervals.

        In one merge with the rows ``beside`` them, of intervals with these starts.
        """
        windows = after.where("has_gaps").select(
            *CHANNEL,
            "begin_us",
            "end_us",
            "gateway_us",
            F.isnull("before.first_us").alias("is_first"),
            *_RECORD,
        )
        last = after.where("before.last_us is not null").select(
            *CHANNEL,
            F.col("before.last_us").alias("start_us"),
            F.col("before.period_ms").alias("period_ms"),
            F.col("before.unit").alias("unit"),
            F.lit(0).alias("rank"),
        )
        anchors = last.unionByName(closed.withColumn("rank", F.lit(1)))
        return self._write(kept(stretches(anchors, windows, self._interval_s)), beside, starts_us)

    def around_late(
        self, after: DataFrame, closed: DataFrame, due: DataFrame, starts_us: Collection[int]
    ) -> int:
        """Reviews what follows late rows and doesn't go on by them, and gateways that begin earlier now.

        ``starts_us`` are those at which ``due`` intervals are late (``statistics_state.LATE``).
        """
        found = due.where(LATE)
        days = {day_of(start_us) for start_us in starts_us}
        late = closed.join(found.select(*CHANNEL, "start_us", "until_us"), [*CHANNEL, "start_us"])
        within = F.col("date").isin(sorted(days | {each + timedelta(days=1) for each in days}))
        follows = (
            "late.gateway = there.gateway and late.channel = there.channel "
            "and there.start_us > late.start_us and there.start_us <= due_us"
        )
        in_force = "there.period_ms <=> late.period_ms and there.unit <=> late.unit"
        is_wrong = f"not is_data and (there.start_us < due_us or not ({in_force}))"
        unlike = (
            late.withColumn("due_us", next_due_us(self._interval_s))
            .alias("late")
            .join(self._rows().where(within).alias("there"), F.expr(follows), "left")
            .groupBy("late.gateway", "late.channel", "late.start_us", "until_us", "due_us")
            .agg(
                F.expr(f"coalesce(bool_or({is_wrong}), false) as is_wrong"),
                F.expr("coalesce(bool_or(there.start_us = due_us), false) as is_there"),
            )
            .where("is_wrong or (not is_there and due_us < until_us)")
            .selectExpr(*CHANNEL, f"start_us + {self._length_us} begin_us", "until_us end_us")
        )
        earlier = found.where("start_us < begun_us").select("gateway").distinct()
        whole = after.join(earlier, "gateway", "left_semi").selectExpr(
            *CHANNEL, "gateway_us begin_us", f"{FOREVER_US} end_us"
        )
        return self._review(after, unlike.unionByName(whole))

    def follow_records(self, after: DataFrame, before: int) -> int:
        """Reviews the times in which records hold otherwise than in this version of ``channels``.

        All of them where that version is gone.
        """
        now, _ = self.records()
        try:
            changed = computed(changed_times(self._in_force(before), now))
        except (PySparkException, Py4JJavaError) as error:
            # Its files are vacuumed, or its log is cleaned.
            log.warning("event=statistics.records_gone version=%d %s", before, str(error)[:200])
            changed = changed_times(now.limit(0), now)
        return self._review(after, changed)

    def go_on(self) -> int:
        """Writes a part of what is owed, of the gateway that is owed least; how many rows."""
        least = self._amounts(self._owed).orderBy("number").collect()[0].gateway
        first_us = F.greatest("first_us", F.lit(self._first_day_us()))
        found = self._owed.where(F.col("gateway") == least).withColumn("first_us", first_us)
        rest = self._owed.where(F.col("gateway") != least)
        return self._write(computed(found.where("first_us < end_us")), rest=rest)

    def _amounts(self, found: DataFrame) -> DataFrame:
        number = F.expr(f"sum((end_us - first_us) / {self._length_us})").alias("number")
        bounds = F.min("first_us").alias("first_us"), F.max("end_us").alias("end_us")
        return found.groupBy("gateway").agg(*bounds, number)

    def _first_day_us(self) -> int:
        """The begin of the table's first day: what retention has dropped stays away."""
        table = self._spark.read.format("delta").load(self._location)
        days = table.agg(F.unix_date(F.min("date"))).collect()[0][0]
        return -FOREVER_US if days is None else int(days) * DAY_US

    def _owe(self, owed: DataFrame) -> None:
        self._owed = computed(owed)
        self.owes = not self._owed.isEmpty()
        location = ensure_table(self._spark, self._settings, self._owed_table)
        write(self._owed.coalesce(1), location, mode="overwrite")

    def _rows(self) -> DataFrame:
        table = self._spark.read.format("delta").load(self._location)
        return table.where(F.col("interval_s") == self._interval_s).withColumns(
            {"start_us": F.unix_micros("interval_start"), "is_data": has_readings()}
        )

    def _review(self, after: DataFrame, times: DataFrame) -> int:
        """Makes the missing rows in these times of channels as defined; how many they are."""
        written = after.where("gateway_us is not null and until_us is not null")
        rest = None
        if self.owes:
            # What is owed of these channels may be another by now.
            times = computed(times)
            of_these = times.select(*CHANNEL).distinct()
            owed = self._owed.join(of_these, list(CHANNEL), "left_semi")
            times = times.unionByName(owed.selectExpr(*CHANNEL, "first_us begin_us", "end_us"))
            rest = self._owed.join(of_these, list(CHANNEL), "left_anti")
        known = written.select(
            *CHANNEL, "gateway_us", "first_us", F.col("until_us").alias("known_us"), *_RECORD
        )
        begin_us = begin_of(F.min("begin_us"), self._interval_s)
        end_us = -begin_of(-F.max("end_us"), self._interval_s)
        windows = kept(
            times.groupBy(*CHANNEL)
            .agg(begin_us.alias("begin_us"), end_us.alias("end_us"))
            .join(known, list(CHANNEL))
            .withColumns(
                {
                    "begin_us": F.greatest("begin_us", "gateway_us", F.lit(self._first_day_us())),
                    "end_us": F.least("end_us", "known_us"),
                    "since_us": F.greatest(F.col("begin_us") - LONGEST_US, "gateway_us"),
                }
            )
            .withColumn("is_first", F.expr("first_us is null or first_us >= since_us"))
            .where("begin_us < end_us")
        )
        of_all = F.min("since_us").alias("since_us"), F.max("end_us").alias("end_us")
        bounds = windows.agg(*of_all).collect()[0]
        if bounds.since_us is None:
            return 0
        rows = kept(
            self._rows()
            .where(F.col("date").between(day_of(bounds.since_us), day_of(bounds.end_us)))
            .where(few_of("gateway", windows))
            .join(windows.select(*CHANNEL, "begin_us", "end_us", "since_us"), list(CHANNEL))
            .where("start_us >= since_us and start_us < end_us")
            .select(*STATISTICS.key, "date", "start_us", "is_data", "period_ms", "unit", "begin_us")
        )
        anchors = rows.where("is_data").select(
            *CHANNEL, "start_us", "period_ms", "unit", F.lit(0).alias("rank")
        )
        found = kept(stretches(anchors, windows, self._interval_s))
        wanted = missing_intervals(found, self._interval_s)
        there = rows.where("not is_data and start_us >= begin_us").select(*STATISTICS.key, "date", "start_us")
        gone = kept(there.join(wanted, [*CHANNEL, "start_us"], "left_anti"))
        delete_missing(self._spark, self._location, gone)
        return self._write(found, rest=rest)

    def _write(
        self,
        found: DataFrame,
        beside: DataFrame | None = None,
        beside_us: Set[int] = frozenset(),
        rest: DataFrame | None = None,
    ) -> int:
        """Merges the rows of stretches, and those ``beside`` them; how many the former are.

        What is too much is owed, beside the ``rest`` of what was.
        """
        written = 0
        of = self._amounts(found).collect()
        left = None
        if heavy := [row.gateway for row in of if row.number > _EACH]:
            found, left = self._cut(found, heavy)
            of = self._amounts(found).collect()
        number = sum(row.number for row in of)
        parts = [(min(row.first_us for row in of), max(row.end_us for row in of))] if of else []
        if not of and beside is not None:
            self._merge(beside, beside_us)
        if number > _PART:
            parts = self._parts(found)
        for begin_us, end_us in parts:
            part = found.withColumns(
                {
                    "first_us": F.greatest("first_us", F.lit(begin_us)),
                    "end_us": F.least("end_us", F.lit(end_us)),
                }
            ).where("first_us < end_us")
            missing = missing_intervals(part, self._interval_s)
            if rest is not None:
                # A pass that was cut short, and done again, may owe something twice.
                missing = missing.dropDuplicates([*CHANNEL, "start_us"])
            rows = kept(missing_statistics(missing, self._interval_s).withColumn("version", F.lit(1)))
            number_of: dict[int, int] = dict(rows.groupBy(F.unix_micros("interval_start")).count().collect())
            starts_us = set(number_of)
            if beside is not None:
                # Planning a merge takes longer than merging some rows.
                rows, starts_us, beside = rows.unionByName(beside), starts_us | beside_us, None
            self._merge(rows, starts_us)
            written += sum(number_of.values())
        # Last: where this is cut short a review sees that it is needed by a row that isn't there.
        if left is not None or rest is not None:
            rest = self._owed if rest is None else rest
            self._owe(rest if left is None else rest.unionByName(left))
        return written

    def _merge(self, rows: DataFrame, starts_us: Collection[int]) -> None:
        merge_statistics(self._spark, self._location, rows, starts_us)

    def _cut(self, found: DataFrame, heavy: list[str]) -> tuple[DataFrame, DataFrame]:
        """The stretches with the newest days of these gateways, about _EACH intervals, and what is left."""
        newest_first = Window.partitionBy("gateway").orderBy(F.desc("day_us"))
        days = self._days(found.where(F.col("gateway").isin(heavy)))
        sums = {"sum": F.sum("number").over(newest_first), "place": F.row_number().over(newest_first)}
        within = days.withColumns(sums).where(f"sum <= {_EACH} or place = 1")
        cuts = within.groupBy("gateway").agg(F.min("day_us").alias("cut_us"))
        each = computed(found.join(F.broadcast(cuts), "gateway", "left").fillna(-FOREVER_US, ["cut_us"]))
        now = each.where("end_us > cut_us").withColumn("first_us", F.greatest("first_us", "cut_us"))
        left = each.where("first_us < cut_us").withColumn("end_us", F.least("end_us", "cut_us"))
        return now.drop("cut_us"), left.select(*OWED.schema.names)

    def _days(self, found: DataFrame) -> DataFrame:
        """How many intervals stretches have by gateway and day."""
        first_us = F.expr(f"first_us - pmod(first_us, {DAY_US})")
        days = found.withColumn("day_us", F.explode(F.sequence(first_us, F.col("end_us") - 1, F.lit(DAY_US))))
        within = f"least(end_us, day_us + {DAY_US}) - greatest(first_us, day_us)"
        number = F.expr(f"sum(({within}) / {self._length_us})").alias("number")
        return days.groupBy("gateway", "day_us").agg(number)

    def _parts(self, found: DataFrame) -> list[tuple[int, int]]:
        """Whole days that together have about _PART intervals of the stretches: begin and end.

        The newest first: the next due row, by which a review sees that it is needed, comes last.
        """
        numbers = self._days(found).groupBy("day_us").agg(F.sum("number"))
        parts: list[tuple[int, int]] = []
        room = 0.0
        for day_us, number in sorted(map(tuple, numbers.collect()), reverse=True):
            room -= number
            if room >= 0:
                parts[-1] = day_us, parts[-1][1]
            else:
                parts.append((day_us, day_us + DAY_US))
                room = _PART - number
        return parts


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
        # Whether the last batch has closed what is open.
        self._is_end = False
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
            plan_for(rows.sparkSession, _BACKLOG if self._settings.once else 10 * self._channels)
            touched = touched_intervals(rows, self._settings.interval_s)
            # The last batch of a run that ends; the parts of one that fails have numbers below 0.
            is_end = (
                self._settings.once
                and number >= 0
                and has_all(self._spark, self._settings, self.name, number, READINGS)
            )
            # That one more reading has come into the newest interval of its channel is no news.
            news = kept(touched.join(_open(self._state), [*CHANNEL, "start_us"], "left_anti"))
            if is_end or not news.isEmpty():
                self._pass(f"batch={number}", touched=news, is_end=is_end)
            self._is_end = is_end

    def tick(self) -> None:
        """Closes the intervals of channels that went silent; now and then computes what is open."""
        if self._settle.due():
            self.settle()
        if self._settings.open_every_s and self._has_news and self._show.due():
            self.show_open()

    def finish(self) -> None:
        """Closes what is open: nothing more will come in this run."""
        with self._lock:
            if not self._is_end:
                self._pass("end", is_end=True)
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
            # Nobody has stored by which records its missing rows were made: those of an empty table are none.
            self._records_version = 0
            self._state = computed(restored(rows, interval_s))
            self._pass("start", touched=rows.where("version = 0").select(*CHANNEL, start_us))

    def _pass(
        self,
        cause: str,
        touched: DataFrame | None = None,
        ended: DataFrame | None = None,
        *,
        is_end: bool = False,
    ) -> None:
        """Closes what is over by the intervals ``touched`` and the channels ``ended``, at the end all."""
        begun = time.monotonic()
        interval_s = self._settings.interval_s
        if touched is None:
            touched = empty_frame(self._spark, _INTERVALS)
        now = kept(advanced(self._state, touched, ended, is_end=is_end))
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
        about = int(sum(row.readings for row in starts))
        rows = interval_statistics(readings, self._settings.interval_s, about)
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
