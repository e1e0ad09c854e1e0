"""A batch of Kafka records, read and validated once: the files of its readings, their ranges, its rejects.

Spark would take parsed rows apart and put them together several times before they are in a file. So a worker
makes the Parquet files itself, of what is new by the ranges it is given, and the driver gets these as byte
strings with the ranges that are in them. It decides by the ranges alone whether a file goes into the table as
it is. Workers write nothing to storage: a task that is killed, or runs twice, leaves nothing behind.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from spark_jobs.platform.frames import dicts_of, to_bytes
from spark_jobs.platform.schemas import READINGS, Table, columns
from spark_jobs.transforms.seen import SeenRanges, unseen
from spark_jobs.transforms.validate import READING_ROWS, Parse, Parsed

PACKED: Final = columns(
    "readings ranges rejects: binary, files: files, reasons: reasons, read late newest_us: long, "
    "unknown: longs",
    reasons="reason: string, first_us rows: long",
    files="date: date, rows: long, stats: string, content: binary",
)
"""A row for each chunk of a task's records; byte strings but for ``content`` are Arrow streams.

``ranges`` of the readings that are new by what the worker knew, each once. These are in ``readings`` where
they are few, else in ``files``. ``read`` is how many readings there were, ``late`` how many of them were so;
``reasons`` of the rejects; ``newest_us`` is the highest timestamp Kafka gave to one of the records,
microseconds since the epoch; and ``unknown``, ids of schemas that weren't given, a hundred at most.
``rejects`` is null where they would be too large for the driver.
"""
LATE_S: Final = 300
"""A reading that reached Kafka so long after its time is late."""

_CHUNK: Final = 500_000
"""Records of a worker's chunk: a quarter of a gigabyte of memory at most, a file of 20 MB."""
_MOST_REJECTED: Final = 4 << 20
"""Bytes of a chunk's rejects that the driver takes."""
_NEEDED: Final = (
    *("value", "key", "topic", "partition", "offset", "timestamp"),
    # Spark measures an Arrow batch after each row of it, and nulls of a list all over again: records without
    # headers took 60 us more each (measured; ArrowWriter.sizeInBytes of Spark 4.0.2).
    "coalesce(headers, array()) as headers",
)
_PACKED_ROWS: Final = to_arrow_schema(PACKED)
_ALIKE: Final = [
    *("gateway", "channel", "run", "quantity", "unit", "period_ms", "raw_unit", "quality", "clock", "cal"),
    *("latitude", "longitude", "altitude_m", "value", "raw", "ingested_at", "kafka_topic", "kafka_partition"),
    "reasons.list.element",
]
"""Columns whose values repeat: for each of the others a dictionary would be made in vain."""
_SHORT: Final = 32
"""Characters of a text in the log's bounds, as in Delta's own."""


def _bound(value: Any, *, is_upper: bool) -> Any:
    """A lowest or highest value as Delta has it in its log: times by the millisecond, texts cut off."""
    if isinstance(value, datetime):
        return f"{value.replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"
    if not isinstance(value, str) or len(value) <= _SHORT:
        return value
    # Names are ASCII: none of them is above this.
    return value[:_SHORT] + ("\x7f" if is_upper else "")


def _stats(rows: Any) -> str:
    least, greatest, nulls = {}, {}, {}
    for name in READINGS.bounds:
        nulls[name] = rows[name].null_count
        if nulls[name] < rows.num_rows:
            low, high = pc.min_max(rows[name]).as_py().values()
            least[name], greatest[name] = _bound(low, is_upper=False), _bound(high, is_upper=True)
    found = {"numRecords": rows.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls}
    return json.dumps(found)


