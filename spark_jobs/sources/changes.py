"""Tables of ours as streams: what changes in them, beginning with what is there."""

from __future__ import annotations

import json
from collections.abc import Iterable

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.files import Files
from spark_jobs.schemas import Table
from spark_jobs.settings import Settings


def table_changes(
    spark: SparkSession, settings: Settings, table: Table, *, deletions: bool = False
) -> DataFrame:
    """The rows of a table with a change feed, and then each change: ``_change_type``, ``_commit_version``.

    The feed rather than the table itself: a plain stream ends with an error at the first correction. A
    corrected row comes twice, as ``update_preimage`` and as ``update_postimage``. Compaction is no change.
    Neither are rows that leave with their day, for what was derived from them stays: ``deletions`` come only
    with that argument (see ``corrections``).
    """
    changes = (
        spark.readStream.format("delta")
        .option("readChangeFeed", "true")
        .option("maxFilesPerTrigger", "2000")
        .load(settings.table(table.name))
    )
    return changes if deletions else changes.where("_change_type != 'delete'")


def corrections(spark: SparkSession, location: str, versions: Iterable[int]) -> set[int]:
    """Those of these versions of a table that are merges; one whose log is cleaned is none.

    The feed calls a row that its writer took back a deletion, and so one that left with its day. Who corrects
    a table merges; retention deletes.
    """
    files = Files(spark)
    logs = {version: files.read(f"{location}/_delta_log/{version:020d}.json") for version in versions}
    return {version for version, log in logs.items() if _operation(log or "") == "MERGE"}


def _operation(log: str) -> str | None:
    actions = map(json.loads, log.splitlines())
    return next((action["commitInfo"].get("operation") for action in actions if "commitInfo" in action), None)
