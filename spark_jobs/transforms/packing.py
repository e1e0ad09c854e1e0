"""A batch of Kafka records read and validated once, then asked three things: identities, readings, rejects.

Spark would keep parsed rows in its cache column by column, compress them and compute each column's bounds,
which costs more than to parse them. So a worker packs each Arrow batch into two byte strings, rows of
``readings`` and of ``quarantine``, and adds one row for its whole task that says which identities and which
rejects are in it. That row is all the driver needs to know what is new; the packed rows are unpacked when
they are written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own name for it
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from spark_jobs.schemas import QUARANTINE, READINGS
from spark_jobs.transforms.validate import parse_batch

Identity = tuple[str, str, str]
"""gateway, channel, run."""
_KEY: Final = ("gateway", "channel", "run")

PACKED: Final = StructType(
    [
        *(StructField(name, BinaryType()) for name in ("readings", "rejects", "identities", "places")),
        StructField("late", LongType()),
        StructField("newest_us", LongType()),
    ]
)
"""Byte strings are Arrow streams. All but ``readings`` and ``rejects`` is filled once a task, in its last:

``identities`` of its readings and ``places`` of its rejects, as ranges; how many readings were late; and the
highest timestamp Kafka gave to one of its records, microseconds since the epoch.
"""
LATE_S: Final = 300
"""A reading that reached Kafka so long after its time is late."""

_SMALL: Final = 5_000
"""A task of up to so many records has a single row, which tells all: the driver needn't ask again."""

_IDENTITIES: Final = pa.schema(
    [
        ("gateway", pa.string()),
        ("channel", pa.string()),
        ("run", pa.string()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("rows", pa.int64()),
    ]
)
_PLACES: Final = pa.schema(
    [
        ("kafka_topic", pa.string()),
        ("kafka_partition", pa.int32()),
        ("reason", pa.string()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("rows", pa.int64()),
    ]
)

_PACKED_ROWS: Final = to_arrow_schema(PACKED)


class IdentityNumbers:
    """The ``seq`` of many readings by (gateway, channel, run), 12 bytes a reading."""

    def __init__(self) -> None:
        self._codes: dict[Identity, int] = {}
        self._of_rows: list[Any] = []
        self._seqs: list[Any] = []

    def add(self, rows: Any) -> None:
        """Takes up readings: an Arrow table or batch with gateway, channel, run, seq."""
        columns = [_dictionary(rows[name]) for name in _KEY]
        together = np.zeros(rows.num_rows, np.int64)
        for column in columns:
            together = together * len(column.dictionary) + column.indices.to_numpy(zero_copy_only=False)
        _, first, inverse = np.unique(together, return_index=True, return_inverse=True)
        names = [column.take(pa.array(first)).to_pylist() for column in columns]
        codes = [self._codes.setdefault(key, len(self._codes)) for key in zip(*names, strict=True)]
        self._of_rows.append(np.array(codes, np.int32)[inverse])
        self._seqs.append(rows["seq"].to_numpy(zero_copy_only=False))

    def ranges(self) -> dict[str, list[Any]]:
        """Columns gateway, channel, run, first, last, rows: a row for each range that is there without gaps.

        ``rows`` is how many readings are in it: more than its numbers where one stands there twice.
        """
        empty = np.zeros(0, np.int64)
        codes, seqs = np.concatenate([empty, *self._of_rows]), np.concatenate([empty, *self._seqs])
        order = np.lexsort((seqs, codes))
        codes, seqs = codes[order], seqs[order]
        edges = np.flatnonzero((np.diff(codes) != 0) | (np.diff(seqs) > 1)) + 1
        begins = np.concatenate(([0], edges)) if codes.size else edges
        ends = np.concatenate((edges, [codes.size])) if codes.size else edges
        keys = list(self._codes)
        named = [keys[code] for code in codes[begins].tolist()]
        return {
            **{name: [key[at] for key in named] for at, name in enumerate(_KEY)},
            "first": seqs[begins].tolist(),
            "last": seqs[ends - 1].tolist(),
            "rows": (ends - begins).tolist(),
        }


def _dictionary(column: Any) -> Any:
    coded = column.dictionary_encode()
    return coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded


def _to_bytes(rows: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
        stream.write(rows)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def rows_in(packed: bytes) -> Any:
    """The table in a byte string."""
    return pa.ipc.open_stream(packed).read_all()


def _places(rejects: list[Any]) -> Any:
    """How many rejects of each reason there are in each partition, and their lowest and highest offset."""
    table = pa.Table.from_batches(rejects).group_by(_PLACES.names[:3])
    found = table.aggregate([("kafka_offset", "min"), ("kafka_offset", "max"), ("kafka_offset", "count")])
    return found.rename_columns(_PLACES.names).cast(_PLACES).combine_chunks()


def _late(readings: Any) -> int:
    """How many came over 5 minutes after their time, or from an outbox."""
    behind_us = pc.subtract(readings["kafka_time"].cast(pa.int64()), readings["time"].cast(pa.int64()))
    late = pc.or_(readings["replayed"], pc.greater(behind_us, LATE_S * 1_000_000))
    return int(pc.sum(late).as_py() or 0)


def _pack(batches: Iterable[Any], dead_letter_topic: str) -> Iterator[Any]:
    numbers, rejected, records, late = IdentityNumbers(), [], 0, 0
    newest_us: int | None = None
    held: dict[str, Any] = {}
    for batch in batches:
        if not batch.num_rows:
            continue
        if held:
            yield _row(held)
        parsed = parse_batch(batch, dead_letter_topic)
        records += batch.num_rows
        newest = pc.max(batch["timestamp"].cast(pa.int64())).as_py()
        newest_us = max(filter(None, (newest_us, newest)), default=None)
        held = {"readings": None, "rejects": None}
        if parsed.readings.num_rows:
            numbers.add(parsed.readings)
            late += _late(parsed.readings)
            held["readings"] = _to_bytes(parsed.readings)
        if parsed.rejects.num_rows:
            rejected.append(parsed.rejects.select([*_PLACES.names[:3], "kafka_offset"]))
            held["rejects"] = _to_bytes(parsed.rejects)
    if not records:
        return
    if records > _SMALL:
        yield _row(held)
        held = {}
    held["identities"] = _to_bytes(pa.Table.from_pydict(numbers.ranges(), schema=_IDENTITIES))
    held["places"] = _to_bytes(_places(rejected)) if rejected else None
    yield _row({**held, "late": late, "newest_us": newest_us})


def _row(values: Mapping[str, Any]) -> Any:
    return pa.RecordBatch.from_pylist([values], schema=_PACKED_ROWS)


def packed(records: DataFrame, dead_letter_topic: str) -> DataFrame:
    """Kafka records (as the source gives them, headers included), validated: rows of PACKED."""
    needed = records.select("value", "key", "topic", "partition", "offset", "timestamp", "headers")
    return needed.mapInArrow(partial(_pack, dead_letter_topic=dead_letter_topic), PACKED)


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


def _ranges(batches: Iterable[Any]) -> Iterator[Any]:
    numbers = IdentityNumbers()
    for batch in batches:
        numbers.add(batch)
    yield from pa.Table.from_pydict(numbers.ranges(), schema=_IDENTITIES).to_batches()


def identity_ranges(readings: DataFrame) -> DataFrame:
    """The identities of readings as ranges: gateway, channel, run, first, last, rows."""
    return readings.select("gateway", "channel", "run", "seq").mapInArrow(
        _ranges, from_arrow_schema(_IDENTITIES)
    )