def files_of(readings: Any) -> list[dict[str, Any]]:
    """Readings (an Arrow table) as Parquet files of each date, with what Delta's log says of them."""
    files = []
    for date in sorted(pc.unique(readings["date"]).to_pylist()):
        rows = readings.filter(pc.equal(readings["date"], date)).drop_columns("date")
        sink = pa.BufferOutputStream()
        # As Spark writes them: by its codec, and without Arrow's schema.
        pq.write_table(
            rows, sink, compression="snappy", use_dictionary=_ALIKE, store_schema=False, write_page_index=True
        )
        content = sink.getvalue().to_pybytes()
        files.append({"date": date, "rows": rows.num_rows, "stats": _stats(rows), "content": content})
    return files


def readings_in(file: Mapping[str, Any]) -> Any:
    """The readings of one of the files, an Arrow table."""
    rows = pq.read_table(pa.BufferReader(file["content"]))
    dates = pa.repeat(pa.scalar(file["date"], pa.date32()), rows.num_rows)
    return rows.append_column("date", dates).select(READING_ROWS.names).cast(READING_ROWS)


def _reasons(rejects: Any) -> list[dict[str, Any]]:
    """How many rejects there are of each reason, and Kafka's time of the first of them."""
    found = rejects.group_by("reason").aggregate([("kafka_time", "min"), ("kafka_time", "count")])
    return dicts_of(found.rename_columns(["reason", "first_us", "rows"]))


def _late(readings: Any) -> int:
    """How many came over 5 minutes after their time, or as replayed."""
    behind_us = pc.subtract(readings["kafka_time"].cast(pa.int64()), readings["time"].cast(pa.int64()))
    late = pc.or_(readings["replayed"], pc.greater(behind_us, LATE_S * 1_000_000))
    return int(pc.sum(late).as_py() or 0)


def _pack(batches: Iterable[Any], parse: Parse, seen: SeenRanges, few: int) -> Iterator[Any]:
    parsed: list[Parsed] = []
    records, newest_us = 0, None
    for batch in batches:
        if not batch.num_rows:
            continue
        parsed.append(parse(batch))
        records += batch.num_rows
        newest = pc.max(batch["timestamp"].cast(pa.int64())).as_py()
        newest_us = max(filter(None, (newest_us, newest)), default=None)
        if records >= _CHUNK:
            yield _row(parsed, newest_us, seen, few)
            parsed, records, newest_us = [], 0, None
    if parsed:
        yield _row(parsed, newest_us, seen, few)


def _row(parsed: list[Parsed], newest_us: int | None, seen: SeenRanges, few: int) -> Any:
    read = pa.Table.from_batches([each.readings for each in parsed])
    rejects = pa.Table.from_batches([each.rejects for each in parsed])
    unknown = {number for each in parsed for number in each.unknown}
    parsed.clear()
    readings, ranges = unseen(read, seen)
    is_few = readings.num_rows <= few
    values = {
        "readings": to_bytes(readings) if is_few and readings.num_rows else None,
        "files": [] if is_few else files_of(readings),
        "ranges": to_bytes(ranges),
        "rejects": to_bytes(rejects) if 0 < rejects.nbytes <= _MOST_REJECTED else None,
        "reasons": _reasons(rejects),
        "read": read.num_rows,
        "late": _late(read),
        "newest_us": newest_us,
        "unknown": sorted(unknown)[:100],
    }
    return pa.RecordBatch.from_pylist([values], schema=_PACKED_ROWS)


def packed(records: DataFrame, parse: Parse, seen: SeenRanges, few: int) -> DataFrame:
    """Kafka records (as the source gives them, headers included) validated: rows of PACKED.

    Up to ``few`` readings of a chunk are no file.
    """
    return records.selectExpr(*_NEEDED).mapInArrow(partial(_pack, parse=parse, seen=seen, few=few), PACKED)


def validated(records: DataFrame, parse: Parse, table: Table) -> DataFrame:
    """Those of Kafka's records that are rows of a table, ``readings`` or ``quarantine``: its columns."""
    name = "readings" if table is READINGS else "rejects"

    def rows(batches: Iterable[Any]) -> Iterator[Any]:
        made = (getattr(parse(batch), name) for batch in batches)
        yield from (each for each in made if each.num_rows)

    return records.selectExpr(*_NEEDED).mapInArrow(rows, table.schema)
