"""Rounds over the lake: whatever is due is done and reported, table by table."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import SparkSession

from spark_jobs.maintenance.backup import back_up
from spark_jobs.maintenance.compaction import SERIES, Compaction, compact, joins, unclustered
from spark_jobs.maintenance.retention import AGED_BY, delete_older, vacuum
from spark_jobs.maintenance.table_files import Part, files_read, parts, register, table_locations
from spark_jobs.settings import Settings
from spark_jobs.sinks.retry import CONFLICTS

log = logging.getLogger("fieldgate.jobs.maintain")


@dataclass(frozen=True)
class MaintenanceOptions:
    """Limits of a round. ``keep_days``: of AGED_BY those tables whose rows leave after so many.

    ``database``: where the tables are named in Spark's catalog.
    """

    dry_run: bool = False
    keep_days: Mapping[str, int] = field(default_factory=dict)
    vacuum_days: float = 7.0
    backup: str | None = None
    database: str | None = None


@dataclass
class Report:
    """The steps that were done, and the tables before and after."""

    dry_run: bool
    actions: list[dict[str, Any]] = field(default_factory=list)
    tables: list[dict[str, Any]] = field(default_factory=list)

    def did(self, action: str, table: str, **figures: Any) -> None:
        """Notes and logs one step."""
        self.actions.append({"action": action, "table": table, **figures})
        text = " ".join(f"{name}={value}" for name, value in figures.items() if value is not None)
        verb = "would" if self.dry_run else "done"
        log.info("event=maintain.%s action=%s table=%s %s", verb, action, table, text)

    def text(self) -> str:
        """A line a table."""
        lines = [f"{'table':<14}{'files':>8}{'after':>8}{'bytes':>16}{'after':>16}{'dates dropped':>15}"]
        lines += [
            f"{row['table']:<14}{row['files_before']:>8}{row['files_after']:>8}{row['bytes_before']:>16,}"
            f"{row['bytes_after']:>16,}{row['dates_dropped']:>15}"
            for row in self.tables
        ]
        return "\n".join(lines)


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
        locations = table_locations(self._spark, self._settings.lake)
        for table, location in locations.items():
            before = parts(self._spark, location)
            dropped = self._retain(report, table, location, before) if daily else 0
            for due in joins(table, parts(self._spark, location) if dropped else before, self._today()):
                self._compact(report, location, due)
            if daily:
                self._cluster(report, table, location)
            if daily and not self._options.dry_run:
                files, size = vacuum(self._spark, location, self._options.vacuum_days)
                if files:
                    report.did("vacuum", table, files=files, bytes=size)
            after = before if self._options.dry_run else parts(self._spark, location)
            report.tables.append(
                {
                    "table": table,
                    "files_before": sum(part.files for part in before),
                    "files_after": sum(part.files for part in after),
                    "bytes_before": sum(part.bytes for part in before),
                    "bytes_after": sum(part.bytes for part in after),
                    "dates_dropped": dropped,
                }
            )
        if self._options.dry_run:
            return report
        if self._options.database is not None:
            register(self._spark, self._options.database, locations)
        if self._options.backup is not None:
            for copy in back_up(self._spark, self._settings.checkpoints, self._options.backup, self._now()):
                report.did("backup", "", query=copy.query, batch=copy.batch, to=copy.uri)
        return report

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

    def _retain(self, report: Report, table: str, location: str, found: list[Part]) -> int:
        """Deletes what is too old; how many dates."""
        keep_days = self._options.keep_days.get(table)
        if keep_days is None:
            return 0
        since = self._now().astimezone(UTC) - timedelta(days=keep_days)
        by_date = AGED_BY[table] == "date"
        gone = [part for part in found if by_date and part.date and part.date < since.date().isoformat()]
        if by_date and not gone:
            return 0
        rows = delete_older(self._spark, table, location, since, dry_run=self._options.dry_run)
        if gone:
            dates = {"dates": len(gone), "first": gone[0].date, "last": gone[-1].date}
            figures = {"files": sum(part.files for part in gone), "bytes": sum(part.bytes for part in gone)}
            report.did("drop", table, **dates, **figures)
        elif rows:
            report.did("drop", table, rows=rows)
        return len(gone)
