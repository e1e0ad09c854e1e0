"""What an export has, its rows from the lake, and how CSV, Campbell's TOA5 and Parquet are written.

Numbers have all their digits: read again, they are the same.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from cloud.lake.answers import batches_of
from cloud.lake.mast import DAY_MS, Channel, Mast, utc_offset, within
from cloud.lake.numbers import IS_COVERED
from cloud.lake.reader import FIGURES, plausible
from cloud.lake.tables import LazyLakes, meanings, quoted
from cloud.values import installed_version, no_formula

_FIGURES: Final = {
    "direction": ("avg", "sd", "count"), "accumulated": ("sum", "count"), "state": ("avg", "count"),
}  # fmt: skip
_OTHERS: Final = ("avg", "sd", "min", "max", "count")
_WIND: Final = ("avg", "sd", "min", "max", "gust", "count")


@dataclass(frozen=True)
class Column:
    """A channel's figure, named as the table's column; of readings ``value``."""

    channel: Channel
    figure: str

    @property
    def name(self) -> str:
        """In every file: ``CHANNEL_FIGURE``, of readings the channel's name."""
        return self.channel.name if self.figure == "value" else f"{self.channel.name}_{self.figure}"

    @property
    def unit(self) -> str:
        """Empty of numbers of samples."""
        if self.figure == "count":
            return ""
        return "1" if self.channel.kind == "state" and self.figure == "avg" else self.channel.unit

    @property
    def meaning(self) -> str:
        """The meaning in words."""
        return meanings()["readings" if self.figure == "value" else "statistics", self.figure][1]


@dataclass(frozen=True)
class Export:
    """What is written: milliseconds since 1970 from and to, exclusive; ``interval_s`` None is readings.

    ``parts`` are the times from and to that rows are made for: all but the long gaps.
    ``clean`` is without what the cleaning log marks, ``every`` with values that aren't valid. Times are
    written ``offset_min`` minutes ahead of UTC.
    """

    mast: Mast
    columns: tuple[Column, ...]
    interval_s: int | None
    begin_ms: int
    end_ms: int
    parts: tuple[tuple[int, int], ...]
    offset_min: int = 0
    clean: bool = True
    every: bool = False

    @property
    def offset(self) -> str:
        """Such as UTC+05:45."""
        return f"UTC{utc_offset(self.offset_min)}"

    @property
    def time(self) -> str:
        """What the column of times has: the beginning of each row's period."""
        return "time" if self.interval_s is None else "interval_start"

    def moment(self, time_us: int) -> datetime:
        """As it is written, without a zone."""
        return datetime.fromtimestamp(0, UTC).replace(tzinfo=None) + timedelta(
            minutes=self.offset_min, microseconds=time_us
        )

    def stamp(self, time_us: int) -> str:
        """Returns a time as text; all of a file are as long, or pandas takes them for words."""
        parts = "microseconds" if self.interval_s is None else "seconds"
        return self.moment(time_us).isoformat(" ", timespec=parts)


def columns_of(mast: Mast, *, readings: bool) -> tuple[Column, ...]:
    """A mast's columns: what the kind of each channel has."""
    return tuple(_columns(mast, readings=readings))


def _columns(mast: Mast, *, readings: bool) -> Iterator[Column]:
    for channel in mast.channels:
        linear = _WIND if channel.quantity == "wind_speed" else _OTHERS
        figures = ("value",) if readings else _FIGURES.get(channel.kind, linear)
        yield from (Column(channel, figure) for figure in figures)


TIME: Final = "time_us"
"""The first column: microseconds since 1970, UTC."""
_DAYS: Final = 28
"""Statistics are read in parts of so many days."""
_HOURS: Final = 6
"""Readings are read in parts of so many hours: 100 channels of 1 Hz make two million."""
_VALID_READING: Final = "quality <= 2"


