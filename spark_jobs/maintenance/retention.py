"""How long rows and files are kept: whole days, rejects, and files that no version needs any more."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

from pyspark.sql import SparkSession

from spark_jobs.maintenance.table_files import Part
from spark_jobs.sinks.retry import retried


def expired(found: list[Part], today: date, keep_days: int) -> list[Part]:
    """The dates that are over by more than ``keep_days``, which leave whole."""
    first_kept = (today - timedelta(days=keep_days)).isoformat()
    return [part for part in found if part.date is not None and part.date < first_kept]


def expired_rejects(now: datetime, keep_days: int) -> str:
    """A condition on the rows of quarantine that came in longer ago than they are kept."""
    return f"ingested_at < timestamp'{(now - timedelta(days=keep_days)).astimezone(UTC).isoformat()}'"


def delete_rows(spark: SparkSession, table: str, location: str, condition: str) -> None:
    """Deletes the rows of a condition; of one on the date alone no file is opened."""
    delete = f"delete from delta.`{location}` where {condition}"  # noqa: S608 - our own names
    retried(lambda: spark.sql(delete), f"retention-{table}")


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
