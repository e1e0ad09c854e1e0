"""Rows merged by key, and tables that an older version wrote."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from spark_jobs.schemas import MAST, PRESENCE
from spark_jobs.settings import Settings
from spark_jobs.sinks.delta import ensure_table, table_version
from spark_jobs.sinks.merge import merge_changed
from tests.spark.records import rows_of

NOON = datetime(2026, 5, 28, 12, tzinfo=UTC)
NUMBERS = pa.map_(pa.string(), pa.float64())
ROWS = pa.schema(
    [
        ("gateway", pa.string()),
        ("interval_s", pa.int32()),
        ("interval_start", pa.timestamp("us", tz="UTC")),
        *((name, NUMBERS) for name in ("turbulence_intensity", "wind_power_density", "pair_difference")),
        *((name, pa.float64()) for name in ("shear_alpha", "air_density", "insolation")),
        ("inputs", pa.map_(pa.string(), pa.string())),
        ("date", pa.date32()),
    ]
)


def mast(minute: int, intensity: dict[str, float], density: float | None) -> dict[str, Any]:
    return {
        "gateway": "mast-07",
        "interval_s": 60,
        "interval_start": NOON.replace(minute=minute),
        "turbulence_intensity": list(intensity.items()),
        "air_density": density,
        "date": date(2026, 5, 28),
    }


def test_only_what_changed_is_written(spark: SparkSession, settings: Settings) -> None:
    location = ensure_table(spark, settings, MAST)

    def merge(*rows: dict[str, Any]) -> dict[datetime, dict[str, Any]]:
        merge_changed(spark, location, MAST, pa.Table.from_pylist(list(rows), schema=ROWS))
        return {row["interval_start"]: row for row in rows_of(settings, "mast")}

    before = merge(mast(0, {"a": 0.1, "b": 0.2}, 1.2), mast(1, {}, None))
    assert [row["version"] for row in before.values()] == [1, 1]
    # The same entries in another order are the same.
    after = merge(mast(0, {"b": 0.2, "a": 0.1}, 1.2), mast(1, {}, 1.1))
    unchanged, changed = NOON, NOON.replace(minute=1)
    assert after[unchanged] == before[unchanged]
    assert (after[changed]["version"], after[changed]["air_density"]) == (2, 1.1)
    assert after[changed]["updated_at"] > before[changed]["updated_at"]
    assert len(after) == 2


def test_an_older_table_gets_the_columns_that_came_since(spark: SparkSession, settings: Settings) -> None:
    older = replace(PRESENCE, schema=StructType([field for field in PRESENCE.schema if field.name != "lost"]))
    location = ensure_table(spark, settings, older)
    row = {"gateway": "mast-07", "channel": "cup.wind_speed", "state": "online"}
    spark.createDataFrame([row]).write.format("delta").mode("append").save(location)
    ensure_table(spark, settings, PRESENCE)
    assert [(found["state"], found["lost"]) for found in rows_of(settings, "presence")] == [("online", None)]
    version = table_version(spark, location)
    ensure_table(spark, settings, PRESENCE)
    assert table_version(spark, location) == version