def batches(lakes: LazyLakes, export: Export) -> Iterator[Any]:
    """Arrow batches with a column for each of the export's, in their order, by time.

    An interval that has no row, or none that counts, is a row without values, but in a long gap. Raises
    LakeError, duckdb.Error.
    """
    table = "readings" if export.interval_s is None else "statistics"
    view = f"{table}_clean" if export.clean else table
    lakes.add(view)
    # Or it keeps what it has read of files, up to most of the machine's memory.
    lakes.connection.execute("SET enable_external_file_cache = false; SET memory_limit = '512MB'")
    there = set(lakes.connection.view(view).columns)
    step = _HOURS * 3_600_000 if export.interval_s is None else _DAYS * DAY_MS
    for first_ms, last_ms in export.parts:
        for begin_ms in range(first_ms, last_ms, step):
            sql = _sql(export, view, there, begin_ms, min(begin_ms + step, last_ms))
            yield from batches_of(lakes.connection.sql(sql))


def _sql(export: Export, view: str, there: set[str], begin_ms: int, end_ms: int) -> str:
    """A row for each time, with the columns of all channels side by side."""
    figures = dict.fromkeys(column.figure for column in export.columns)
    if export.interval_s is not None and not export.every:
        shown = ", ".join(plausible(name, "statistics") for name in FIGURES if name in there)
        view = f"(SELECT * REPLACE ({shown}) FROM {view})"  # noqa: S608 - names of ours
    start, condition = "time", "clock IS DISTINCT FROM 'unsynced'"
    if export.interval_s is not None:
        start, condition = "interval_start", f"interval_s = {export.interval_s}"
    values = ", ".join(f"{_value(figure, there, every=export.every)} AS {figure}" for figure in figures)
    rows = (
        f"SELECT epoch_us({start}) AS {TIME}, channel, {values} FROM {view} "  # noqa: S608 - quoted
        f"WHERE gateway = {quoted(export.mast.gateway, chr(39))} AND {within(start, begin_ms, end_ms)} "
        f"AND {condition}"
    )
    if export.interval_s is not None:
        due = f"range({1000 * begin_ms}, {1000 * end_ms}, {1_000_000 * export.interval_s})"
        rows = f"SELECT * FROM {due} AS due({TIME}) LEFT JOIN ({rows}) USING ({TIME})"  # noqa: S608 - of ours
    # Numbers, as DuckDB takes names that differ by case alone for one.
    number = {channel.name: at for at, channel in enumerate(export.mast.channels)}
    channels = ", ".join(f"{quoted(name, chr(39))} AS c{at}" for name, at in number.items())
    columns = ", ".join(f"c{number[each.channel.name]}_{each.figure}" for each in export.columns)
    largest = ", ".join(f"max({figure}) AS {figure}" for figure in figures)
    return (
        f"SELECT {TIME}, {columns} FROM ({rows}) "  # noqa: S608 - quoted
        f"PIVOT ({largest} FOR channel IN ({channels}) GROUP BY {TIME}) ORDER BY {TIME}"
    )


def _value(figure: str, there: set[str], *, every: bool) -> str:
    kind = "BIGINT" if figure == "count" else "DOUBLE"
    if figure not in there:
        return f"NULL::{kind}"
    valid = _VALID_READING if figure == "value" else IS_COVERED
    # How many samples there were is true of an interval that is left out too.
    only = "true" if every or figure == "count" else valid
    return f"CASE WHEN {only} THEN {quoted(figure)} END::{kind}"


_PROCESSING: Final = {
    "avg": "Avg", "sd": "Std", "min": "Min", "max": "Max", "gust": "Max", "sum": "Tot", "count": "Smp",
    "value": "Smp",
}  # fmt: skip


def _rows(batch: Any) -> Iterator[Sequence[Any]]:
    return zip(*(column.to_pylist() for column in batch.columns), strict=True)


