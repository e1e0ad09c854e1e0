"""Small files joined, closed days clustered: by OPTIMIZE, which changes no row and is no change to readers.

A writer that commits every few seconds makes hundreds of files an hour. Small ones are joined with their like
(TIERS), so that what was joined isn't written again each time. Appends go on beside it; a merge or another
compaction of the same files makes one of the two try again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import SparkSession

from spark_jobs.maintenance.table_files import TIERS, Part, files_read
from spark_jobs.sinks.retry import retried

FILE_BYTES: Final = 32 << 20
"""What files are joined to, and what a clustered day is cut into: some 1.3 million readings."""
SETTLED_S: Final = 900.0
"""Files older than this are no longer touched by the merges of open intervals."""
_FEW: Final = 8
"""So many settled small files of an open day are worth joining."""
_MANY: Final = 50
"""More small files than this are joined however new they are."""
_QUIET_S: Final = 3600.0
"""A closed day is clustered when nothing came for so long: a backlog may still be draining into it."""

SERIES: Final[Mapping[str, tuple[str, ...]]] = {
    "readings": ("gateway", "channel"),
    "messages": ("gateway", "channel"),
    "statistics": ("gateway", "channel"),
    "mast": ("gateway",),
    "anomalies": ("gateway",),
}
"""The columns queries of these tables filter by. Not the time: Delta interleaves the bits of the columns'
ranks, and where gateways are few and times many the times alone decide (measured: not one file less is
read)."""


@dataclass(frozen=True)
class Compaction:
    """One OPTIMIZE to do: files of ``part`` below ``limit`` bytes joined, or all clustered (no limit)."""

    table: str
    part: Part
    limit: int | None

    @property
    def action(self) -> str:
        """Its name in reports."""
        return "cluster" if self.limit is None else "compact"


def joins(table: str, found: list[Part], today: str, *, urgent_only: bool = False) -> list[Compaction]:
    """The compactions that are due; with ``urgent_only`` those of too many files alone.

    Of a day that is over two small files are joined, of an open one and of a table without dates eight.
    """
    due = []
    for part in found:
        is_open = part.date is None or part.date >= today
        tiers = list(zip(TIERS, part.small, part.settled, strict=True))
        for limit, small, settled in tiers if is_open else tiers[-1:]:
            few = settled >= (_FEW if is_open else 2)
            # The next tier holds these files too; joining the smallest with their like is cheaper.
            if small > _MANY or (few and not urgent_only):
                due.append(Compaction(table, part, limit))
                break
    return due


def unclustered(
    spark: SparkSession, table: str, location: str, part: Part, today: str, now_ms: int
) -> float | None:
    """Files that are read for a single series of a closed, quiet day, where they are most of its files."""
    if table not in SERIES or part.date is None or part.date >= today or part.files < 4:
        return None
    if now_ms - part.newest_ms < _QUIET_S * 1000:
        return None
    read = files_read(spark, location, part.date, SERIES[table])
    return read if read > part.files / 2 else None


def compact(spark: SparkSession, location: str, due: Compaction) -> Any:
    """Does it, and gives Delta's metrics of it. Raises the last conflict of many with other commits."""
    part = due.part
    where = "" if part.date is None else f" where date = '{part.date}'"
    order = f" zorder by ({', '.join(SERIES[due.table])})" if due.limit is None else ""

    def optimize() -> Any:
        spark.conf.set("spark.databricks.delta.optimize.minFileSize", str(due.limit or FILE_BYTES))
        spark.conf.set("spark.databricks.delta.optimize.maxFileSize", str(FILE_BYTES))
        (row,) = spark.sql(f"optimize delta.`{location}`{where}{order}").collect()
        return row.metrics

    return retried(optimize, f"{due.action}-{due.table}")
