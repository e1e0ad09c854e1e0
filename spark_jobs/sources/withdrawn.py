"""Rows that their writer took back, told from rows that left with their day.

What was derived from a row that should never have been goes too; what was derived from one that is merely not
kept any longer stays. The change feed calls both a deletion. The table's log doesn't: who corrects a table
merges, retention deletes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from pyspark.sql import SparkSession

from spark_jobs.files import Files


def corrections(spark: SparkSession, location: str, versions: Iterable[int]) -> set[int]:
    """Those of these versions of a table that are merges; one whose log is cleaned is not known to be."""
    files = Files(spark)
    wanted = set(versions)
    return {version for version in wanted if _operation(files, location, version) == "MERGE"}


def _operation(files: Files, location: str, version: int) -> str | None:
    text = files.read(f"{location}/_delta_log/{version:020d}.json")
    for line in (text or "").splitlines():
        if told := json.loads(line).get("commitInfo"):
            operation: str | None = told.get("operation")
            return operation
    return None
