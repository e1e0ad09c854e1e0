"""Records of runs, calibrations and statuses into their tables, in whatever order they come.

Each table has one writer, so what it holds of a key is read, folded with what was told, and merged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own name for it
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from cloud.wire.fields import InvalidFields
from spark_jobs.settings import Settings
from spark_jobs.sinks.delta import ensure_table
from spark_jobs.sinks.merge import merge_changed
from spark_jobs.transforms.latest_record import Row
from spark_jobs.transforms.records import Ledger


@dataclass(frozen=True)
class Told:
    """What became of a batch's records: rows that changed, and where and why others were refused."""

    changed: int
    refused: list[Row]


class LedgerSink:
    """Writes one table of records. Owned by the thread that runs the query's batches."""

    def __init__(self, spark: SparkSession, settings: Settings, ledger: Ledger) -> None:
        self._spark = spark
        self._ledger = ledger
        self._location = ensure_table(spark, settings, ledger.table)
        self._columns = [name for name in ledger.table.schema.names if name != "updated_at"]
        self._schema = to_arrow_schema(StructType([ledger.table.schema[name] for name in self._columns]))

    def write(self, told: DataFrame) -> Told:
        """Merges rows of the ledger's schema; doing it again changes nothing."""
        rows = told.toArrow().to_pylist()
        refused = [row for row in rows if row["reason"] is not None]
        made = [row for row in rows if row["reason"] is None]
        # Kafka's order within a key: one key is in one partition.
        made.sort(key=lambda row: (row["kafka_time"], row["kafka_partition"], row["kafka_offset"]))
        known = self._known(made) if made else {}
        changed: dict[tuple[Any, ...], Row] = {}
        for row in made:
            key = self._key(row)
            before = changed.get(key, known.get(key))
            try:
                after = self._ledger.fold(before, row)
            except InvalidFields as problem:
                refused.append({**row, "reason": problem.reason})
                continue
            if after is not before:
                changed[key] = after
        merged = [{name: row[name] for name in self._columns} for row in changed.values()]
        merge_changed(
            self._spark, self._location, self._ledger.table, pa.Table.from_pylist(merged, schema=self._schema)
        )
        return Told(len(merged), refused)

    def _key(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in self._ledger.table.key)

    def _known(self, told: list[Row]) -> dict[tuple[Any, ...], Row]:
        names = self._ledger.table.key
        keys = [dict(zip(names, key, strict=True)) for key in {self._key(row) for row in told}]
        strings = pa.schema([(name, pa.string()) for name in names])
        wanted = self._spark.createDataFrame(pa.Table.from_pylist(keys, schema=strings))
        table = self._spark.read.format("delta").load(self._location)
        rows = table.join(F.broadcast(wanted), list(names), "left_semi").toArrow().to_pylist()
        return {self._key(row): row for row in rows}


_REASONS: Final = pa.schema(
    [
        ("kafka_topic", pa.string()),
        ("kafka_partition", pa.int32()),
        ("kafka_offset", pa.int64()),
        ("reason", pa.string()),
    ]
)


def reasons_frame(spark: SparkSession, refused: list[Row]) -> DataFrame:
    """Where the refused records are in Kafka, and why they were refused."""
    rows = [{name: row[name] for name in _REASONS.names} for row in refused]
    return spark.createDataFrame(pa.Table.from_pylist(rows, schema=_REASONS))
