"""Records of runs, calibrations, sites and statuses into their tables, in whatever order they come.

Each table has one writer, so what it holds of a key is read, folded with the new records, and merged.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from cloud.wire.fields import InvalidFields
from spark_jobs.platform.frames import rows_frame
from spark_jobs.platform.settings import Settings
from spark_jobs.sinks.delta import ensure_table
from spark_jobs.sinks.merge import merge_changed
from spark_jobs.transforms.records import REASONS, RecordKind, Row


class RecordSink:
    """Writes one table of records. Owned by the thread that runs the query's batches."""

    def __init__(self, spark: SparkSession, settings: Settings, kind: RecordKind) -> None:
        self._spark = spark
        self.kind = kind
        self.location = ensure_table(spark, settings, kind.table)
        self._schema = to_arrow_schema(kind.table.without("updated_at"))

    def merge(self, rows: list[Row]) -> tuple[int, list[Row]]:
        """Merges rows of the kind's schema; doing it again changes nothing.

        Returns how many rows changed, and the records that were refused, with their reason.
        """
        given = list(self.kind.made(rows))
        refused = [row for row in given if row["reason"] is not None]
        made = [row for row in given if row["reason"] is None]
        # Kafka's order within a key: one key is in one partition.
        made.sort(key=lambda row: (row["kafka_time"], row["kafka_partition"], row["kafka_offset"]))
        known = self._known(made) if made else {}
        changed: dict[tuple[Any, ...], Row] = {}
        for row in made:
            key = self._key(row)
            before = changed.get(key, known.get(key))
            try:
                after = self.kind.fold(before, row)
            except InvalidFields as problem:
                # The row itself is changed: of a refused event no other table has a row.
                row["reason"] = problem.reason
                refused.append(row)
                continue
            if after is not before:
                changed[key] = after
        if changed:
            merged = pa.Table.from_pylist(list(changed.values()), schema=self._schema)
            # Rows that are done lie apart, and are not written again with those that change.
            there = changed.keys() & known.keys() if self.kind.table.dated_later else changed
            days = {known.get(key, changed[key]).get("date") for key in there}
            merge_changed(self.location, self.kind.table, self._spark.createDataFrame(merged), days)
        return len(changed), refused

    def _key(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.kind.table.key)

    def _known(self, records: list[Row]) -> dict[tuple[Any, ...], Row]:
        names = self.kind.table.key
        schema = StructType([self.kind.table.schema[name] for name in names])
        wanted = rows_frame(self._spark, schema, {self._key(row) for row in records})
        table = self._spark.read.format("delta").load(self.location)
        if (bound := self.kind.bounded_by) is not None:
            times = [row[bound] for row in records]
            table = table.where(F.col(bound).between(min(times), max(times)))
        rows = table.join(F.broadcast(wanted), list(names), "left_semi").toArrow().to_pylist()
        return {self._key(row): row for row in rows}


def reasons_frame(spark: SparkSession, refused: list[Row]) -> DataFrame:
    """Refused records as rows of REASONS."""
    return rows_frame(spark, REASONS, ([row[name] for name in REASONS.names] for row in refused))
