"""A table's files and bytes by date, read from its log without opening a file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from pyspark.sql import DataFrame, SparkSession, functions as F

from spark_jobs.platform.files import Files
from spark_jobs.sinks.delta import snapshot

SMALL_BYTES: Final = 8 << 20
"""Files below this size are joined."""
_SERIES: Final = 50
"""So few series stand for all, as each is held against every file, of which a day may have thousands."""


@dataclass(frozen=True)
class Part:
    """The live files of one date, or of a whole table that has no dates (``date`` is None).

    ``small`` counts those below SMALL_BYTES; ``newest_ms`` is when the newest was written.
    """

    date: str | None
    files: int
    bytes: int
    newest_ms: int
    small: int


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
    """The live files of a table: date (null without), size, modified_ms, stats (JSON)."""
    files = DataFrame(snapshot(spark, location, update=True).allFiles().toDF(), spark)
    date = "try_element_at(partitionValues, 'date') as date"
    return files.selectExpr(date, "size", "modificationTime as modified_ms", "stats")


def parts(spark: SparkSession, location: str) -> list[Part]:
    """The table's files by date, ascending."""
    rows = (
        live_files(spark, location)
        .groupBy("date")
        .agg(
            F.count(F.lit(1)).alias("files"),
            F.sum("size").alias("bytes"),
            F.max("modified_ms").alias("newest_ms"),
            F.count_if(F.col("size") < SMALL_BYTES).alias("small"),
        )
        .collect()
    )
    return sorted((Part(*row) for row in rows), key=lambda part: part.date or "")


Bounds = list[tuple[str, str]]
"""Least and greatest value of each column in a file."""


def files_read(spark: SparkSession, location: str, date: str, columns: Sequence[str]) -> float:
    """Files of a date that a query for one series reads on average, e.g. by (gateway, channel)."""
    rows = live_files(spark, location).where(F.col("date") == date).select("stats").collect()
    return mean_reads([_bounds(row.stats, columns) for row in rows])


def mean_reads(files: list[Bounds]) -> float:
    """Of files with these bounds, how many a query for one of the series they begin with reads.

    Delta itself leaves files out by the least and greatest values in the log; one without is always read.
    """
    begins = [[low for low, _ in file] for file in files[:: -(-len(files) // _SERIES) or 1]]
    reads = [
        sum(all(low <= at <= high for (low, high), at in zip(file, begin, strict=True)) for file in files)
        for begin in begins
    ]
    return fmean(reads) if reads else 0.0


def _bounds(stats: str | None, columns: Sequence[str]) -> Bounds:
    """The bounds of a file; the widest where the log has none."""
    found = json.loads(stats or "{}")
    least, greatest = (found.get(key) or {} for key in ("minValues", "maxValues"))
    return [(str(least.get(name, "")), str(greatest.get(name, "\U0010ffff"))) for name in columns]
