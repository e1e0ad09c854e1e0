"""The table ``trends``: once a day, what wears on every mast, as ``cloud.trends`` has it."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

from delta.tables import DeltaTable
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from cloud.trends import Daily, queries, reported, trends
from spark_jobs.platform.schemas import CHANNELS, HEALTH, SITES, STATISTICS, TRENDS
from spark_jobs.platform.settings import Settings
from spark_jobs.sinks.delta import ensure_table, write

_READ: Final = (STATISTICS, CHANNELS, SITES, HEALTH)
_ABSENT: Final = "TABLE_OR_VIEW_NOT_FOUND"


def write_trends(spark: SparkSession, settings: Settings, now: datetime) -> int:
    """Writes the day's trends in place of those it has; how many. ``spark`` is a session of its own."""
    for table in _READ:
        location = settings.table(table.name)
        if DeltaTable.isDeltaTable(spark, location):
            spark.read.format("delta").load(location).createOrReplaceTempView(table.name)
    today, daily = now.astimezone(UTC).date(), list[Daily]()
    for name, sql in queries(today).items():
        try:
            rows: list[Any] = spark.sql(sql).collect()
        except AnalysisException as error:
            if error.getCondition() != _ABSENT:
                raise
            continue
        daily += reported(rows) if name == "reports" else (Daily(*row) for row in rows)
    found = [asdict(each) | {"date": each.day, "updated_at": now} for each in trends(daily, today)]
    if found:
        columns = TRENDS.schema.names
        rows = [tuple(each[name] for name in columns) for each in found]
        frame = spark.createDataFrame(rows, TRENDS.schema)
        location = ensure_table(spark, settings, TRENDS)
        write(frame, location, mode="overwrite", replaceWhere=f"date = '{today}'")
    return len(found)
