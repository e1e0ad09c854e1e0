"""``jobs maintain``: keeps the tables small and quick, once or in rounds, beside the jobs that write them.

Small files are joined and closed days clustered by OPTIMIZE, which changes no row and is no change to
readers. Where files of a partition get many between two rounds, Delta's own auto-compaction joins them in the
writer, and ``sinks.readings`` those of ``readings`` beside it. Appends go on meanwhile; a merge or another
compaction of the same files makes one of the two try again. Rows are dropped by whole days, by a time of
theirs, and files that no version needs are removed. Once a day the table ``trends`` gets what wears on every
mast, as ``cloud.trends`` has it.
"""

from __future__ import annotations

import argparse
import json
import logging
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import partial, reduce
from statistics import fmean
from types import FrameType
from typing import Any, Final

import pyarrow as pa
from delta.tables import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession, functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from cloud.trends import Daily, queries, reported, trends
from spark_jobs.platform.errors import SettingsError
from spark_jobs.platform.files import Files
from spark_jobs.platform.schemas import CHANNELS, HEALTH, SITES, STATISTICS, TRENDS
from spark_jobs.platform.session import running_session
from spark_jobs.platform.settings import Settings, duration_s
from spark_jobs.sinks.delta import CONFLICTS, ensure_table, retried, snapshot, write
from spark_jobs.streaming.query import Timer

DESCRIPTION: Final = "join small files, cluster closed days, drop what is too old"

log = logging.getLogger("fieldgate.jobs.maintain")

SMALL_BYTES: Final = 8 << 20
"""Files below this size are joined."""
FILE_BYTES: Final = 32 << 20
"""What files are joined to, and what a clustered day is cut into: some 1.3 million readings."""
_FEW: Final = 8
"""An open day's small files are worth joining if there are so many; two suffice once it is over."""
_QUIET_S: Final = 3600.0
"""A closed day is clustered when nothing came for so long: a backlog may still be draining into it."""

SERIES: Final[Mapping[str, tuple[str, ...]]] = {
    "readings": ("gateway", "channel"),
    "messages": ("gateway", "channel"),
    "statistics": ("gateway", "channel"),
    "mast": ("gateway",),
    "anomalies": ("gateway",),
    "events": ("gateway",),
    "health": ("gateway",),
    "trends": ("gateway",),
}
"""The columns queries of these tables filter by. Not the time: Delta interleaves the bits of the columns'
ranks, and where gateways are few and times many the times alone decide (measured: not one file less is
read)."""


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


AGED_BY: Final[Mapping[str, str]] = {
    **dict.fromkeys(SERIES, "date"),
    "quarantine": "ingested_at",
    "alerts": "cleared_at",
    # What a run announced as dropped counts as lost without its row.
    "runs": "if(size(dropped) > 0, null, ended)",
    "recalibrations": "done_at",
}
"""The tables that grow with time, and the SQL that makes a row old; where it is null the row stays.

The others have rows for each channel, calibration or run, however long they are written. Those of runs stay:
without them ``presence`` would take readings for lost that were stored (docs/decisions/pipeline.md).
"""


def delete_older(spark: SparkSession, table: str, location: str, since: datetime, *, dry_run: bool) -> int:
    """Deletes the rows from before this time; of a table with dates whole ones, and no file is opened.

    How many rows; 0 of a table with dates.
    """
    column = AGED_BY[table]
    if column == "date":
        rows, condition = 0, f"date < date'{since.date()}'"
    else:
        condition = f"{column} < timestamp'{since.isoformat()}'"
        rows = spark.read.format("delta").load(location).where(condition).count()
        dry_run |= not rows
    if not dry_run:
        delete = f"delete from delta.`{location}` where {condition}"  # noqa: S608 - our own names
        retried(lambda: spark.sql(delete), f"retention-{table}")
    return rows


def vacuum(spark: SparkSession, location: str, keep_days: float) -> tuple[int, int]:
    """Removes files that are in no version of the last ``keep_days``; how many, and their bytes."""
    # Else Delta refuses less than a week, which the operator may want.
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    # Writes to the table's history what was removed.
    spark.conf.set("spark.databricks.delta.vacuum.logging.enabled", "true")
    # It lists folders in so many tasks: 10,000 by default, which takes a minute for one folder.
    spark.conf.set("spark.sql.sources.parallelPartitionDiscovery.parallelism", "4")
    spark.sql(f"vacuum delta.`{location}` retain {keep_days * 24:g} hours")
    end, start = spark.sql(f"describe history delta.`{location}` limit 2").collect()
    files, size = (end.operationMetrics or {}), (start.operationMetrics or {})
    return int(files.get("numDeletedFiles", 0)), int(size.get("sizeOfDataToDelete", 0))


