"""``jobs recalibrate``: values of one channel and period computed again from raw by a later certificate.

It changes ``readings`` itself, and records that. It begins with what the gateway sent, however often it was
done before: a reading that was changed carries that in ``extra`` as ``original`` (value, cal, quality,
reasons), put there last. So the order of recalibrations does not matter, and taking the original back gives
the reading as it was, bit by bit.

The flag, by what can be judged from a single reading: beyond the sensor's range it fails. Where it failed for
its range under the old calibration alone and lies inside under the new one, that reason goes, and the reading
is *not evaluated* (2): the other tests were made on the old value. CALIBRATION_EXPIRED is judged by the new
calibration's last day where it has one. All other reasons stay, and so does everything else's flag.

The statistics follow by the table's change feed. Months are done one after the other; what is cut short is
finished by doing it again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, date, datetime, timedelta
from functools import partial, reduce
from itertools import groupby
from operator import or_
from pathlib import Path
from typing import Any, Final

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession, functions as F

from cloud.wire.channel_records import ChannelRecord, parse_channel
from cloud.wire.number_set import NumberSet
from cloud.wire.quantities import QUANTITIES
from cloud.wire.reading_records import FAIL, NOT_EVALUATED, SUSPECT
from spark_jobs.platform.errors import JobError, SettingsError
from spark_jobs.platform.intervals import FOREVER_US, moment_of
from spark_jobs.platform.schemas import CHANNELS, READINGS, RECALIBRATIONS
from spark_jobs.platform.session import running_session
from spark_jobs.platform.settings import Settings, period
from spark_jobs.sinks.delta import ensure_table, retried, write
from spark_jobs.sinks.merge import merge_changed
from spark_jobs.transforms.records import channel_row
from spark_jobs.transforms.statistics import timely

DESCRIPTION: Final = "compute a channel's values again from raw with a later certificate"

log = logging.getLogger("fieldgate.jobs.recalibrate")

_ORIGINAL: Final = "value double, cal string, quality int, reasons array<string>"
_SUFFIX: Final = r',?"original":(\{"value":[^{}]*"quality":[^{}]*\})\}$'
"""How ``extra`` ends when it was put there by us; another field of that name stands elsewhere."""
_RANGE: Final = ("UNDER_RANGE", "OVER_RANGE")
_EXPIRED: Final = "CALIBRATION_EXPIRED"
_FAILING: Final = (*_RANGE, "READ_ERROR", "CHECKSUM")
_TOLERANCE: Final = 1e-9


@dataclass(frozen=True)
class Linear:
    """A calibration: value = slope · raw + offset, in the channel's units; ``range`` is the sensor's.

    ``rest_is_zero``: raw 0 reads 0. ``saturates_at``: from this raw on (either sign) the converter is at its
    end, and no calibration makes the reading right.
    """

    cal: str
    slope: float
    offset: float
    range: tuple[float, float]
    rest_is_zero: bool = False
    saturates_at: float | None = None
    expires: date | None = None

    def value(self, raw: Column) -> Column:
        """The value of a raw one, computed as the gateway does."""
        linear = F.lit(self.slope) * raw + F.lit(self.offset)
        return F.when(raw == 0, F.lit(0.0)).otherwise(linear) if self.rest_is_zero else linear

    def outside(self, value: Column) -> Column:
        """The reason of a value beyond the sensor's range, or null."""
        lower, upper = self.range
        return F.when(value < lower, _RANGE[0]).when(value > upper, _RANGE[1])

    def has_expired(self, time: Column) -> Column:
        """Whether a time lies after the last day, in UTC; false where there is none."""
        if self.expires is None:
            return F.lit(False)
        return time >= F.lit((self.expires + timedelta(days=1)).isoformat() + "T00:00:00Z").cast("timestamp")


def original() -> Column:
    """What the gateway sent of a reading: value, cal, quality, reasons."""
    kept = F.from_json(F.regexp_extract("extra", _SUFFIX, 1), _ORIGINAL)
    now = F.struct("value", "cal", "quality", "reasons")
    return F.when(F.coalesce(F.col("extra").rlike(_SUFFIX), F.lit(False)), kept).otherwise(now)


def is_linear(old: Linear) -> Column:
    """Whether the gateway's value is what its calibration makes of ``raw``, but for rounding."""
    value = original()["value"]
    apart = F.abs(value - old.value(F.col("raw")))
    return apart <= _TOLERANCE * F.greatest(F.lit(1.0), F.abs(value))


