"""A batch of Kafka records, read and validated once; then its identities, its readings and its rejects.

Spark would keep parsed rows in its cache column by column, compress them and compute each column's bounds,
which costs more than to parse them. So a worker packs each Arrow batch into two byte strings, rows of
``readings`` and of ``quarantine``, and adds one row for its whole task with the identities and rejects that
are in it. The driver decides by that row alone what is new; the packed rows are unpacked when they are
written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from cloud.wire.avro_readings import NO_SCHEMAS
from cloud.wire.identities import NOBODY, Identities
from spark_jobs.platform.schemas import QUARANTINE, READINGS, columns
from spark_jobs.transforms.validate import parse_batch

IDENTITY: Final = ("gateway", "channel", "run")
"""What makes a reading, together with ``seq``."""

PACKED: Final = columns("readings rejects identities reasons: binary, late newest_us: long, unknown: longs")
"""Byte strings are Arrow streams. All but ``readings`` and ``rejects`` is filled once a task, in its last:

``identities`` of its readings, as ranges; ``reasons`` of its rejects; how many readings were late; the
highest timestamp Kafka gave to one of its records, microseconds since the epoch; and ``unknown``, ids of
schemas that weren't given, a hundred at most.
"""
LATE_S: Final = 300
"""A reading that reached Kafka so long after its time is late."""

_SMALL: Final = 5_000
"""A task of up to so many records has a single row: the driver gets everything at once."""

_MOST_UNKNOWN: Final = 100

_IDENTITIES: Final = pa.schema(
    [*((name, pa.string()) for name in IDENTITY), *((name, pa.int64()) for name in ("first", "last", "rows"))]
)
_REASONS: Final = pa.schema([("reason", pa.string()), ("first_us", pa.int64()), ("rows", pa.int64())])
_PACKED_ROWS: Final = to_arrow_schema(PACKED)


def identities_of(rows: Any) -> Any:
    """Gateway, channel, run and seq of readings (an Arrow table or batch), in 20 bytes each."""
    return pa.table({**{name: rows[name].dictionary_encode() for name in IDENTITY}, "seq": rows["seq"]})


def ranges_of(identities: Iterable[Any]) -> Any:
    """Tables of ``identities_of`` as ranges without gaps, an Arrow table.

    ``rows`` is how many readings are in a range: more than its numbers where one stands there twice.
    """
    tables = [table for table in identities if table.num_rows]
    if not tables:
        return _IDENTITIES.empty_table()
    table = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
    codes = np.zeros(table.num_rows, np.int64)
    for name in IDENTITY:
        (column,) = table[name].chunks
        codes = codes * len(column.dictionary) + column.indices.to_numpy()
    seqs = table["seq"].to_numpy()
    order = np.lexsort((seqs, codes))
    codes, seqs = codes[order], seqs[order]
    edges = np.flatnonzero((np.diff(codes) != 0) | (np.diff(seqs) > 1)) + 1
    begins, ends = np.append(0, edges), np.append(edges, len(seqs))
    keys = table.select(IDENTITY).take(pa.array(order[begins]))
    columns = [*keys.columns, seqs[begins], seqs[ends - 1], ends - begins]
    return pa.table(columns, _IDENTITIES.names).cast(_IDENTITIES)


def _to_bytes(rows: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
        stream.write(rows)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def rows_in(packed: bytes) -> Any:
    """The table in a byte string."""
    return pa.ipc.open_stream(packed).read_all()


def _reasons(rejects: list[Any]) -> Any:
    """How many rejects there are of each reason, and Kafka's time of the first of them."""
    table = pa.Table.from_batches(rejects).group_by("reason")
    found = table.aggregate([("kafka_time", "min"), ("kafka_time", "count")])
    return found.rename_columns(_REASONS.names).cast(_REASONS).combine_chunks()


def _late(readings: Any) -> int:
    """How many came over 5 minutes after their time, or as replayed."""
    behind_us = pc.subtract(readings["kafka_time"].cast(pa.int64()), readings["time"].cast(pa.int64()))
    late = pc.or_(readings["replayed"], pc.greater(behind_us, LATE_S * 1_000_000))
    return int(pc.sum(late).as_py() or 0)


def _pack(
    batches: Iterable[Any], dead_letter_topic: str, senders: Identities, schemas: Mapping[int, str]
) -> Iterator[Any]:
    identities, rejected, records, late = [], [], 0, 0
    newest_us: int | None = None
    unknown: set[int] = set()
    held: dict[str, Any] = {}
    for batch in batches:
        if not batch.num_rows:
            continue
        if held:
            yield _row(held)
        parsed = parse_batch(batch, dead_letter_topic, senders, schemas)
        unknown |= parsed.unknown
        records += batch.num_rows
        newest = pc.max(batch["timestamp"].cast(pa.int64())).as_py()
        newest_us = max(filter(None, (newest_us, newest)), default=None)
        held = {"readings": None, "rejects": None}
        if parsed.readings.num_rows:
            identities.append(identities_of(parsed.readings))
            late += _late(parsed.readings)
            held["readings"] = _to_bytes(parsed.readings)
        if parsed.rejects.num_rows:
            rejected.append(parsed.rejects.select(["reason", "kafka_time"]))
            held["rejects"] = _to_bytes(parsed.rejects)
    if not records:
        return
    if records > _SMALL:
        yield _row(held)
        held = {}
    held["identities"] = _to_bytes(ranges_of(identities))
    held["reasons"] = _to_bytes(_reasons(rejected)) if rejected else None
    yield _row({**held, "late": late, "newest_us": newest_us, "unknown": sorted(unknown)[:_MOST_UNKNOWN]})


def _row(values: Mapping[str, Any]) -> Any:
    return pa.RecordBatch.from_pylist([values], schema=_PACKED_ROWS)


def packed(
    records: DataFrame,
    dead_letter_topic: str,
    identities: Identities = NOBODY,
    schemas: Mapping[int, str] = NO_SCHEMAS,
) -> DataFrame:
    """Kafka records (as the source gives them, headers included), validated: rows of PACKED."""
    needed = records.select("value", "key", "topic", "partition", "offset", "timestamp", "headers")
    pack = partial(_pack, dead_letter_topic=dead_letter_topic, senders=identities, schemas=dict(schemas))
    return needed.mapInArrow(pack, PACKED)


def _unpack(batches: Iterable[Any], column: str) -> Iterator[Any]:
    for batch in batches:
        for value in batch[column]:
            yield from pa.ipc.open_stream(value.as_buffer())


def _unpacked(frame: DataFrame, column: str, schema: StructType) -> DataFrame:
    there = frame.select(column).where(F.col(column).isNotNull())
    return there.mapInArrow(partial(_unpack, column=column), schema)


def readings_of(frame: DataFrame) -> DataFrame:
    """The valid readings of a packed batch, with the columns of ``readings``."""
    return _unpacked(frame, "readings", READINGS.schema)


def rejects_of(frame: DataFrame) -> DataFrame:
    """The rejected records of a packed batch, with the columns of ``quarantine``."""
    return _unpacked(frame, "rejects", QUARANTINE.schema)


def identity_ranges(readings: DataFrame) -> DataFrame:
    """Ranges that together hold exactly the readings given: gateway, channel, run, first, last."""
    ranges = readings.select(*IDENTITY, "seq").mapInArrow(
        lambda batches: ranges_of(map(identities_of, batches)).to_batches(), from_arrow_schema(_IDENTITIES)
    )
    return ranges.drop("rows")
