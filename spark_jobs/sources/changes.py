"""Tables of ours as streams: what changes in them, beginning with what is there."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own name for it

from spark_jobs.schemas import Table
from spark_jobs.settings import Settings
from spark_jobs.sinks.delta import table_version

log = logging.getLogger("fieldgate.jobs.changes")

_NEW: Final = ("insert", "update_postimage")


def table_changes(
    spark: SparkSession, settings: Settings, table: Table, *, deletions: bool = False
) -> DataFrame:
    """The rows of a table with a change feed, and then each change: ``_change_type``, ``_commit_version``.

    The feed rather than the table itself: a plain stream ends with an error at the first correction. A
    corrected row comes twice, as ``update_preimage`` and as ``update_postimage``. Compaction is no change.
    Neither are rows that leave with their day, for what was derived from them stays: ``deletions`` come only
    where they are asked for (see ``sources.withdrawn``).
    """
    changes = (
        spark.readStream.format("delta")
        .option("readChangeFeed", "true")
        .option("maxFilesPerTrigger", "2000")
        .load(settings.table(table.name))
    )
    return changes if deletions else changes.where("_change_type != 'delete'")


def new_rows(
    spark: SparkSession,
    settings: Settings,
    table: Table,
    version: int,
    shape: Callable[[DataFrame], DataFrame] = lambda rows: rows,
) -> tuple[Any, int]:
    """What ``shape`` makes of the rows that changed after a version of a table, and the version it has now.

    An Arrow table, None where nothing changed; of all rows for version -1, and where the feed no longer
    reaches back so far.
    """
    location = settings.table(table.name)
    whole = spark.read.format("delta").load(location)
    latest = table_version(spark, location)
    if latest == version:
        return None, version
    if version >= 0:
        feed = (
            spark.read.format("delta")
            .option("readChangeFeed", "true")
            .option("startingVersion", version + 1)
            .option("endingVersion", latest)
        )
        try:
            changed = feed.load(location).where(F.col("_change_type").isin(*_NEW)).select(*whole.columns)
            return shape(changed).toArrow(), latest
        except PySparkException as error:
            # Its files are vacuumed, or its log is cleaned.
            log.warning(
                "event=changes.gone table=%s after_version=%d %s", table.name, version, str(error)[:200]
            )
    return shape(whole).toArrow(), latest
