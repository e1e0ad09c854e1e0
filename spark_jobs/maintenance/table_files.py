"""A table's files and bytes by date, read from its log without opening a file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own name for it

from spark_jobs.files import Files
from spark_jobs.sinks.delta import snapshot

TIERS: Final = (1 << 20, 8 << 20)
"""Files below these sizes, in bytes, are small: they are joined with their like."""


@dataclass(frozen=True)
class Part:
    """The live files of one date, or of a whole table that has no dates (``date`` is None).

    ``small`` and ``settled`` count the files below each of TIERS: all of them, and those that were written
    before the given time. ``newest_ms`` is when the newest was written.
    """

    date: str | None
    files: int
    bytes: int
    newest_ms: int
    small: tuple[int, ...]
    settled: tuple[int, ...]


def table_locations(spark: SparkSession, lake: str) -> dict[str, str]:
    """Every Delta table of the lake by name, the jobs' own (``_seen`` …) too."""
    files = Files(spark)
    root = lake.rstrip("/")
    return {
        entry.name: f"{root}/{entry.name}"
        for entry in files.entries(root)
        if entry.is_folder and files.exists(f"{root}/{entry.name}/_delta_log")
    }


def live_files(spark: SparkSession, location: str) -> DataFrame:
    """The live files of a table: path, date (null without), size, modified_ms, stats (JSON)."""
    files = DataFrame(snapshot(spark, location, update=True).allFiles().toDF(), spark)
    return files.select(
        "path",
        F.try_element_at("partitionValues", F.lit("date")).alias("date"),
        "size",
        F.col("modificationTime").alias("modified_ms"),
        "stats",
    )


def parts(spark: SparkSession, location: str, settled_ms: int) -> list[Part]:
    """The table's files by date, ascending; ``settled_ms`` is since the epoch."""
    is_settled = F.col("modified_ms") < settled_ms
    rows = (
        live_files(spark, location)
        .groupBy("date")
        .agg(
            F.count(F.lit(1)).alias("files"),
            F.sum("size").alias("bytes"),
            F.max("modified_ms").alias("newest_ms"),
            F.array(*(F.count_if(F.col("size") < limit) for limit in TIERS)).alias("small"),
            F.array(*(F.count_if((F.col("size") < limit) & is_settled) for limit in TIERS)).alias("settled"),
        )
        .collect()
    )
    found = [
        Part(row.date, row.files, row.bytes, row.newest_ms, tuple(row.small), tuple(row.settled))
        for row in rows
    ]
    return sorted(found, key=lambda part: part.date or "")


def files_read(spark: SparkSession, location: str, date: str, columns: Sequence[str]) -> float:
    """Files of a date that a query for one series reads on average, e.g. by (gateway, channel).

    By the least and greatest values in the log, by which Delta itself leaves files out; a file without them
    is always read. The series are those that the files begin with.
    """
    rows = live_files(spark, location).where(F.col("date") == date).select("stats").collect()
    files = [_bounds(row.stats, columns) for row in rows]
    reads = [
        sum(
            all(low <= first <= high for (low, high), (first, _) in zip(file, begin, strict=True))
            for file in files
        )
        for begin in files
    ]
    return fmean(reads) if reads else 0.0


def _bounds(stats: str | None, columns: Sequence[str]) -> list[tuple[str, str]]:
    """Least and greatest value of each column in a file; the widest where the log has none."""
    found = json.loads(stats or "{}")
    least, greatest = (found.get(key) or {} for key in ("minValues", "maxValues"))
    return [(str(least.get(name, "")), str(greatest.get(name, "\U0010ffff"))) for name in columns]