class CsvFile:
    """One line of names; what isn't there is empty. Times are the start of the interval, as the name says."""

    def __init__(self, path: Path, export: Export) -> None:
        self._export = export
        self._file = path.open("w", newline="", encoding="utf-8")
        self._writer = csv.writer(self._file, lineterminator="\n")
        names = (no_formula(column.name) for column in export.columns)
        self._writer.writerow([f"{export.time} ({export.offset})", *names])

    def write(self, batch: Any) -> None:
        """Adds rows."""
        stamp = self._export.stamp
        self._writer.writerows((stamp(time_us), *values) for time_us, *values in _rows(batch))

    def close(self) -> None:
        """No more rows."""
        self._file.close()


def write_columns(path: Path, export: Export) -> None:
    """The columns of ``CsvFile`` with their units, a line each."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("column", "unit", "channel", "statistic", "quantity", "height_m", "meaning"))
        begins = "start of the period the row stands for"
        writer.writerow((f"{export.time} ({export.offset})", export.offset, "", "", "", "", begins))
        for column in export.columns:
            of = column.channel
            kind = (of.name, column.figure, of.quantity, of.height_m)
            writer.writerow(map(no_formula, (column.name, column.unit, *kind, column.meaning)))


class Toa5File:
    """Four lines of heading; what isn't there is ``NAN``.

    Times are the **end** of the interval, as Campbell's loggers have them; of readings their own.
    """

    def __init__(self, path: Path, export: Export) -> None:
        self._export = export
        length_s = export.interval_s or 0
        self._end_us = 1_000_000 * length_s
        self._record = 0
        self._file = path.open("w", newline="", encoding="utf-8")
        self._writer = csv.writer(self._file, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\r\n")
        table = f"statistics_{length_s}s" if length_s else "readings"
        stamps = f"{export.offset} {'end of interval' if length_s else 'start of sample'}"
        columns = export.columns
        self._writer.writerows(map(no_formula, line) for line in (
            ("TOA5", export.mast.gateway, "fieldgate", "", installed_version(), stamps, "", table),
            ("TIMESTAMP", "RECORD", *(column.name for column in columns)),
            ("TS", "RN", *(column.unit for column in columns)),
            ("", "", *(_PROCESSING[column.figure] for column in columns)),
        ))  # fmt: skip

    def write(self, batch: Any) -> None:
        """Adds rows."""
        stamp = self._export.stamp
        for time_us, *values in _rows(batch):
            given = ("NAN" if value is None else value for value in values)
            self._writer.writerow((stamp(time_us + self._end_us), self._record, *given))
            self._record += 1

    def close(self) -> None:
        """No more rows."""
        self._file.close()


def arrow_schema(export: Export) -> Any:
    """Times with their zone, then the columns, each with unit, channel and meaning in its metadata."""
    zone = utc_offset(export.offset_min) if export.offset_min else "UTC"
    meaning = {"meaning": "start of the period the row stands for"}
    fields = [pa.field(export.time, pa.timestamp("us", tz=zone), metadata=meaning)]
    for column in export.columns:
        of = column.channel
        height = {} if of.height_m is None else {"height_m": str(of.height_m)}
        about = {"unit": column.unit, "channel": of.name, "statistic": column.figure,
                 "quantity": of.quantity, "meaning": column.meaning, **height}  # fmt: skip
        kind = pa.int64() if column.figure == "count" else pa.float64()
        fields.append(pa.field(column.name, kind, metadata=about))
    whole = {"mast": export.mast.gateway, "interval_s": str(export.interval_s or "")}
    return pa.schema(fields, metadata=whole)


def in_schema(batch: Any, schema: Any) -> Any:
    """A batch with the names and types of ``arrow_schema``."""
    arrays = [array.cast(field.type) for array, field in zip(batch.columns, schema, strict=True)]
    return pa.record_batch(arrays, schema=schema)


class ParquetFile:
    """Rows in groups as they come. Times are the start of the interval, with their zone."""

    def __init__(self, path: Path, export: Export) -> None:
        self._schema = arrow_schema(export)
        self._writer = pq.ParquetWriter(path, self._schema)

    def write(self, batch: Any) -> None:
        """Adds rows."""
        self._writer.write_batch(in_schema(batch, self._schema))

    def close(self) -> None:
        """No more rows."""
        self._writer.close()
