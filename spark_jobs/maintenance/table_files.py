"""How a table lies on its disk: files and bytes by date, read from its log without opening a file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own name for it

from spark_jobs.files import Files
from spark_jobs.sinks.delta import snapshot

TIERS: Final = (1 << 20, 8 << 20)
"""Files below these sizes, in bytes, are small: they are joined with their like."""


@dataclass(frozen=True)
class Part:
    """The live files of one date, or of a whole table that has no dates (``date`` is None).

    ``small`` and ``settled`` count the files below each of TIERS: all of them, and those that were written
    before ``settled_ms`` of the question. ``newest_ms`` is when the newest was written.
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
    """What the table holds by date, ascending; ``settled_ms`` is since the epoch."""

    def below(limit: int, *, settled: bool) -> Column:
        counted = F.col("size") < limit
        return F.count_if(counted & (F.col("modified_ms") < settled_ms) if settled else counted)

    rows = (
        live_files(spark, location)
        .groupBy("date")
        .agg(
            F.count(F.lit(1)).alias("files"),
            F.sum("size").alias("bytes"),
            F.max("modified_ms").alias("newest_ms"),
            F.array(*(below(limit, settled=False) for limit in TIERS)).alias("small"),
            F.array(*(below(limit, settled=True) for limit in TIERS)).alias("settled"),
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

    By the least and greatest values in the log, as Delta itself leaves files out. One series is asked for per
    file: the one it begins with.
    """
    rows = live_files(spark, location).where(F.col("date") == date).select("stats").collect()
    spans = [span for row in rows if (span := _span(row.stats, columns)) is not None]
    unknown = len(rows) - len(spans)
    return unknown + _mean(sum(_holds(span, probe[0]) for span in spans) for probe in spans)


_Span = tuple[tuple[str, ...], tuple[str, ...]]


def _span(stats: str | None, columns: Sequence[str]) -> _Span | None:
    """Least and greatest value of each column in a file; None where the log doesn't say."""
    told = json.loads(stats or "{}")
    least, greatest = (told.get(key) or {} for key in ("minValues", "maxValues"))
    if not all(name in least and name in greatest for name in columns):
        return None
    return tuple(str(least[name]) for name in columns), tuple(str(greatest[name]) for name in columns)


def _holds(span: _Span, values: tuple[str, ...]) -> bool:
    return all(low <= value <= high for low, value, high in zip(span[0], values, span[1], strict=True))


def _mean(numbers: Iterable[int]) -> float:
    given = list(numbers)
    return sum(given) / len(given) if given else 0.0
