"""The table ``trends``: once a day, what wears on every mast, as ``cloud.trends`` has it."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, date, datetime
from functools import partial, reduce
from typing import Any, Final

import pyarrow as pa
from delta.tables import DeltaTable
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

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
    today, found = now.astimezone(UTC).date(), list[DataFrame]()
    for name, sql in queries(today).items():
        try:
            daily = spark.sql(sql)
        except AnalysisException as error:
            if error.getCondition() != _ABSENT:
                raise
            continue
        made = partial(_of_mast, name=name, today=today, now=now)
        found.append(daily.groupBy("gateway").applyInArrow(made, TRENDS.schema))
    if not found:
        return 0
    location = ensure_table(spark, settings, TRENDS)
    of_today = f"date = '{today}'"
    write(reduce(DataFrame.union, found), location, mode="overwrite", replaceWhere=of_today)
    return spark.read.format("delta").load(location).where(of_today).count()


def _of_mast(daily: pa.Table, name: str, today: date, now: datetime) -> pa.Table:
    rows: list[Any] = [tuple(row.values()) for row in daily.to_pylist()]
    found = trends(reported(rows) if name == "reports" else (Daily(*row) for row in rows), today)
    made = [asdict(each) | {"date": each.day, "updated_at": now} for each in found]
    return pa.Table.from_pylist(made, to_arrow_schema(TRENDS.schema))