def recalibrated(old: Linear, new: Linear) -> Mapping[str, Column]:
    """The columns that change, of readings of ``old`` that have a value and a raw one."""
    base = original()
    if new.cal == old.cal:
        columns = {name: base[name] for name in ("value", "cal", "quality", "reasons")}
        without = F.regexp_replace("extra", _SUFFIX, "}")
        return {**columns, "extra": F.when(without != "{}", without)}
    value = new.value(F.col("raw"))
    reasons, quality = _judged(base, value, old, new)
    last = F.concat(F.lit('"original":'), F.to_json(base), F.lit("}"))
    extra = (
        F.when(F.col("extra").isNull(), F.concat(F.lit("{"), last))
        .when(F.col("extra").rlike(_SUFFIX), F.col("extra"))
        .otherwise(F.concat(F.expr("substring(extra, 1, length(extra) - 1)"), F.lit(","), last))
    )
    return {"value": value, "cal": F.lit(new.cal), "quality": quality, "reasons": reasons, "extra": extra}


def _judged(base: Column, value: Column, old: Linear, new: Linear) -> tuple[Column, Column]:
    """Reasons and flag of the new value."""
    outside = new.outside(value)
    failed_for_range = (base["quality"] == FAIL) & old.outside(base["value"]).isNotNull()
    if old.saturates_at is not None:
        failed_for_range &= F.abs("raw") < old.saturates_at
    lifted = F.when(failed_for_range, F.array(*map(F.lit, _RANGE))).otherwise(F.array().cast("array<string>"))
    expired = new.has_expired(F.col("time"))
    if new.expires is not None:
        lifted = F.concat(lifted, F.array(F.lit(_EXPIRED)))
    kept = F.array_except(base["reasons"], lifted)
    reasons = F.array_union(kept, F.array_compact(F.array(outside, F.when(expired, _EXPIRED))))
    fewer = F.size(F.array_except(base["reasons"], reasons)) > 0
    remaining = (
        F.when(F.exists(kept, lambda word: word.isin(*_FAILING)) & (base["quality"] == FAIL), FAIL)
        .when(F.size(kept) > 0, SUSPECT)
        .otherwise(NOT_EVALUATED)
    )
    quality = F.when(fewer, remaining).otherwise(base["quality"])
    quality = F.when(expired, F.greatest(quality, F.lit(SUSPECT))).otherwise(quality)
    return reasons, F.when(outside.isNotNull(), FAIL).otherwise(quality).cast("int")


CERTIFICATE: Final = ("certificate", "lab", "calibrated", "expires")
"""What belongs to a certificate: none of it is carried over to another one."""
OURS: Final = 0
"""Revision of a recalibration's record: a gateway's own is higher, and takes its place."""
_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_NEARLY: Final = 0.99
"""A converter's last step may lie a little below its nominal full scale."""

Row = Mapping[str, Any]
"""A row of ``channels``, by column."""


class CalibrationError(JobError):
    """A recalibration that can't be right; the text has why and what to do."""


@dataclass(frozen=True)
class Certificate:
    """A later certificate's figures and its own data; ``slope`` in the unit per raw unit."""

    slope: float
    offset: float
    serial: str | None = None
    certificate: str | None = None
    lab: str | None = None
    calibrated: date | None = None
    expires: date | None = None


def linear(row: Row) -> Linear:
    """The calibration a record describes. Raises CalibrationError where it isn't linear in raw."""
    if row["slope"] is None or row["offset"] is None or row["raw_unit"] is None:
        raise CalibrationError(
            f"{row['channel']} of {row['gateway']} ({row['driver']}) has no slope and offset in its record "
            f"{row['cal']}: its values can't be computed again from raw"
        )
    known = QUANTITIES.get(row["quantity"])
    if row["offset"] and (row["kind"] if known is None else known.kind) == "accumulated":
        raise CalibrationError(
            f"{row['channel']} of {row['gateway']} is summed up: an offset of {row['offset']:g} would be "
            "added with each reading; it has a slope alone"
        )
    settings = {name: json.loads(text) for name, text in dict(row["settings"] or {}).items()}
    return Linear(
        cal=row["cal"],
        slope=row["slope"],
        offset=row["offset"],
        range=(row["range_min"], row["range_max"]),
        rest_is_zero=settings.get("at_rest") == "zero",
        saturates_at=_full_scale(settings),
        expires=row["expires"],
    )