@dataclass(frozen=True)
class MaintenanceOptions:
    """Limits of a round. ``keep_days``: of AGED_BY those tables whose rows leave after so many."""

    dry_run: bool = False
    keep_days: Mapping[str, int] = field(default_factory=dict)
    vacuum_days: float = 7.0


@dataclass
class Report:
    """The steps of a round that were done, or would be."""

    dry_run: bool
    actions: list[dict[str, Any]] = field(default_factory=list)

    def did(self, action: str, table: str, **figures: Any) -> None:
        """Notes and logs one step."""
        self.actions.append({"action": action, "table": table, **figures})
        log.info("event=maintain.%s %s", "would" if self.dry_run else "done", self.text().splitlines()[-1])

    def text(self) -> str:
        """A line a step."""
        return "\n".join(
            " ".join(f"{name}={value}" for name, value in step.items() if value is not None)
            for step in self.actions
        )


class Maintenance:
    """Works on the tables of one lake. ``now`` is wall time; the session is one of its own."""

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        options: MaintenanceOptions,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        # Limits of file sizes are set on it, which are for no other job.
        self._spark = spark.newSession()
        self._settings = settings
        self._options = options
        self._now = now

    def round(self, *, daily: bool = True) -> Report:
        """Everything once; without ``daily`` retention, clustering and vacuum are left out."""
        report = Report(self._options.dry_run)
        for table, location in table_locations(self._spark, self._settings.lake).items():
            if daily:
                self._retain(report, table, location)
            for due in joins(table, parts(self._spark, location), self._today()):
                self._compact(report, location, due)
            if daily:
                self._cluster(report, table, location)
            if daily and not self._options.dry_run:
                files, size = vacuum(self._spark, location, self._options.vacuum_days)
                if files:
                    report.did("vacuum", table, files=files, bytes=size)
        if daily and not self._options.dry_run:
            self._write_trends(report)
        return report

    def _write_trends(self, report: Report) -> None:
        try:
            rows = write_trends(self._spark, self._settings, self._now())
        except Exception:
            # Upkeep of the tables goes on without.
            log.exception("event=maintain.trends_failed")
            return
        if rows:
            report.did("trends", "trends", rows=rows)

    def _today(self) -> str:
        return self._now().astimezone(UTC).date().isoformat()

    def _cluster(self, report: Report, table: str, location: str) -> None:
        now_ms = int(self._now().timestamp() * 1000)
        for part in parts(self._spark, location):
            read = unclustered(self._spark, table, location, part, self._today(), now_ms)
            if read is not None:
                due = Compaction(table, part, cluster=True)
                self._compact(report, location, due, files_read_before=round(read, 1))

    def _compact(self, report: Report, location: str, due: Compaction, **figures: Any) -> None:
        part = due.part
        if self._options.dry_run:
            report.did(due.action, due.table, date=part.date, files=part.files, bytes=part.bytes, **figures)
            return
        started_s = time.monotonic()
        try:
            done = compact(self._spark, location, due)
        except CONFLICTS:
            # Its writer is faster; nothing is lost, the next round tries again.
            report.did("busy", due.table, date=part.date)
            return
        if not done.numFilesRemoved:
            return
        seconds = round(time.monotonic() - started_s, 2)
        if due.cluster and part.date is not None:
            read = files_read(self._spark, location, part.date, SERIES[due.table])
            figures = {**figures, "files_read_after": round(read, 1)}
        report.did(
            due.action,
            due.table,
            date=part.date,
            files_before=part.files,
            files_after=part.files - done.numFilesRemoved + done.numFilesAdded,
            bytes=done.filesRemoved.totalSize or 0,
            seconds=seconds,
            **figures,
        )

    def _retain(self, report: Report, table: str, location: str) -> None:
        """Deletes what is too old."""
        keep_days = self._options.keep_days.get(table)
        if keep_days is None:
            return
        since = self._now().astimezone(UTC) - timedelta(days=keep_days)
        by_date, first = AGED_BY[table] == "date", since.date().isoformat()
        found = parts(self._spark, location) if by_date else []
        gone = [part for part in found if part.date and part.date < first]
        if by_date and not gone:
            return
        rows = delete_older(self._spark, table, location, since, dry_run=self._options.dry_run)
        if gone:
            dates = {"dates": len(gone), "first": gone[0].date, "last": gone[-1].date}
            figures = {"files": sum(part.files for part in gone), "bytes": sum(part.bytes for part in gone)}
            report.did("drop", table, **dates, **figures)
        elif rows:
            report.did("drop", table, rows=rows)


