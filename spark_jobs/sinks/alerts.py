"""Alerts into their table, one row each however often they are published."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import SparkSession

from spark_jobs.frames import rows_frame
from spark_jobs.schemas import ALERTS
from spark_jobs.sinks.merge import merge_rows


def merge_alerts(spark: SparkSession, location: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Merges rows (``merged_row``) by id.

    Nothing is taken away: a null leaves the table's value, and an alert that was live once is not historical
    because it was computed again from old data.
    """
    columns = ALERTS.without("updated_at")
    values = {name: f"coalesce(s.{name}, t.{name})" for name in ALERTS.values}
    values["historical"] = "s.historical and t.historical"
    merge_rows(
        spark,
        location,
        ALERTS,
        rows_frame(spark, columns, ([row[name] for name in columns.names] for row in rows)).coalesce(1),
        (),
        condition=" or ".join(f"not (t.{name} <=> ({value}))" for name, value in values.items()),
        changed=values,
        added={name: f"s.{name}" for name in ALERTS.values},
    )