def _full_scale(settings: Mapping[str, Any]) -> float | None:
    """The sensor's output in V at the converter's end; None where there is no converter."""
    gain = settings.get("adc.gain")
    if not isinstance(gain, str) or not gain.endswith("V"):
        return None
    return _NEARLY * float(gain.removesuffix("V")) * float(settings.get("divider", 1.0))


def certified(row: Row, later: Certificate) -> dict[str, Any]:
    """The record of the same sensor with a later certificate.

    Its name is made of both, so the same certificate gives the same name. It is not the name the gateway
    would give: that depends on which options the config leaves out, too.
    """
    changed = {**asdict(later), "serial": later.serial or row["serial"]}
    text = json.dumps({"recalibrates": row["cal"], **changed}, sort_keys=True, default=str)
    cal = hashlib.sha256(text.encode()).hexdigest()[:8]
    return {**row, **changed, "cal": cal, "reported": {}, "extra": json.dumps({"recalibrates": row["cal"]})}


def row_of(record: ChannelRecord) -> dict[str, Any]:
    """A record as a row of ``channels``; its times in force are those of ``with_period``."""
    row = channel_row(record)
    return {**row, "settings": dict(row["settings"]), "reported": dict(row["reported"])}


def in_place_of(old: Row, new: Row) -> None:
    """Raises CalibrationError where the new record is of something else than the old one."""
    for name in ("gateway", "channel", "driver", "quantity", "unit", "raw_unit"):
        if old[name] != new[name]:
            raise CalibrationError(f"the record is of {name} {new[name]!r}, the readings of {old[name]!r}")


def with_period(new: Row, known: Row | None, begin: datetime, end: datetime) -> dict[str, Any]:
    """The record to be stored, in force from ``begin`` to ``end`` too; ``known`` is what is stored of it.

    Raises CalibrationError where another calibration has its name.
    """
    if known is not None:
        for name in ("slope", "offset", "serial", *CERTIFICATE):
            if known[name] != new[name]:
                raise CalibrationError(
                    f"record {new['cal']} of {new['channel']} has {name} {known[name]!r}, not {new[name]!r}: "
                    "what is under one name never changes"
                )
    stored = [] if known is None else known["periods"] or []
    inside = NumberSet(
        (_micros(each["begin"], -FOREVER_US), _micros(each["end"], FOREVER_US) - 1)
        for each in (*stored, {"begin": begin, "end": end})
    )
    periods = [{"begin": _moment(first), "end": _moment(last + 1)} for first, last in inside.spans()]
    return {
        **(new if known is None else known),
        "periods": periods,
        "valid_from": periods[0]["begin"],
        "valid_to": periods[-1]["end"],
        "in_force": known is not None and bool(known["in_force"]),
        "revision": OURS,
    }


def _micros(moment: datetime | None, unknown_us: int) -> int:
    # Spark gives times without a zone, in this machine's.
    return unknown_us if moment is None else (moment.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1)


def _moment(micros: int) -> datetime | None:
    return None if abs(micros) == FOREVER_US else moment_of(micros)


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
    readings = spark.read.format("delta").load(location).where(_chosen(wanted))
    by_cal = readings.where("value is not null").groupBy(original()["cal"].alias("cal"), "date")
    found = by_cal.count().collect()
    cal = _only_cal(found, wanted)
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
    columns = recalibrated(old, new)
    differ = reduce(or_, (~F.col(name).eqNullSafe(column) for name, column in columns.items()))
    outcome = _outcome(readings, wanted, old, new.cal, columns, differ)
    if dry_run or not outcome.changed:
        return outcome
    _store_record(spark, settings, wanted, new_row, records.get(new.cal), outcome)
    dates, done = sorted(row.date for row in found if row.cal == cal), 0
    # A commit a month: what conflicts with another commit is done again.
    for _, month in groupby(dates, key=lambda day: (day.year, day.month)):
        chunk = list(month)
        rows = F.col("date").isin(chunk) & _chosen(wanted) & _computable(old)
        rows &= F.col("raw").isNotNull() & differ

        def update(rows: Column = rows) -> None:
            DeltaTable.forPath(spark, location).update(rows, dict(columns))

        retried(update, "recalibrate")
        done += len(chunk)
        log.info("event=recalibrate.dates from=%s to=%s done=%d/%d", chunk[0], chunk[-1], done, len(dates))
    return outcome


