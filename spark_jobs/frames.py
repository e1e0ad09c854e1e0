"""Between the driver's memory and Spark, by Arrow. Times are microseconds since the epoch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from spark_jobs.intervals import Interval
from spark_jobs.schemas import columns


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


def dicts_of(table: Any) -> list[dict[str, Any]]:
    """The rows of an Arrow table by column."""
    for at, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            table = table.set_column(at, field.name, table[field.name].cast(pa.int64()))
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows
