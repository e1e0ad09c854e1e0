"""Alerts into their table, one row each however often they are published."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession

from spark_jobs.schemas import ALERTS
from spark_jobs.sinks.merge import merge_rows

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

    Nothing is taken away: a null leaves the table's value, and an alert that was live once is not historical
    because it was computed again from old data.
    """
    table = pa.Table.from_pylist([dict(row) for row in rows], schema=_COLUMNS)
    if not table.num_rows:
        return
    values = {name: f"coalesce(s.{name}, t.{name})" for name in ALERTS.values}
    values["historical"] = "s.historical and t.historical"
    merge_rows(
        spark,
        location,
        ALERTS,
        spark.createDataFrame(table).coalesce(1),
        (),
        condition=" or ".join(f"not (t.{name} <=> ({value}))" for name, value in values.items()),
        changed=values,
        added={name: f"s.{name}" for name in ALERTS.values},
    )
