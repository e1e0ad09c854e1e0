"""A channel's values of a period computed again from raw, in ``readings`` itself, and the record of it.

The statistics follow by the table's change feed. Months are done one after the other; what is cut short is
finished by doing it again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import reduce
from itertools import groupby
from operator import or_
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession, functions as F

from cloud.wire.channel_records import ChannelRecord
from spark_jobs.maintenance.table_files import Part, parts
from spark_jobs.platform.schemas import CHANNELS, READINGS, RECALIBRATIONS
from spark_jobs.platform.settings import Settings
from spark_jobs.sinks.delta import ensure_table, retried, write
from spark_jobs.sinks.merge import merge_changed
from spark_jobs.state.calibrations import (
    CalibrationError,
    Certificate,
    certified,
    in_place_of,
    is_ours,
    linear,
    row_of,
    with_period,
)
from spark_jobs.transforms.recalibrate import Linear, is_linear, original, recalibrated
from spark_jobs.transforms.statistics import timely

log = logging.getLogger("fieldgate.jobs.recalibrate")

Later = Certificate | ChannelRecord | None
"""What takes a calibration's place; None is the gateway's own again."""


@dataclass(frozen=True)
class Wanted:
    """Readings of one channel and period (``end`` not included), made with ``cal`` where it is given."""

    gateway: str
    channel: str
    begin: datetime
    end: datetime
    cal: str | None = None


@dataclass(frozen=True)
class Outcome:
    """What changed, or would: rows, of them flags raised and lowered; changes in the channel's unit."""

    original_cal: str
    cal: str
    changed: int
    unchanged: int
    without_raw: int
    mean_change: float | None
    greatest_change: float | None
    better: int
    worse: int


def recalibrate(
    spark: SparkSession, settings: Settings, wanted: Wanted, later: Later, *, dry_run: bool = False
) -> Outcome:
    """Does it; ``later`` is a Certificate, a ChannelRecord, or None for what the gateway sent.

    Doing it again changes nothing. Raises CalibrationError where it can't be right.
    """
    location = ensure_table(spark, settings, READINGS)
    dates = [
        part
        for part in parts(spark, location)
        if part.date and wanted.begin.date().isoformat() <= part.date <= wanted.end.date().isoformat()
    ]
    readings = spark.read.format("delta").load(location).where(_chosen(wanted, dates))
    cal = _only_cal(readings, wanted)
    records = _records(spark, ensure_table(spark, settings, CHANNELS), wanted)
    if cal not in records:
        raise CalibrationError(
            f"table channels has no record {cal} of {wanted.channel} of {wanted.gateway}, by which its "
            "values come from raw; let ingest read gateway.channels first"
        )
    new_row = records[cal]
    if isinstance(later, Certificate):
        new_row = certified(records[cal], later)
    elif later is not None:
        new_row = row_of(later)
        in_place_of(records[cal], new_row)
    old, new = linear(records[cal]), linear(new_row)
    outcome = _outcome(readings, old, new, wanted)
    if dry_run or not outcome.changed:
        return outcome
    _record(spark, settings, wanted, new_row, records.get(new.cal), outcome)
    columns, differ = _changes(old, new)
    done = 0
    # A commit a month: what conflicts with another commit is done again.
    for _, month in groupby(dates, key=lambda part: str(part.date)[:7]):
        chunk = list(month)
        rows = _chosen(wanted, chunk) & _computable(old) & F.col("raw").isNotNull() & differ
        _update(spark, location, rows, columns)
        done += len(chunk)
        first, last = chunk[0].date, chunk[-1].date
        log.info("event=recalibrate.dates from=%s to=%s done=%d/%d", first, last, done, len(dates))
    return outcome


def _update(spark: SparkSession, location: str, rows: Column, columns: Mapping[str, Column]) -> None:
    retried(lambda: DeltaTable.forPath(spark, location).update(rows, dict(columns)), "recalibrate")


def _chosen(wanted: Wanted, dates: Iterable[Part]) -> Column:
    """The channel's readings of the period whose time is known."""
    days = sorted(part.date for part in dates if part.date is not None)
    return (
        F.col("date").isin([date.fromisoformat(day) for day in days])
        & (F.col("gateway") == wanted.gateway)
        & (F.col("channel") == wanted.channel)
        & (F.col("time") >= wanted.begin)
        & (F.col("time") < wanted.end)
        & timely()
    )