_READ: Final = (STATISTICS, CHANNELS, SITES, HEALTH)
_ABSENT: Final = "TABLE_OR_VIEW_NOT_FOUND"


def write_trends(spark: SparkSession, settings: Settings, now: datetime) -> int:
    """Writes the day's trends in place of those it has; how many. ``spark`` is a session of its own."""
    for table in _READ:
        location = settings.table(table.name)
        if DeltaTable.isDeltaTable(spark, location):
            spark.read.format("delta").load(location).createOrReplaceTempView(table.name)
    today, found = now.astimezone(UTC).date(), list[DataFrame]()
    for name, sql in queries(today).items():
        try:
            daily = spark.sql(sql)
        except AnalysisException as error:
            if error.getCondition() != _ABSENT:
                raise
            continue
        made = partial(_of_mast, name=name, today=today, now=now)
        found.append(daily.groupBy("gateway").applyInArrow(made, TRENDS.schema))
    if not found:
        return 0
    location = ensure_table(spark, settings, TRENDS)
    of_today = f"date = '{today}'"
    write(reduce(DataFrame.union, found), location, mode="overwrite", replaceWhere=of_today)
    return spark.read.format("delta").load(location).where(of_today).count()


def _of_mast(daily: pa.Table, name: str, today: date, now: datetime) -> pa.Table:
    rows: list[Any] = [tuple(row.values()) for row in daily.to_pylist()]
    found = trends(reported(rows) if name == "reports" else (Daily(*row) for row in rows), today)
    made = [asdict(each) | {"date": each.day, "updated_at": now} for each in found]
    return pa.Table.from_pylist(made, to_arrow_schema(TRENDS.schema))


_DAY_S: Final = 86_400.0
_KEPT_DAYS: Final = {"quarantine": 30}
_LEAST_VACUUM_S: Final = 3600.0
"""Files of a write under way are in no version yet, and a reader may be at those of the version before."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``jobs maintain``."""
    add = parser.add_argument
    every = "go on for ever, all of it every so often, e.g. 15m"
    unused = "how long files stay that are in no version any more: longer than any job is down (default 7d)"
    add("--every", type=duration_s, metavar="TIME", help=every)
    add("--dry-run", action="store_true", help="report what would be done")
    add("--json", action="store_true", help="one JSON object a round")
    for table in AGED_BY:
        default = _KEPT_DAYS.get(table)
        help = f"rows of {table}; default: {default or 'for ever'}"
        add(f"--keep-{table}", type=int, default=default, metavar="DAYS", help=help)
    add("--vacuum-after", type=duration_s, default="7d", metavar="TIME", help=unused)


def options_of(options: argparse.Namespace, settings: Settings) -> MaintenanceOptions:
    """The options of the rounds. Raises SettingsError."""
    keep_days = {table: getattr(options, f"keep_{table}") for table in AGED_BY}
    for table, days in keep_days.items():
        if days is not None and days < 1:
            raise SettingsError(f"--keep-{table} must be at least 1 day")
    if options.vacuum_after < _LEAST_VACUUM_S:
        raise SettingsError(
            "--vacuum-after must be at least 1h: vacuum would remove files of writes and queries under way"
        )
    return MaintenanceOptions(
        dry_run=options.dry_run,
        keep_days={table: days for table, days in keep_days.items() if days is not None},
        vacuum_days=options.vacuum_after / _DAY_S,
    )


def _print(report: Report, *, as_json: bool) -> None:
    print(json.dumps(asdict(report)) if as_json else report.text() or "nothing to do")


def main(options: argparse.Namespace, settings: Settings) -> None:
    """Does a round; with ``--every`` rounds until SIGTERM or SIGINT."""
    rounds = options_of(options, settings)
    stopping = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        stopping.set()

    signal.signal(signal.SIGTERM, stop)
    with running_session(settings, "fieldgate-maintain") as spark:
        signal.signal(signal.SIGINT, stop)
        maintenance = Maintenance(spark, settings, rounds)
        _print(maintenance.round(), as_json=options.json)
        daily = Timer(_DAY_S, at_once=False)
        while options.every is not None and not stopping.wait(options.every):
            try:
                _print(maintenance.round(daily=daily.due()), as_json=options.json)
            except (PySparkException, Py4JJavaError) as error:
                # A store that is away for a while: the next round may find it again.
                log.error("event=maintain.failed %s", str(error).strip().partition("\n")[0][:500])
