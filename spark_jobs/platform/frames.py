"""Between the driver's memory and Spark, by Arrow. Times are microseconds since the epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from spark_jobs.platform.schemas import columns

_MOST_LITERALS: Final = 256


def computed(frame: DataFrame) -> DataFrame:
    """The frame's rows, computed once and kept by the executors as long as they are used.

    Unlike with ``persist`` no plan is left that later ones would have to be compared with; rows that are lost
    with an executor fail what uses them.
    """
    return frame.localCheckpoint()


def kept(frame: DataFrame) -> DataFrame:
    """The same, computed by the first action on them, which is to be on all of them and to follow at once.

    It takes a Spark job less. Which files of a table they are made of is decided here.
    """
    return frame.localCheckpoint(eager=False)


def rows_frame(spark: SparkSession, schema: StructType | str, rows: Iterable[Sequence[Any]]) -> DataFrame:
    """Rows as a frame; ``schema`` may be text as of ``schemas.columns``."""
    arrow = to_arrow_schema(columns(schema) if isinstance(schema, str) else schema)
    named = [dict(zip(arrow.names, row, strict=True)) for row in rows]
    return spark.createDataFrame(pa.Table.from_pylist(named, schema=arrow))


def empty_frame(spark: SparkSession, schema: StructType) -> DataFrame:
    """A frame that has no rows by its plan: what is planned with it is the shorter for."""
    return rows_frame(spark, schema, ())


def row_by_row(
    frame: DataFrame, made: Callable[[Mapping[str, Any]], Mapping[str, Any]], schema: StructType
) -> DataFrame:
    """What Python workers make of each row, both by column."""

    def rows(batches: Iterable[Any]) -> Iterator[Any]:
        arrow = to_arrow_schema(schema)
        for batch in batches:
            yield pa.RecordBatch.from_pylist(list(map(made, batch.to_pylist())), schema=arrow)

    return frame.mapInArrow(rows, schema)


def one_of(name: str, values: Iterable[Any]) -> Column:
    """A filter by which Delta leaves out files; of very many values none is made."""
    found = sorted(set(values))
    return F.col(name).isin(found) if len(found) <= _MOST_LITERALS else F.lit(True)


def few_of(name: str, rows: DataFrame) -> Column:
    """``one_of`` the values that a column of other rows has."""
    found = rows.select(name).distinct().limit(_MOST_LITERALS + 1).collect()
    return one_of(name, (row[0] for row in found))


def dicts_of(table: Any) -> list[dict[str, Any]]:
    """The rows of an Arrow table by column."""
    for at, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            table = table.set_column(at, field.name, table[field.name].cast(pa.int64()))
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def to_bytes(rows: Any) -> bytes:
    """An Arrow table as a byte string."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
        stream.write(rows)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def rows_in(packed: bytes) -> Any:
    """The table in such a byte string."""
    return pa.ipc.open_stream(packed).read_all()
