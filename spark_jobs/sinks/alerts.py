"""Alerts into their table, one row each however often they are told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa
from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from spark_jobs.schemas import ALERTS

_TIME: Final = pa.timestamp("us", tz="UTC")
_COLUMNS: Final = pa.schema(
    [
        *((name, pa.string()) for name in ("id", "rule", "rule_version", "kind", "severity")),
        ("gateway", pa.string()),
        ("channel", pa.string()),
        ("raised_at", _TIME),
        ("cleared_at", _TIME),
        ("value", pa.float64()),
        ("detail", pa.string()),
        ("historical", pa.bool_()),
        ("command_id", pa.string()),
    ]
)


def merge_alerts(spark: SparkSession, location: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Merges rows (``merged_row``) by id.

    What is known stays: a row that says less than the table takes nothing away, and an alert that was live
    once is not historical because it was computed again from old data.
    """
    table = pa.Table.from_pylist([dict(row) for row in rows], schema=_COLUMNS)
    if not table.num_rows:
        return
    names = [name for name in _COLUMNS.names if name != "id"]
    values = {name: f"coalesce(s.{name}, t.{name})" for name in names}
    values["historical"] = "s.historical and t.historical"
    changed = " or ".join(f"not (t.{name} <=> ({value}))" for name, value in values.items())
    (
        DeltaTable.forPath(spark, location)
        .alias("t")
        .merge(spark.createDataFrame(table).coalesce(1).alias("s"), f"t.{ALERTS.key[0]} = s.{ALERTS.key[0]}")
        .whenMatchedUpdate(condition=changed, set={**values, "updated_at": "current_timestamp()"})
        .whenNotMatchedInsert(
            values={
                "id": "s.id",
                **{name: f"s.{name}" for name in names},
                "updated_at": "current_timestamp()",
            }
        )
        .execute()
    )
