"""CSV, Campbell's TOA5 and Parquet. Numbers have all their digits: read again, they are the same."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from cloud.exports.columns import Export
from cloud.lake.mast import utc_offset
from cloud.values import no_formula

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


class ParquetFile:
    """Rows in groups as they come. Times are the start of the interval, with their zone."""

    def __init__(self, path: Path, export: Export) -> None:
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
        self._schema = pa.schema(fields, metadata=whole)
        self._writer = pq.ParquetWriter(path, self._schema)

    def write(self, batch: Any) -> None:
        """Adds rows."""
        arrays = [array.cast(field.type) for array, field in zip(batch.columns, self._schema, strict=True)]
        self._writer.write_batch(pa.record_batch(arrays, schema=self._schema))

    def close(self) -> None:
        """No more rows."""
        self._writer.close()
