"""Computed intervals into ``statistics``, corrected in place, with versions.

A row's version is 0 while its interval is open, 1 when it is first closed, and goes up by one each time a
value changed after that; a row whose values come out the same is not written. So computing an interval
again, after a restart or a lost checkpoint, changes nothing. A row of a missing interval is closed, never
takes the place of one with readings, and goes when the channel turns out not to have been configured then.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession, functions as F

from spark_jobs.schemas import STATISTICS
from spark_jobs.sinks.merge import NOW, delete_rows, differs, merge_rows, of_intervals, starts_of
from spark_jobs.sinks.retry import retried
from spark_jobs.transforms.statistics import counted

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
