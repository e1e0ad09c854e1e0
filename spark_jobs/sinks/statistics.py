"""Computed intervals into ``statistics``, corrected in place, with versions; and its intervals read again.

A row's version is 0 while its interval is open, 1 when it is first closed, and goes up by one each time a
value changed after that; a row whose values come out the same is not written. So computing an interval
again, after a restart or a lost checkpoint, changes nothing. A row of a missing interval is closed, never
takes the place of one with readings, and goes when the channel turns out not to have been configured then.

How far the statistics have come is a table too: a job that starts again goes on from it. Changed rows are
appended, and of a channel the one of the latest pass holds: where each pass changes a few of very many
channels, little is written. Owned by the one job that makes the statistics of an interval length.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession, functions as F

from spark_jobs.platform.frames import computed, empty_frame, few_of, one_of
from spark_jobs.platform.intervals import SECOND_US, day_of, moment_of
from spark_jobs.platform.schemas import PROGRESS, STATISTICS
from spark_jobs.platform.settings import Settings
from spark_jobs.sinks.delta import ensure_table, retried, table_version, write
from spark_jobs.sinks.merge import NOW, delete_rows, differs, merge_rows, of_intervals, starts_of
from spark_jobs.transforms.statistics import CHANNEL, counted, has_readings
from spark_jobs.transforms.statistics_state import STATE

_SAME_KEY: Final = " and ".join(f"t.{name} = s.{name}" for name in STATISTICS.key)


def delete_missing(spark: SparkSession, location: str, rows: DataFrame) -> None:
    """Deletes rows of missing intervals: gateway, channel, interval_s, interval_start and date of each."""
    if starts_us := starts_of(rows):
        same_row = f"{of_intervals(starts_us)} and {_SAME_KEY} and {counted('t.')} = 0"
        delete_rows(spark, location, rows, same_row, "delete-missing")


def close_left(
    spark: SparkSession, location: str, left: DataFrame, interval_s: int, starts_us: Collection[int]
) -> None:
    """Closes the rows of intervals (gateway, channel, start_us) whose readings have left the lake."""
    start = F.timestamp_micros("start_us").alias("interval_start")
    rows = left.select("gateway", "channel", F.lit(interval_s).alias("interval_s"), start)
    same_row = f"{of_intervals(starts_us)} and {_SAME_KEY} and t.version = 0"

    def close() -> None:
        merge = DeltaTable.forPath(spark, location).alias("t").merge(rows.alias("s"), same_row)
        merge.whenMatchedUpdate(set={"version": "1", "updated_at": NOW}).execute()

    retried(close, "close-left")


def merge_statistics(spark: SparkSession, location: str, rows: DataFrame, starts_us: Collection[int]) -> None:
    """Merges rows (columns of ROWS, and ``version``: 1 of closed intervals, 0 of open ones).

    They are read several times: computed ones are wanted. ``starts_us``: of each date the first and the last
    of their intervals.

    What is closed already stays so: an open row that was computed meanwhile doesn't touch it. And where
    readings have left the lake with their day, a row that was made of them stays as it is: later ones of its
    interval, all that could be read, would take its place. They were all ingested long after it (ten minutes
    are for clocks that differ), or are fewer.
    """
    if not starts_us:
        return
    changes = f"({differs(STATISTICS, STATISTICS.values)})"
    new, known = counted("s."), counted("t.")
    in_time = "s.ingested_from <= t.updated_at + interval 10 minutes"
    complete = f"({known} = 0 or ({in_time} and {new} >= {known}))"
    corrects = f"(t.version = 0 and {new} > 0) or ({changes} and {complete})"
    values = {name: f"s.{name}" for name in STATISTICS.values}
    merge_rows(
        spark,
        location,
        STATISTICS,
        rows,
        of_intervals(starts_us),
        condition=f"if(s.version = 0, t.version = 0 and {changes}, {corrects})",
        changed={**values, "version": "if(s.version = 0, 0, t.version + 1)"},
        added={**values, "version": "s.version"},
    )


_COMPACT_EVERY: Final = 50
"""Versions of the table after which rows that no longer hold are dropped, whoever wrote them."""


class Progress:
    """The rows of ``transforms.statistics_state`` of one interval length."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self._spark = spark
        table = replace(PROGRESS, name=f"{PROGRESS.name}_{settings.interval_s}s")
        self._location = ensure_table(spark, settings, table)

    def read(self) -> DataFrame:
        """Gateway, channel and STATE."""
        rows = self._latest().select(*CHANNEL, *STATE)
        return computed(rows) if self._is_written() else empty_frame(self._spark, rows.schema)

    def records_version(self) -> int | None:
        """The version of ``channels`` by which missing intervals were found; None before the first pass."""
        if not self._is_written():
            return None
        row = self._table().agg(F.max("records_version")).first()
        return None if row is None else row[0]

    def add(self, rows: DataFrame, records_version: int) -> None:
        """Stores changed rows."""
        version = table_version(self._spark, self._location) + 1
        noted = rows.select(
            *CHANNEL,
            *STATE,
            F.lit(records_version).cast("long").alias("records_version"),
            F.lit(version).cast("long").alias("pass"),
        )
        write(noted.coalesce(1), self._location)
        if version % _COMPACT_EVERY == 0:
            write(self._latest().coalesce(1), self._location, mode="overwrite")

    def clear(self) -> None:
        """Forgets all of it."""
        write(self._table().limit(0), self._location, mode="overwrite")

    def _is_written(self) -> bool:
        return table_version(self._spark, self._location) > 0

    def _table(self) -> DataFrame:
        return self._spark.read.format("delta").load(self._location)

    def _latest(self) -> DataFrame:
        names = [name for name in PROGRESS.schema.names if name not in CHANNEL]
        latest = F.max_by(F.struct(*names), "pass").alias("latest")
        return self._table().groupBy(*CHANNEL).agg(latest).select(*CHANNEL, "latest.*")