def _only_cal(readings: DataFrame, wanted: Wanted) -> str:
    """The one calibration the period's values were made with. Raises CalibrationError."""
    found = readings.where("value is not null").groupBy(original()["cal"].alias("cal")).count()
    counts = {row.cal: row["count"] for row in found.collect()}
    place = f"{wanted.channel} of {wanted.gateway}"
    if wanted.cal is not None:
        if wanted.cal not in counts:
            raise CalibrationError(
                f"no reading of {place} in this period was made with calibration {wanted.cal}"
            )
        return wanted.cal
    if not counts:
        raise CalibrationError(f"{place} has no values in this period")
    if len(counts) > 1:
        counted = ", ".join(f"{cal} ({count} readings)" for cal, count in sorted(counts.items(), key=str))
        raise CalibrationError(
            f"{place} was measured with several calibrations in this period: {counted}; "
            "it may have been another sensor: choose one with --cal, or a shorter period"
        )
    (cal,) = counts
    if cal is None:
        raise CalibrationError(
            f"readings of {place} name no calibration: it is another device's, or none is known"
        )
    return str(cal)


def _records(spark: SparkSession, channels: str, wanted: Wanted) -> dict[str, dict[str, Any]]:
    """The channel's records in ``channels``, by cal."""
    mine = (F.col("gateway") == wanted.gateway) & (F.col("channel") == wanted.channel)
    rows = spark.read.format("delta").load(channels).where(mine).collect()
    return {row["cal"]: row.asDict(recursive=True) for row in rows}


def _computable(old: Linear) -> Column:
    """Readings with a value that was made with this calibration."""
    return (original()["cal"] == old.cal) & F.col("value").isNotNull()


def _changes(old: Linear, new: Linear) -> tuple[Mapping[str, Column], Column]:
    """The new columns of such readings that have a raw value, and whether any of them differs."""
    columns = recalibrated(old, new)
    return columns, reduce(or_, (~F.col(name).eqNullSafe(column) for name, column in columns.items()))


def _outcome(readings: DataFrame, old: Linear, new: Linear, wanted: Wanted) -> Outcome:
    """What would change. Raises CalibrationError where values are not what the record makes of raw."""
    columns, differ = _changes(old, new)
    rows = readings.where(_computable(old)).withColumns(
        {
            "has_raw": F.col("raw").isNotNull(),
            "is_usual": is_linear(old),
            "differ": differ,
            "new_quality": columns["quality"],
            "change": F.when(F.col("raw").isNotNull(), columns["value"] - original()["value"]),
        }
    )
    (found,) = rows.agg(
        F.expr("count_if(has_raw and differ)").alias("changed"),
        F.expr("count_if(has_raw and not differ)").alias("unchanged"),
        F.expr("count_if(not has_raw)").alias("without_raw"),
        F.expr("avg(change)").alias("mean_change"),
        F.expr("max_by(change, abs(change))").alias("greatest_change"),
        F.expr("count_if(has_raw and differ and new_quality < quality)").alias("better"),
        F.expr("count_if(has_raw and differ and new_quality > quality)").alias("worse"),
        F.expr("count_if(has_raw and not is_usual)").alias("unusual"),
    ).collect()
    figures = found.asDict()
    if unusual := figures.pop("unusual"):
        raise CalibrationError(
            f"{unusual} of {found.changed + found.unchanged} values of {wanted.channel} are not "
            f"{old.slope:g} · raw + {old.offset:g}, as by their record {old.cal}: "
            "they can't be computed again"
        )
    return Outcome(old.cal, new.cal, **figures)


def _record(
    spark: SparkSession,
    settings: Settings,
    wanted: Wanted,
    new_row: dict[str, Any],
    known: dict[str, Any] | None,
    outcome: Outcome,
) -> None:
    """Stores the record and the entry before any value is changed, so that none changes unrecorded."""
    # A record that the gateway has published stays as it is, its periods too.
    if outcome.cal != outcome.original_cal and (known is None or is_ours(known)):
        record = with_period(new_row, known, wanted.begin, wanted.end)
        columns = CHANNELS.without("updated_at", *(set(CHANNELS.schema.names) - record.keys()))
        row = spark.createDataFrame([record], columns)
        merge_changed(ensure_table(spark, settings, CHANNELS), CHANNELS, row)
    entry = {
        **new_row,
        **vars(wanted),
        **vars(outcome),
        "done_at": datetime.now(UTC),
        "rows": outcome.changed,
    }
    frame = spark.createDataFrame([entry], RECALIBRATIONS.schema)
    write(frame, ensure_table(spark, settings, RECALIBRATIONS))