def _chosen(wanted: Wanted) -> Column:
    """The channel's readings of the period whose time is known."""
    return (
        F.col("date").between(wanted.begin.date(), wanted.end.date())
        & (F.col("gateway") == wanted.gateway)
        & (F.col("channel") == wanted.channel)
        & (F.col("time") >= wanted.begin)
        & (F.col("time") < wanted.end)
        & timely()
    )


def _only_cal(found: Iterable[Any], wanted: Wanted) -> str:
    """The one calibration the period's values were made with. Raises CalibrationError."""
    counts = Counter[str | None]()
    for row in found:
        counts[row.cal] += row["count"]
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


def _outcome(
    readings: DataFrame, wanted: Wanted, old: Linear, cal: str, columns: Mapping[str, Column], differ: Column
) -> Outcome:
    """What would change. Raises CalibrationError where values are not what the record makes of raw."""
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
    return Outcome(old.cal, cal, **figures)


def _store_record(
    spark: SparkSession,
    settings: Settings,
    wanted: Wanted,
    new_row: dict[str, Any],
    known: dict[str, Any] | None,
    outcome: Outcome,
) -> None:
    """Stores the record and the entry before any value is changed, so that none changes unrecorded."""
    # A record that the gateway has published stays as it is, its periods too.
    if outcome.cal != outcome.original_cal and (known is None or known["revision"] == OURS):
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``jobs recalibrate``."""
    parser.add_argument("--gateway", required=True, metavar="ID")
    parser.add_argument("--channel", required=True, metavar="NAME", help="e.g. cup-50m-a.wind_speed")
    parser.add_argument("--from", required=True, dest="begin", metavar="TIME", help="by the readings' time")
    parser.add_argument("--to", required=True, dest="end", metavar="TIME", help="not included")
    parser.add_argument("--cal", metavar="CAL", help="only readings made with this calibration")
    parser.add_argument("--slope", type=float, help="of the later certificate, unit per raw unit")
    parser.add_argument("--offset", type=float, help="of the later certificate, in the unit")
    for name in ("certificate", "serial", "lab"):
        parser.add_argument(f"--{name}", help="as on the certificate")
    for name in ("calibrated", "expires"):
        parser.add_argument(f"--{name}", type=partial(_day, name), help="as on the certificate")
    parser.add_argument("--record", metavar="FILE", help="instead: the gateway's own record (JSON)")
    parser.add_argument("--original", action="store_true", help="instead: back to what the gateway sent")
    parser.add_argument("--dry-run", action="store_true", help="report how much would change")
    parser.add_argument("--json", action="store_true")


def wanted_of(options: argparse.Namespace) -> tuple[Wanted, Later]:
    """The readings, and what takes their calibration's place. Raises SettingsError."""
    begin, end = period(options.begin, options.end)
    return Wanted(options.gateway, options.channel, begin, end, options.cal), _later(options)


def _later(options: argparse.Namespace) -> Later:
    figures = options.slope is not None or options.offset is not None
    if figures + (options.record is not None) + options.original != 1:
        raise SettingsError("give one of: --slope and --offset, --record FILE, --original")
    if options.original:
        return None
    if options.record is not None:
        return _record(Path(options.record), options.channel)
    if options.slope is None or options.offset is None:
        raise SettingsError("--slope and --offset belong together: both stand on the certificate")
    return Certificate(**{each.name: getattr(options, each.name) for each in fields(Certificate)})


def _record(file: Path, channel: str) -> Later:
    """The record in a file: one JSON object, or what ``fieldgate calibrations --json`` prints."""
    try:
        given = json.loads(file.read_text())
        found = [each for each in given if each["channel"] == channel] if isinstance(given, list) else [given]
        if len(found) != 1:
            raise SettingsError(f"{file}: {len(found)} records of {channel}; leave one in the file")
        return parse_channel(json.dumps(found[0]).encode())
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SettingsError(f"{file}: no calibration record: {error}") from error


def _day(name: str, text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise SettingsError(f"--{name} {text!r} is no date such as 2026-11-02") from error


def main(options: argparse.Namespace, settings: Settings) -> None:
    """Recalibrates, and prints what that changed."""
    request = wanted_of(options)
    with running_session(settings, "fieldgate-recalibrate") as spark:
        outcome = recalibrate(spark, settings, *request, dry_run=options.dry_run)
    figures = {"dry_run": options.dry_run, **asdict(outcome)}
    print(json.dumps(figures) if options.json else "\n".join(f"{k:<16} {v}" for k, v in figures.items()))
