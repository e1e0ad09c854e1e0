"""Rows computed anew into a table, corrected in place; a row that comes out the same is not written.

So computing again, after a restart or a lost checkpoint, changes nothing, and who follows the table's change
feed hears of real changes only.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own name for it

from spark_jobs.intervals import SECOND_US
from spark_jobs.schemas import Table
from spark_jobs.sinks.retry import retried


def merge_changed(spark: SparkSession, location: str, table: Table, rows: Any) -> None:
    """Merges rows by the table's key. ``rows``: an Arrow table with key, values and (where it has one) date.

    Sets ``updated_at``; where the table has a ``version`` it is 1 for a new row, one more for a changed one.
    """
    if not rows.num_rows:
        return
    names = table.schema.names
    dated = ("date",) if table.partitioned_by_date else ()
    same_row = " and ".join(f"t.{name} <=> s.{name}" for name in (*dated, *table.key))
    if dated:
        # The literal dates let Delta read the target's partitions only.
        days = ", ".join(f"date'{day.isoformat()}'" for day in sorted(pc.unique(rows["date"]).to_pylist()))
        same_row = f"t.date in ({days}) and {same_row}"
    given = spark.createDataFrame(rows).select(
        *(F.col(field.name).cast(field.dataType) for field in table.schema if field.name in rows.column_names)
    )
    # Maps can't be compared; their entries in order can.
    maps = {field.name for field in table.schema if field.dataType.typeName() == "map"}

    def different(name: str) -> str:
        if name in maps:
            return f"not (array_sort(map_entries(t.{name})) <=> array_sort(map_entries(s.{name})))"
        return f"not (t.{name} <=> s.{name})"

    bookkeeping = {name: "current_timestamp()" for name in ("updated_at",) if name in names}
    values = {name: f"s.{name}" for name in table.values}
    first = {"version": "1"} if "version" in names else {}
    again = {"version": "t.version + 1"} if "version" in names else {}

    def merge() -> None:
        (
            DeltaTable.forPath(spark, location)
            .alias("t")
            .merge(given.alias("s"), same_row)
            .whenMatchedUpdate(
                condition=" or ".join(map(different, table.values)), set={**values, **again, **bookkeeping}
            )
            .whenNotMatchedInsert(
                values={
                    **values,
                    **{name: f"s.{name}" for name in (*table.key, *dated)},
                    **first,
                    **bookkeeping,
                }
            )
            .execute()
        )

    retried(merge, f"merge-{table.name}")


def delete_intervals(
    spark: SparkSession, location: str, interval_s: int, intervals: Collection[tuple[str, int]]
) -> None:
    """Takes away rows of a table with one per gateway and interval: (gateway, start in microseconds)."""
    if not intervals:
        return
    gateways, starts_us = zip(*sorted(intervals), strict=True)
    given = spark.createDataFrame(pa.table({"gateway": gateways, "start_us": starts_us}))
    dates = {datetime.fromtimestamp(start_us // SECOND_US, UTC).date() for start_us in starts_us}
    days = ", ".join(f"date'{day.isoformat()}'" for day in sorted(dates))

    def delete() -> None:
        (
            DeltaTable.forPath(spark, location)
            .alias("t")
            .merge(
                given.alias("s"),
                f"t.date in ({days}) and t.gateway = s.gateway and t.interval_s = {interval_s}"
                " and unix_micros(t.interval_start) = s.start_us",
            )
            .whenMatchedDelete()
            .execute()
        )

    retried(delete, "delete-intervals")
