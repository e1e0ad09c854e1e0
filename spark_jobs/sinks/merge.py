"""Computed rows into a table, corrected in place; a row that comes out the same is not written.

So computing again, after a restart or a lost checkpoint, changes nothing, and the table's change feed has
real changes only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import date
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession, functions as F

from spark_jobs.platform.frames import rows_frame
from spark_jobs.platform.intervals import day_of, moment_of
from spark_jobs.platform.schemas import ALERTS, Table
from spark_jobs.sinks.delta import retried

NOW = "current_timestamp()"


def of_days(days: Iterable[date]) -> str:
    """SQL: whether a row of the table (``t``) is of these days: by literals Delta reads these alone."""
    return f"t.date in ({', '.join(f'date{day.isoformat()!r}' for day in sorted(days))})"


def starts_of(rows: DataFrame) -> set[int]:
    """The first and the last interval of each date of rows."""
    start_us = F.unix_micros("interval_start")
    found = rows.groupBy("date").agg(F.min(start_us), F.max(start_us)).collect()
    return {each for _, *both in found for each in both}


def of_intervals(starts_us: Collection[int]) -> str:
    """SQL: whether a row is of the days of these intervals and none before the first or after the last.

    A day of 120,000 channels is 17 million rows, and what was written in the last minutes is in few files.
    """
    first, last = (f"timestamp{moment_of(of(starts_us)).isoformat()!r}" for of in (min, max))
    return f"{of_days(set(map(day_of, starts_us)))} and t.interval_start between {first} and {last}"


def merge_rows(
    spark: SparkSession,
    location: str,
    table: Table,
    rows: DataFrame,
    where: str = "",
    *,
    condition: str,
    changed: Mapping[str, str],
    added: Mapping[str, str],
) -> None:
    """Merges rows (``s``) into a table (``t``) by its key: expressions of columns that are changed and added.

    A row that is there is changed where ``condition`` holds; added ones get their key and date too, and all
    of them ``updated_at`` where the table has it. ``where`` is SQL, by literals, about the rows of the table
    that may match, '' for all.
    """
    dated = table.partitioned_by_date
    key = ("date", *table.key) if dated and not table.dated_later else table.key
    same_row = " and ".join([f"({where or 'true'})", *(f"t.{name} <=> s.{name}" for name in key)])
    if table.dated_later:
        changed, added = ({**given, "date": "s.date"} for given in (changed, added))
    stamp = {"updated_at": NOW} if "updated_at" in table.schema.names else {}

    def merge() -> None:
        (
            DeltaTable.forPath(spark, location)
            .alias("t")
            .merge(rows.alias("s"), same_row)
            .whenMatchedUpdate(condition=condition, set={**changed, **stamp})
            .whenNotMatchedInsert(values={**added, **{name: f"s.{name}" for name in key}, **stamp})
            .execute()
        )

    retried(merge, f"merge-{table.name}")


def delete_rows(spark: SparkSession, location: str, rows: DataFrame, same_row: str, what: str) -> None:
    """Deletes the rows of a table (``t``) that match one of these (``s``)."""

    def delete() -> None:
        table = DeltaTable.forPath(spark, location).alias("t")
        table.merge(rows.alias("s"), same_row).whenMatchedDelete().execute()

    retried(delete, what)


def differs(table: Table, names: Iterable[str]) -> str:
    """Whether any of these columns of two rows differ. Maps can't be compared; their entries in order can."""
    maps = {field.name for field in table.schema if field.dataType.typeName() == "map"}

    def value(side: str, name: str) -> str:
        return f"array_sort(map_entries({side}.{name}))" if name in maps else f"{side}.{name}"

    return " or ".join(f"not ({value('t', name)} <=> {value('s', name)})" for name in names)


def merge_changed(location: str, table: Table, rows: DataFrame, days: Iterable[date | None] = ()) -> None:
    """Merges rows by the table's key: key, values and (where it has one) date. They are read several times.

    ``days`` are those of the rows; of a table that is ``dated_later`` those it holds them under, None: not
    done. Sets ``updated_at``; where the table has a ``version`` it is 1 for a new row, one more for a changed
    one.
    """
    by_interval = "interval_start" in table.key
    starts_us = starts_of(rows) if by_interval else ()
    if not starts_us and (by_interval or rows.isEmpty()):
        return
    where = of_intervals(starts_us) if starts_us else ""
    if table.dated_later:
        known = list(filter(None, days))
        where = " or ".join(["t.date is null", *([of_days(known)] if known else [])])
    elif table.partitioned_by_date and (known := list(filter(None, days))):
        where = of_days(known)
    given = rows.select(
        *(F.col(field.name).cast(field.dataType) for field in table.schema if field.name in rows.columns)
    )
    values = {name: f"s.{name}" for name in table.values}
    versioned = "version" in table.schema.names
    merge_rows(
        rows.sparkSession,
        location,
        table,
        given,
        where,
        condition=differs(table, table.values),
        changed=values | ({"version": "t.version + 1"} if versioned else {}),
        added=values | ({"version": "1"} if versioned else {}),
    )


def merge_alerts(spark: SparkSession, location: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Merges rows (``merged_row``) by id.

    Nothing is taken away: a null leaves the table's value, and an alert that was live once is not historical
    because it was computed again from old data.
    """
    columns = ALERTS.without("updated_at")
    values = {name: f"coalesce(s.{name}, t.{name})" for name in ALERTS.values}
    values["historical"] = "s.historical and t.historical"
    merge_rows(
        spark,
        location,
        ALERTS,
        rows_frame(spark, columns, ([row[name] for name in columns.names] for row in rows)).coalesce(1),
        condition=" or ".join(f"not (t.{name} <=> ({value}))" for name, value in values.items()),
        changed=values,
        added={name: f"s.{name}" for name in ALERTS.values},
    )
