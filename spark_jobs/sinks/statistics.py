"""Computed intervals into ``statistics``, corrected in place, with versions.

A row's version is 0 while its interval is open, 1 when it is first closed, and goes up by one each time a
value changed after that; a row whose values come out the same is not written. So computing an interval
again, after a restart or a lost checkpoint, changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own name for it

from spark_jobs.schemas import STATISTICS
from spark_jobs.sinks.retry import retried
from spark_jobs.state.intervals import Interval

_KEY: Final = ("gateway", "channel", "interval_s", "interval_start")
_KEPT: Final = (*_KEY, "date", "version", "updated_at")
_VALUES: Final = tuple(name for name in STATISTICS.schema.names if name not in _KEPT)


def merge_statistics(spark: SparkSession, location: str, rows: Any, closed: Mapping[Interval, bool]) -> None:
    """Merges rows (an Arrow table: columns of ``statistics`` without version and updated_at).

    ``closed`` says for each of their intervals whether it is closed by now.
    """
    if not rows.num_rows:
        return
    starts_us = rows["interval_start"].cast(pa.int64()).to_pylist()
    channels = zip(rows["gateway"].to_pylist(), rows["channel"].to_pylist(), strict=True)
    flags = [closed[interval] for interval in zip(channels, starts_us, strict=True)]
    computed = spark.createDataFrame(rows.append_column("closed", pa.array(flags, pa.bool_())))
    days = ", ".join(f"date'{day.isoformat()}'" for day in sorted(set(rows["date"].to_pylist())))
    same_row = " and ".join(f"t.{name} = s.{name}" for name in ("date", *_KEY))
    changed = " or ".join(f"not (t.{name} <=> s.{name})" for name in _VALUES)
    closing = "(t.version = 0 and s.closed)"
    version = f"case when {closing} then 1 when t.version = 0 then 0 else t.version + 1 end"
    values = {name: f"s.{name}" for name in _VALUES}
    now = F.current_timestamp()

    def merge() -> None:
        (
            DeltaTable.forPath(spark, location)
            .alias("t")
            # The literal dates let Delta read the target's partitions only.
            .merge(computed.alias("s"), f"t.date in ({days}) and {same_row}")
            .whenMatchedUpdate(
                condition=f"{closing} or {changed}", set={**values, "version": version, "updated_at": now}
            )
            .whenNotMatchedInsert(
                values={
                    **values,
                    **{name: f"s.{name}" for name in (*_KEY, "date")},
                    "version": "cast(s.closed as int)",
                    "updated_at": now,
                }
            )
            .execute()
        )

    retried(merge, "merge-statistics")
