"""Tables of ours as streams: what changes in them, beginning with what is there."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.schemas import Table
from spark_jobs.settings import Settings


def table_changes(spark: SparkSession, settings: Settings, table: Table) -> DataFrame:
    """The rows of a table with a change feed, and then each change: ``_change_type``, ``_commit_version``.

    The feed rather than the table itself: a plain stream ends with an error at the first correction. A
    corrected row comes twice, as ``update_preimage`` and as ``update_postimage``. Compaction is no change.
    Neither are rows that leave, with their day or taken back: what was derived from readings stays.
    """
    return (
        spark.readStream.format("delta")
        .option("readChangeFeed", "true")
        .option("maxFilesPerTrigger", "2000")
        .load(settings.table(table.name))
        .where("_change_type != 'delete'")
    )
