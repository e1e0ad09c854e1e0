"""Between the driver's memory and Spark, by Arrow. Times are microseconds since the epoch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own name for it
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from spark_jobs.intervals import Interval
from spark_jobs.schemas import columns

_MOST_LITERALS: Final = 256


def arrow_rows(schema: StructType, rows: Iterable[Sequence[Any]]) -> Any:
    """Rows as an Arrow table."""
    arrow = to_arrow_schema(schema)
    values = list(zip(*rows, strict=True)) or [()] * len(arrow)
    arrays = [pa.array(column, kind) for column, kind in zip(values, arrow.types, strict=True)]
    return pa.Table.from_arrays(arrays, schema=arrow)


def rows_frame(spark: SparkSession, schema: StructType | str, rows: Iterable[Sequence[Any]]) -> DataFrame:
    """Rows as a frame; ``schema`` may be text as of ``schemas.columns``."""
    return spark.createDataFrame(arrow_rows(columns(schema) if isinstance(schema, str) else schema, rows))


def interval_frame(spark: SparkSession, intervals: Iterable[Interval]) -> DataFrame:
    """The intervals as a frame: gateway, channel, interval_start."""
    rows = ((*channel, start_us) for channel, start_us in intervals)
    return rows_frame(spark, "gateway channel: string, interval_start: time", rows)


def one_of(name: str, values: Iterable[Any]) -> Column:
    """A filter by which Delta leaves out files; of very many values none is made."""
    found = sorted(set(values))
    return F.col(name).isin(found) if len(found) <= _MOST_LITERALS else F.lit(True)


def dicts_of(table: Any) -> list[dict[str, Any]]:
    """The rows of an Arrow table by column."""
    for at, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            table = table.set_column(at, field.name, table[field.name].cast(pa.int64()))
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows
