"""How long rows and files are kept: whole days, rows by a time of theirs, files that no version needs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from pyspark.sql import SparkSession

from spark_jobs.sinks.retry import retried

AGED_BY: Final[Mapping[str, str]] = {
    **dict.fromkeys(("readings", "messages", "statistics", "mast", "anomalies"), "date"),
    "quarantine": "ingested_at",
    "alerts": "cleared_at",
    # What a run announced as dropped counts as lost without its row.
    "runs": "if(size(dropped) > 0, null, ended)",
    "recalibrations": "done_at",
}
"""The tables that grow with time, and the SQL that makes a row old; where it is null the row stays.

The others have rows for each channel, calibration or run, however long they are written. Those of runs stay:
without them ``presence`` would take readings for lost that were stored (docs/decisions/pipeline.md).
"""


def delete_older(spark: SparkSession, table: str, location: str, since: datetime, *, dry_run: bool) -> int:
    """Deletes the rows from before this time; of a table with dates whole ones, and no file is opened.

    How many rows; 0 of a table with dates.
    """
    column = AGED_BY[table]
    if column == "date":
        rows, condition = 0, f"date < date'{since.date()}'"
    else:
        condition = f"{column} < timestamp'{since.isoformat()}'"
        rows = spark.read.format("delta").load(location).where(condition).count()
        dry_run |= not rows
    if not dry_run:
        delete = f"delete from delta.`{location}` where {condition}"  # noqa: S608 - our own names
        retried(lambda: spark.sql(delete), f"retention-{table}")
    return rows


def vacuum(spark: SparkSession, location: str, keep_days: float) -> tuple[int, int]:
    """Removes files that are in no version of the last ``keep_days``; how many, and their bytes."""
    # Else Delta refuses less than a week, which the operator may want.
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    # Writes to the table's history what was removed.
    spark.conf.set("spark.databricks.delta.vacuum.logging.enabled", "true")
    # It lists folders in so many tasks: 10,000 by default, which takes a minute for one folder.
    spark.conf.set("spark.sql.sources.parallelPartitionDiscovery.parallelism", "4")
    spark.sql(f"vacuum delta.`{location}` retain {keep_days * 24:g} hours")
    end, start = spark.sql(f"describe history delta.`{location}` limit 2").collect()
    files, size = (end.operationMetrics or {}), (start.operationMetrics or {})
    return int(files.get("numDeletedFiles", 0)), int(size.get("sizeOfDataToDelete", 0))
