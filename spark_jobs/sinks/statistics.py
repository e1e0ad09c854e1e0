"""Computed intervals into ``statistics``, corrected in place, with versions.

A row's version is 0 while its interval is open, 1 when it is first closed, and goes up by one each time a
value changed after that; a row whose values come out the same is not written. So computing an interval
again, after a restart or a lost checkpoint, changes nothing. A row of a missing interval is closed, never
takes the place of one with readings, and goes when the channel turns out not to have been configured then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from spark_jobs.frames import rows_frame
from spark_jobs.intervals import DAY_US, Channel, Interval, day_of, intervals_of
from spark_jobs.schemas import STATISTICS
from spark_jobs.sinks.merge import delete_rows, differs, merge_rows
from spark_jobs.state.configured import Span, union
from spark_jobs.transforms.statistics import counted


def delete_missing(
    spark: SparkSession, location: str, interval_s: int, times: Mapping[Channel, Iterable[Span]]
) -> None:
    """Deletes the rows of missing intervals that lie in these times of their channel, even in part."""
    rows = [(*channel, *span) for channel, spans in times.items() for span in spans]
    if not rows:
        return
    days = " or ".join(
        f"t.date between date'{day_of(begin_us)}' and date'{day_of(end_us)}'"
        for begin_us, end_us in union((begin_us - DAY_US, end_us) for _, _, begin_us, end_us in rows)
    )
    start = "unix_micros(t.interval_start)"
    same_row = (
        f"({days}) and t.gateway = s.gateway and t.channel = s.channel"
        f" and t.interval_s = {interval_s} and {counted('t.')} = 0"
        f" and {start} + {interval_s * 1_000_000} > s.begin_us and {start} < s.end_us"
    )
    frame = rows_frame(spark, "gateway channel: string, begin_us end_us: long", rows)
    delete_rows(spark, location, frame, same_row, "delete-missing")


def merge_statistics(spark: SparkSession, location: str, rows: Any, closed: Mapping[Interval, bool]) -> None:
    """Merges rows (an Arrow table: columns of ``statistics`` without version and updated_at).

    ``closed``: whether an interval is closed by now; those it doesn't name are.
    """
    if not rows.num_rows:
        return
    flags = [closed.get(interval, True) for interval in intervals_of(rows)]
    computed = spark.createDataFrame(rows.append_column("closed", pa.array(flags, pa.bool_())))
    closing = "(t.version = 0 and s.closed)"
    corrects = f"({counted('s.')} > 0 or {counted('t.')} = 0)"
    values = {name: f"s.{name}" for name in STATISTICS.values}
    merge_rows(
        spark,
        location,
        STATISTICS,
        computed,
        set(rows["date"].to_pylist()),
        condition=f"{corrects} and ({closing} or {differs(STATISTICS, STATISTICS.values)})",
        changed={
            **values,
            "version": f"case when {closing} then 1 when t.version = 0 then 0 else t.version + 1 end",
        },
        added={**values, "version": "cast(s.closed as int)"},
    )