def _of_length(spark: SparkSession, settings: Settings) -> DataFrame:
    rows = spark.read.format("delta").load(settings.table(STATISTICS.name))
    return rows.where(F.col("interval_s") == settings.interval_s)


def other_intervals(spark: SparkSession, settings: Settings) -> str | None:
    """Returns a hint where all closed intervals of the lake have other lengths than the settings'."""
    rows = spark.read.format("delta").load(settings.table(STATISTICS.name)).where("version > 0")
    found = sorted(row.interval_s for row in rows.select("interval_s").distinct().collect())
    if not found or settings.interval_s in found:
        return None
    none, *there = (f"{s // 60}m" if s % 60 == 0 else f"{s}s" for s in (settings.interval_s, *found))
    return f"the lake has none of {none}, but of {' and '.join(there)}: name one by --interval"


def statistics_in(spark: SparkSession, settings: Settings, wanted: DataFrame) -> DataFrame:
    """All rows of the wanted intervals (gateway, start_us); reads the dates they lie in."""
    starts_us = [row.start_us for row in wanted.select("start_us").distinct().collect()]
    rows = _of_length(spark, settings).where(
        few_of("gateway", wanted)
        & F.col("date").isin(sorted(set(map(day_of, starts_us))))
        & one_of("interval_start", map(moment_of, starts_us))
    )
    keys = wanted.select("gateway", F.timestamp_micros("start_us").alias("interval_start"))
    return rows.join(keys, ["gateway", "interval_start"], "left_semi")


def intervals_within(spark: SparkSession, settings: Settings, spans: DataFrame) -> DataFrame:
    """The intervals (gateway, start_us) that share time with their gateway's spans (begin_us, end_us).

    Without those in which no channel with readings is closed: they come when one is.
    """
    begin_us = spans.agg(F.min("begin_us")).collect()[0][0]
    length_us = settings.interval_s * SECOND_US
    rows = _of_length(spark, settings).where(few_of("gateway", spans))
    if begin_us > length_us:
        rows = rows.where(F.col("date") >= day_of(begin_us - length_us))
    start_us = F.unix_micros("interval_start").alias("start_us")
    starts = rows.where("version > 0").where(has_readings()).select("gateway", start_us).distinct()
    inside = f"start_us + {length_us} > begin_us and start_us < end_us"
    return starts.join(F.broadcast(spans), "gateway").where(inside).select("gateway", "start_us")
