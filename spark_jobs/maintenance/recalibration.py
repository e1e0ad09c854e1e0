"""A channel's values of a period computed anew from raw, in ``readings`` itself, and the record of it.

The statistics follow by the table's change feed. Dates are done one after the other; what is cut short is
finished by doing it again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import reduce
from operator import or_
from typing import Any, Final

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own name for it
from pyspark.sql.types import StructType

from cloud.wire.channel_records import ChannelRecord
from spark_jobs.maintenance.table_files import Part, parts
from spark_jobs.schemas import CHANNELS, READINGS, RECALIBRATIONS
from spark_jobs.settings import Settings
from spark_jobs.sinks.delta import ensure_table
from spark_jobs.sinks.merge import merge_changed
from spark_jobs.sinks.retry import retried
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

_AT_ONCE_BYTES: Final = 512 << 20
_DATES_AT_ONCE: Final = 31
"""What one commit rewrites at most: files hold other channels too."""


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
    channels = ensure_table(spark, settings, CHANNELS)
    dates = [
        part
        for part in parts(spark, location, 0)
        if part.date and wanted.begin.date().isoformat() <= part.date <= wanted.end.date().isoformat()
    ]
    readings = spark.read.format("delta").load(location).where(_chosen(wanted, dates))
    cal = _only_cal(readings, wanted)
    known = _records(spark, channels, wanted)
    row = _old_record(known, wanted, cal)
    new_row = _new_record(row, later)
    old, new = linear(row), linear(new_row)
    outcome = _outcome(readings, old, new, wanted)
    if dry_run or not outcome.changed:
        return outcome
    _tell(spark, settings, wanted, new_row, known.get(new.cal), outcome)
    for done, chunk in _chunks(dates):
        _update(spark, location, _chosen(wanted, chunk), old, new)
        log.info(
            "event=recalibrate.dates from=%s to=%s done=%d/%d",
            chunk[0].date,
            chunk[-1].date,
            done,
            len(dates),
        )
    return outcome


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
    found = (
        readings.where("value is not null")
        .select(original()["cal"].alias("cal"))
        .groupBy("cal")
        .count()
        .collect()
    )
    counts = {row.cal: row["count"] for row in found}
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
        told = ", ".join(f"{cal} ({count} readings)" for cal, count in sorted(counts.items(), key=str))
        raise CalibrationError(
            f"{place} was measured with several calibrations in this period: {told}; "
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


def _old_record(known: Mapping[str, dict[str, Any]], wanted: Wanted, cal: str) -> dict[str, Any]:
    if cal not in known:
        raise CalibrationError(
            f"table channels has no record {cal} of {wanted.channel} of {wanted.gateway}: nobody knows how "
            "its values come from raw; let ingest read gateway.channels first"
        )
    return known[cal]


def _new_record(row: dict[str, Any], later: Later) -> dict[str, Any]:
    if later is None:
        return row
    if isinstance(later, Certificate):
        return certified(row, later)
    new = row_of(later)
    in_place_of(row, new)
    return new


def _outcome(readings: DataFrame, old: Linear, new: Linear, wanted: Wanted) -> Outcome:
    """What would change. Raises CalibrationError where values are not what the record makes of raw."""
    computed = {f"new_{name}": column for name, column in recalibrated(old, new).items()}
    rows = readings.where((original()["cal"] == old.cal) & F.col("value").isNotNull())
    rows = rows.withColumn("usual", is_linear(old)).withColumn("base_value", original()["value"])
    rows = rows.withColumns(computed)
    has_raw = F.col("raw").isNotNull()
    change = F.when(has_raw, F.col("new_value") - F.col("base_value"))
    changes = has_raw & _differs()
    (told,) = rows.agg(
        F.count_if(changes).alias("changed"),
        F.count_if(has_raw & ~_differs()).alias("unchanged"),
        F.count_if(~has_raw).alias("without_raw"),
        F.count_if(has_raw & ~F.col("usual")).alias("unusual"),
        F.avg(change).alias("mean_change"),
        F.max_by(change, F.abs(change)).alias("greatest_change"),
        F.count_if(changes & (F.col("new_quality") < F.col("quality"))).alias("better"),
        F.count_if(changes & (F.col("new_quality") > F.col("quality"))).alias("worse"),
    ).collect()
    if told.unusual:
        raise CalibrationError(
            f"{told.unusual} of {told.changed + told.unchanged} values of {wanted.channel} are not "
            f"{old.slope:g} · raw + {old.offset:g}, as their record {old.cal} says: "
            "they can't be computed anew"
        )
    names = ("changed", "unchanged", "without_raw", "mean_change", "greatest_change", "better", "worse")
    return Outcome(old.cal, new.cal, **{name: told[name] for name in names})


def _differs() -> Column:
    names = ("value", "cal", "quality", "reasons", "extra")
    return reduce(or_, (~F.col(name).eqNullSafe(F.col(f"new_{name}")) for name in names))


def _tell(
    spark: SparkSession,
    settings: Settings,
    wanted: Wanted,
    new_row: dict[str, Any],
    known: dict[str, Any] | None,
    outcome: Outcome,
) -> None:
    """The record and what is about to be done, before it is done: nothing is changed without a word."""
    # A record that the gateway has told stays as it is: what it says of its periods is its own.
    if outcome.cal != outcome.original_cal and (known is None or is_ours(known)):
        record = with_period(new_row, known, wanted.begin, wanted.end)
        record.pop("updated_at", None)
        merge_changed(spark, ensure_table(spark, settings, CHANNELS), CHANNELS, _arrow(spark, record))
    entry = {
        "done_at": datetime.now(UTC),
        "gateway": wanted.gateway,
        "channel": wanted.channel,
        "begin": wanted.begin,
        "end": wanted.end,
        "original_cal": outcome.original_cal,
        "cal": outcome.cal,
        **{name: new_row[name] for name in ("slope", "offset", "serial", "certificate", "lab")},
        **{name: new_row[name] for name in ("calibrated", "expires")},
        "rows": outcome.changed,
        "mean_change": outcome.mean_change,
    }
    location = ensure_table(spark, settings, RECALIBRATIONS)
    row = tuple(entry[name] for name in RECALIBRATIONS.schema.names)
    spark.createDataFrame([row], RECALIBRATIONS.schema).write.format("delta").mode("append").save(location)


def _arrow(spark: SparkSession, record: dict[str, Any]) -> Any:
    """One row of ``channels`` as an Arrow table."""
    columns = StructType([field for field in CHANNELS.schema if field.name in record])
    values = tuple(record[name] for name in columns.names)
    return spark.createDataFrame([values], columns).toArrow()


def _chunks(dates: list[Part]) -> Iterator[tuple[int, list[Part]]]:
    """The dates in order, as many as one commit takes, each time with how many are done then."""
    chunk: list[Part] = []
    for done, part in enumerate(dates):
        if chunk and (
            len(chunk) == _DATES_AT_ONCE or sum(p.bytes for p in chunk) + part.bytes > _AT_ONCE_BYTES
        ):
            yield done, chunk
            chunk = []
        chunk.append(part)
    if chunk:
        yield len(dates), chunk


def _update(spark: SparkSession, location: str, chosen: Column, old: Linear, new: Linear) -> None:
    columns = recalibrated(old, new)
    different = F.lit(False)
    for name, column in columns.items():
        different |= ~F.col(name).eqNullSafe(column)
    rows = chosen & (original()["cal"] == old.cal) & F.col("value").isNotNull() & F.col("raw").isNotNull()
    retried(
        lambda: DeltaTable.forPath(spark, location).update(rows & different, dict(columns)), "recalibrate"
    )


def done_so_far(spark: SparkSession, settings: Settings) -> list[dict[str, Any]]:
    """What was recalibrated, the oldest first."""
    location = ensure_table(spark, settings, RECALIBRATIONS)
    rows = spark.read.format("delta").load(location).orderBy("done_at").collect()
    # Spark gives times without a zone, in this machine's.
    return [
        {
            name: value.astimezone(UTC) if isinstance(value, datetime) else value
            for name, value in row.asDict().items()
        }
        for row in rows
    ]
