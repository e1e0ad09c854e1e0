"""What an export has, its rows from the lake, and how CSV, Campbell's TOA5 and Parquet are written.

Numbers have all their digits: read again, they are the same.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cloud.lake.answers import batches_of
from cloud.lake.mast import DAY_MS, Channel, Mast, utc_offset, within
from cloud.lake.numbers import IS_COVERED
from cloud.lake.reader import FIGURES, plausible
from cloud.lake.tables import LazyLakes, meanings, quoted
from cloud.values import no_formula

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
"""Readings are read in parts of so many hours: 100 channels of 1 Hz make two million, which are sorted."""
_AT_ONCE: Final = 200_000
"""Rows of the lake that are put side by side at a time; more than a time's are."""
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
            found = batches_of(lakes.connection.sql(sql, params=[export.mast.gateway]))
            for rows in _whole_times(found):
                yield _side_by_side(rows, export)


def _sql(export: Export, view: str, there: set[str], begin_ms: int, end_ms: int) -> str:
    """A row for each time and channel, by time: an aggregate for each column would read each row for each."""
    figures = dict.fromkeys(column.figure for column in export.columns)
    # Numbers are a third of what names take to be sorted; null is a channel that isn't exported.
    names = ", ".join(f"({quoted(each.name, chr(39))}, {at})" for at, each in enumerate(export.mast.channels))
    if export.interval_s is not None and not export.every:
        shown = ", ".join(plausible(name, "statistics") for name in FIGURES if name in there)
        view = f"(SELECT * REPLACE ({shown}) FROM {view})"  # noqa: S608 - names of ours
    numbered = f"{view} LEFT JOIN (VALUES {names}) AS known(channel, number) USING (channel)"
    values = ", ".join(f"{_value(figure, there, every=export.every)} AS {figure}" for figure in figures)
    if export.interval_s is None:
        return (
            f"SELECT epoch_us(time) AS {TIME}, number, {values} FROM {numbered} WHERE gateway = ? "  # noqa: S608 - quoted
            f"AND clock IS DISTINCT FROM 'unsynced' AND {within('time', begin_ms, end_ms)} "
            f"GROUP BY ALL ORDER BY {TIME}"
        )
    return (
        f"SELECT slot * 1000 AS {TIME}, number, {', '.join(figures)} "  # noqa: S608 - quoted
        f"FROM range({begin_ms}, {end_ms}, {1000 * export.interval_s}) AS due(slot) LEFT JOIN ("
        f"SELECT epoch_ms(interval_start) AS slot, number, {values} FROM {numbered} WHERE gateway = ? "
        f"AND interval_s = {export.interval_s} AND {within('interval_start', begin_ms, end_ms)} GROUP BY ALL"
        ") AS found USING (slot) ORDER BY slot"
    )


def _value(figure: str, there: set[str], *, every: bool) -> str:
    kind = "BIGINT" if figure == "count" else "DOUBLE"
    if figure not in there:
        return f"any_value(NULL)::{kind}"
    valid = _VALID_READING if figure == "value" else IS_COVERED
    # How many samples there were is true of an interval that is left out too.
    only = "true" if every or figure == "count" else valid
    return f"max({quoted(figure)}) FILTER (WHERE {only})::{kind}"


def _whole_times(found: Iterable[Any]) -> Iterator[Any]:
    """Tables of which none ends within a time."""
    held: list[Any] = []
    for batch in found:
        held.append(batch)
        if sum(each.num_rows for each in held) < _AT_ONCE:
            continue
        rows = pa.Table.from_batches(held)
        last = pc.index(rows[TIME], rows[TIME][-1]).as_py()
        if last:
            yield rows.slice(0, last)
        held = rows.slice(last).to_batches()
    if held:
        yield pa.Table.from_batches(held)


def _side_by_side(rows: Any, export: Export) -> Any:
    """A row for each time, in it all of its channels."""
    number = {channel.name: at for at, channel in enumerate(export.mast.channels)}
    times = rows[TIME].combine_chunks().dictionary_encode()
    length = len(times.dictionary)
    # Null of a time that has nothing, and of a channel that isn't exported: no place.
    first = pc.multiply(rows["number"].combine_chunks().cast(pa.int64()), length)
    places, most = pc.add(first, times.indices.cast(pa.int64())), len(number) * length - 1
    grids = {
        figure: pc.scatter(rows[figure].combine_chunks(), places, max_index=most)
        for figure in dict.fromkeys(column.figure for column in export.columns)
    }
    columns = [
        grids[column.figure].slice(number[column.channel.name] * length, length) for column in export.columns
    ]
    return pa.record_batch([times.dictionary, *columns], [TIME, *(f"c{at}" for at in range(len(columns)))])


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

    def __init__(self, path: Path, export: Export, version: str) -> None:
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
            ("TOA5", export.mast.gateway, "fieldgate", "", version, stamps, "", table),
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
