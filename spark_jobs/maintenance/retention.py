"""What is kept how long: whole days of rows, rejects, and files that no version needs any more."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own name for it

from spark_jobs.maintenance.table_files import Part
from spark_jobs.sinks.retry import retried


def expired(found: list[Part], today: date, keep_days: int) -> list[Part]:
    """The dates that are over by more than ``keep_days``, which leave whole."""
    first_kept = (today - timedelta(days=keep_days)).isoformat()
    return [part for part in found if part.date is not None and part.date < first_kept]


def drop_dates(spark: SparkSession, table: str, location: str, gone: list[Part]) -> None:
    """Removes whole dates: a change of the log alone, no file is opened."""
    last = max(part.date for part in gone if part.date is not None)
    delete = f"delete from delta.`{location}` where date <= '{last}'"  # noqa: S608 - our own names
    retried(lambda: spark.sql(delete), f"retention-{table}")


def old_rejects(spark: SparkSession, location: str, now: datetime, keep_days: int) -> int:
    """How many rows of quarantine came in longer ago than they are kept."""
    before = F.col("ingested_at") < now - timedelta(days=keep_days)
    return spark.read.format("delta").load(location).where(before).count()


def drop_rejects(spark: SparkSession, location: str, now: datetime, keep_days: int) -> None:
    """Removes these rows."""
    moment = (now - timedelta(days=keep_days)).astimezone(UTC).isoformat()
    delete = f"delete from delta.`{location}` where ingested_at < timestamp'{moment}'"  # noqa: S608 - our own
    retried(lambda: spark.sql(delete), "retention-quarantine")


@dataclass(frozen=True)
class Vacuumed:
    """Files that a vacuum removed, and their bytes."""

    files: int
    bytes: int


def vacuum(spark: SparkSession, location: str, keep_days: float) -> Vacuumed:
    """Removes files that are in no version of the last ``keep_days``."""
    # Else Delta refuses less than a week; that it is meant is the operator's word.
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    # Tells in the table's history what was removed.
    spark.conf.set("spark.databricks.delta.vacuum.logging.enabled", "true")
    # It lists folders in so many tasks: 10,000 by default, which takes a minute for one folder.
    spark.conf.set("spark.sql.sources.parallelPartitionDiscovery.parallelism", "4")
    spark.sql(f"vacuum delta.`{location}` retain {keep_days * 24:g} hours")
    (row,) = spark.sql(f"describe history delta.`{location}` limit 1").collect()
    told = row.operationMetrics or {}
    return Vacuumed(int(told.get("numDeletedFiles", 0)), _removed_bytes(spark, location))


def _removed_bytes(spark: SparkSession, location: str) -> int:
    start = spark.sql(f"describe history delta.`{location}` limit 2").collect()[-1]
    return int((start.operationMetrics or {}).get("sizeOfDataToDelete", 0))
