"""Small files joined, closed days clustered: by OPTIMIZE, which changes no row and is no change to readers.

Where files of a partition get many between two rounds, Delta's own auto-compaction joins them in the writer.
Appends go on beside it; a merge or another compaction of the same files makes one of the two try again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import SparkSession

from spark_jobs.maintenance.table_files import SMALL_BYTES, Part, files_read
from spark_jobs.sinks.retry import retried

FILE_BYTES: Final = 32 << 20
"""What files are joined to, and what a clustered day is cut into: some 1.3 million readings."""
_FEW: Final = 8
"""So many small files of an open day are worth joining; of one that is over two."""
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
    """One OPTIMIZE to do: the small files of ``part`` joined, or all its files put in order."""

    table: str
    part: Part
    cluster: bool = False

    @property
    def action(self) -> str:
        """Its name in reports."""
        return "cluster" if self.cluster else "compact"


def joins(table: str, found: list[Part], today: str) -> list[Compaction]:
    """The compactions that are due; a table without dates is like an open day."""
    return [
        Compaction(table, part)
        for part in found
        if part.small >= (2 if part.date is not None and part.date < today else _FEW)
    ]


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
    where = "" if due.part.date is None else f" where date = '{due.part.date}'"
    order = f" zorder by ({', '.join(SERIES[due.table])})" if due.cluster else ""

    def optimize() -> Any:
        spark.conf.set("spark.databricks.delta.optimize.minFileSize", str(SMALL_BYTES))
        spark.conf.set("spark.databricks.delta.optimize.maxFileSize", str(FILE_BYTES))
        (row,) = spark.sql(f"optimize delta.`{location}`{where}{order}").collect()
        return row.metrics

    return retried(optimize, f"{due.action}-{due.table}")
