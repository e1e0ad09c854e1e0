"""Rows of ``statistics`` that the job reads: at a start, and around late readings."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own name for it

from spark_jobs.frames import interval_frame, one_of, rows_frame
from spark_jobs.intervals import Channel, Interval, day_of
from spark_jobs.transforms.statistics import counted


@dataclass(frozen=True, slots=True)
class NewestRow:
    """A channel's newest row: start, what was in force, when it was computed; microseconds since the epoch.

    ``data_us`` is the start of the newest one with readings among the rows read, None without any;
    ``oldest_us`` that of the oldest of them.
    """

    channel: Channel
    row_us: int
    data_us: int | None
    oldest_us: int
    period_ms: int
    unit: str
    computed_us: int


def has_readings() -> Column:
    """Whether a row stands for readings, of whatever quality, and not for a missing interval."""
    return F.expr(f"{counted()} > 0")


class StatisticsRows:
    """Reads the rows of one interval length. What was read is of the table's latest version."""

    def __init__(self, spark: SparkSession, location: str, interval_s: int) -> None:
        self._spark = spark
        self._location = location
        self._interval_s = interval_s

    def _in_force(self) -> tuple[Column, Column]:
        # Rows of a version that had no such column: the one period that gives as many samples.
        given = F.expr(f"coalesce(period_ms, int(round({self._interval_s * 1000} / expected)))")
        return given.alias("period_ms"), F.col("unit")

    def _table(self) -> DataFrame:
        table = self._spark.read.format("delta").load(self._location)
        return table.where(F.col("interval_s") == self._interval_s)

    def dates(self) -> tuple[date, date] | None:
        """First and last partition, of any interval length; None without rows."""
        table = self._spark.read.format("delta").load(self._location)
        row = table.agg(F.min("date").alias("first"), F.max("date").alias("last")).first()
        return None if row is None or row["first"] is None else (row["first"], row["last"])

    def open(self) -> list[Interval]:
        """Rows that are not closed yet."""
        # Files whose rows are all closed are not read: Delta keeps the lowest version of each.
        rows = (
            self._table().where("version = 0").select("gateway", "channel", F.unix_micros("interval_start"))
        )
        return [((row[0], row[1]), row[2]) for row in rows.collect()]

    def newest(self, since: date | None, channels: Collection[Channel] = ()) -> list[NewestRow]:
        """The newest row of each channel, or of these channels, among the dates since that one."""
        table = self._table()
        if since is not None:
            table = table.where(F.col("date") >= since)
        found = F.max_by(F.struct(*self._in_force(), "updated_at"), "interval_start")
        rows = (
            self._of(table, channels)
            .groupBy("gateway", "channel")
            .agg(
                F.unix_micros(F.max("interval_start")),
                F.unix_micros(F.max(F.when(has_readings(), F.col("interval_start")))),
                F.unix_micros(F.min("interval_start")),
                found.alias("found"),
            )
            .select("*", F.unix_micros("found.updated_at"))
            .collect()
        )
        return [
            NewestRow((row[0], row[1]), row[2], row[3], row[4], row.found.period_ms, row.found.unit, row[6])
            for row in rows
        ]

    def at(self, intervals: Collection[Interval]) -> dict[Interval, tuple[bool, int, str]]:
        """The rows of these intervals that are there: whether of readings, the period in force, the unit."""
        rows = (
            self._table()
            .where(F.col("date").isin(sorted({day_of(start_us) for _, start_us in intervals})))
            .where(one_of("gateway", {channel[0] for channel, _ in intervals}))
            .join(
                F.broadcast(interval_frame(self._spark, intervals)),
                ["gateway", "channel", "interval_start"],
                "left_semi",
            )
            .select("gateway", "channel", F.unix_micros("interval_start"), has_readings(), *self._in_force())
            .collect()
        )
        return {((row[0], row[1]), row[2]): (row[3], row.period_ms, row.unit) for row in rows}

    def next_with_readings(self, channel: Channel, after_us: int, until_us: int) -> int | None:
        """Start of the first interval with readings after one and up to ``until_us``."""
        row = (
            self._data(channel, after_us + 1, until_us + 1)
            .agg(F.unix_micros(F.min("interval_start")))
            .first()
        )
        return None if row is None else row[0]

    def last_with_readings(self, channel: Channel, before_us: int) -> tuple[int, int, str] | None:
        """The last interval with readings before one: start, period in force, unit."""
        row = (
            self._data(channel, None, before_us)
            .agg(
                F.max_by(
                    F.struct(F.unix_micros("interval_start"), *self._in_force()), "interval_start"
                ).alias("found")
            )
            .first()
        )
        found = None if row is None else row["found"]
        return None if found is None else (found[0], found[1], found[2])

    def with_readings(self, channel: Channel, first_us: int, end_us: int) -> list[tuple[int, int, str]]:
        """The intervals with readings in this time, ascending: start, period in force, unit."""
        rows = (
            self._data(channel, first_us, end_us)
            .select(F.unix_micros("interval_start"), *self._in_force())
            .collect()
        )
        return sorted((row[0], row[1], row[2]) for row in rows)

    def first_with_readings(self, gateways: Collection[str]) -> dict[Channel, int]:
        """Start of the first interval with readings of each channel of these gateways."""
        rows = (
            self._table()
            .where(one_of("gateway", gateways))
            .where(has_readings())
            .groupBy("gateway", "channel")
            .agg(F.unix_micros(F.min("interval_start")))
            .collect()
        )
        return {(row[0], row[1]): row[2] for row in rows}

    def _data(self, channel: Channel, first_us: int | None, end_us: int) -> DataFrame:
        table = self._of(self._table(), (channel,)).where(has_readings())
        if first_us is not None:
            table = table.where(F.col("interval_start") >= _literal(first_us)).where(
                F.col("date") >= day_of(first_us)
            )
        return table.where(F.col("interval_start") < _literal(end_us)).where(F.col("date") <= day_of(end_us))

    def _of(self, table: DataFrame, channels: Collection[Channel]) -> DataFrame:
        if not channels:
            return table
        gateways, names = {channel[0] for channel in channels}, {channel[1] for channel in channels}
        table = table.where(one_of("gateway", gateways)).where(one_of("channel", names))
        wanted = rows_frame(self._spark, "gateway channel: string", channels)
        return table.join(F.broadcast(wanted), ["gateway", "channel"], "left_semi")


def _literal(micros: int) -> Column:
    return F.timestamp_micros(F.lit(micros))
