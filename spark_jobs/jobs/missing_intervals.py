"""Rows for missing intervals: those that time has come to, and those that late readings and records change.

What is missing follows from the rows with readings and the records alone (``transforms.missing``). As time
goes on a channel's rows are added from where they are complete (``until_us``); what changes before that is
looked up in the table and made what it is by the definition. What is more for a gateway than a pass may write
is owed: it is stored as stretches, and written by later turns.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Set
from dataclasses import replace
from datetime import timedelta
from typing import Final

from delta.tables import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, Window, functions as F

from spark_jobs.platform.frames import computed, empty_frame, few_of, kept
from spark_jobs.platform.intervals import DAY_US, FOREVER_US, SECOND_US, day_of
from spark_jobs.platform.schemas import CHANNELS, OWED, STATISTICS
from spark_jobs.platform.settings import Settings
from spark_jobs.sinks.delta import ensure_table, latest_version, write
from spark_jobs.sinks.statistics import delete_missing, merge_statistics
from spark_jobs.transforms.missing import (
    LONGEST_US,
    changed_times,
    missing_intervals,
    next_due_us,
    stretches,
    times_in_force,
)
from spark_jobs.transforms.statistics import CHANNEL, begin_of, has_readings, missing_statistics
from spark_jobs.transforms.statistics_state import LATE

log = logging.getLogger("fieldgate.jobs.statistics")

_PART: Final = 100_000
"""Above so many rows they are written in parts, of so many or of a day."""
_EACH: Final = 50_000
"""About so many rows of one gateway are written at a time, in whole days: others wait for no more."""
_RECORD: Final = ("record_ms", "record_unit", "spans")


class MissingIntervals:
    """Guarded by the lock of the statistics job."""

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
            merge_statistics(self._spark, self._location, beside, beside_us)
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
            merge_statistics(self._spark, self._location, rows, starts_us)
            written += sum(number_of.values())
        # Last: where this is cut short a review sees that it is needed by a row that isn't there.
        if left is not None or rest is not None:
            rest = self._owed if rest is None else rest
            self._owe(rest if left is None else rest.unionByName(left))
        return written

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
