"""``presence``: which channels send, which gateways are offline, and which of their readings are missing.

Made of the tables: arrival and seqs of readings (their change feed), run records (``runs``), statuses
(``_status``), and the seqs that rejects claim (``quarantine``). At a start the seqs come from ``_seen``, so
``readings`` itself is not read again, however long it is.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import astuple
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own name for it

from cloud.wire.run_records import DroppedRange, RunRecord, Unfinished
from spark_jobs.frames import arrow_rows, dicts_of, rows_frame
from spark_jobs.intervals import moment_of, now_us
from spark_jobs.schemas import PRESENCE, QUARANTINE, READINGS, RUNS, SEEN, SET_ASIDE, STATUS, Table
from spark_jobs.session import small_batch_session
from spark_jobs.settings import Settings
from spark_jobs.sinks.delta import ensure_table, rows_after, table_changes, table_version, write
from spark_jobs.sinks.merge import merge_changed
from spark_jobs.state.presence import Arrival, Channel, Losses, Presence, Presences, Status
from spark_jobs.streaming.query import Job, Source
from spark_jobs.streaming.timer import Timer
from spark_jobs.transforms.packing import identity_ranges
from spark_jobs.transforms.presence import arrivals, claimed

log = logging.getLogger("fieldgate.jobs.presence")

_TRIGGER_S: Final = 5.0
"""Every reading changes its channel's row, so each batch is a commit: no more often than people need."""
_TICK_S: Final = 5.0
_MARGIN: Final = "interval 5 minutes"
"""Rejects are read again from so long before the last ones: clocks of several writers differ."""


class PresenceJob(Job):
    """One run of the query; after a failure, make a new one."""

    name = "presence"

    def __init__(
        self, spark: SparkSession, settings: Settings, *, now_us: Callable[[], int] = now_us
    ) -> None:
        self._now_us = now_us
        self._spark = spark = small_batch_session(spark)
        self._settings = settings
        for table in (READINGS, QUARANTINE, RUNS, STATUS, SEEN):
            ensure_table(spark, settings, table)
        self._location = ensure_table(spark, settings, PRESENCE)
        self._set_aside = ensure_table(spark, settings, SET_ASIDE)
        # The query's thread takes up new readings, the supervisor's what changes without any.
        self._lock = threading.Lock()
        self._presences = Presences(settings.silent_after_s)
        self._versions = {table.name: -1 for table in (RUNS, STATUS, QUARANTINE)}
        self._set_aside_until_us: int | None = None
        self._restore()
        self._timer = Timer(_TICK_S, at_once=False)

    def source(self) -> Source:
        """New readings."""
        changes = table_changes(self._spark, self._settings, READINGS)
        return Source(changes, max(_TRIGGER_S, self._settings.trigger_s), follows=(READINGS,))

    def tick(self) -> None:
        """Writes what has changed without a reading: silence, last wills, run records."""
        if self._timer.due():
            with self._lock:
                self._update("tick")

    def finish(self) -> None:
        """All that was sent before the run records is in the tables now."""
        with self._lock:
            self._update("end", all_settled=True)

    def batch(self, rows: DataFrame, number: int) -> None:
        """Notes new readings, and writes the rows they change."""
        changes = rows.where(F.col("_change_type").isin("insert", "update_postimage")).persist()
        try:
            found, ranges = arrivals(changes).collect(), identity_ranges(changes).toArrow()
        finally:
            changes.unpersist()
        with self._lock:
            self._take_ranges(ranges.to_pylist())
            for row in found:
                arrival = Arrival(row.last_seen_us, row.time_us, row.value, row.period_ms)
                self._presences.arrived((row.gateway, row.channel), arrival)
            self._update(f"batch={number}")

    def _update(self, cause: str, *, all_settled: bool = False) -> None:
        self._take_records()
        self._take_rejects()
        rows = self._presences.changed(self._now_us(), all_settled=all_settled)
        if rows:
            table = arrow_rows(PRESENCE.without("updated_at"), (_row(*each) for each in rows.items()))
            merge_changed(self._spark, self._location, PRESENCE, table)
            log.debug("event=presence.updated cause=%s rows=%d", cause, len(rows))

    def _take_ranges(self, ranges: Iterable[Mapping[str, Any]]) -> None:
        for each in ranges:
            self._presences.stored(*each.values())

    def _take_records(self) -> None:
        for row in self._changed(RUNS):
            self._presences.reported(_run_record(row), row["told_at"])
        for row in self._changed(STATUS):
            status = Status(row["state"], row["uplink"], row["told_at"])
            self._presences.status(row["gateway"], row["run"], status)

    def _changed(self, table: Table) -> list[dict[str, Any]]:
        location = self._settings.table(table.name)
        rows, self._versions[table.name] = rows_after(self._spark, location, self._versions[table.name])
        # Of a row that changed twice the later one comes later in time.
        return sorted(rows, key=lambda row: int(row["told_at"]))

    def _take_rejects(self) -> None:
        """The ranges that new rejects claim; the feed is not needed, for rejects are never changed."""
        location = self._settings.table(QUARANTINE.name)
        rejects = self._spark.read.format("delta").load(location)
        version = table_version(self._spark, location)
        if version == self._versions[QUARANTINE.name]:
            return
        self._versions[QUARANTINE.name] = version
        if self._set_aside_until_us is not None:
            before = F.lit(moment_of(self._set_aside_until_us)) - F.expr(_MARGIN)
            rejects = rejects.where(F.col("ingested_at") > before)
        newest_us = _newest_us(rejects)
        if newest_us is None:
            return
        ranges = [tuple(row.values()) for row in identity_ranges(claimed(rejects)).toArrow().to_pylist()]
        found = [each for each in ranges if self._presences.set_aside(*each)]
        if found:
            frame = rows_frame(self._spark, SET_ASIDE.without("ingested_at"), found)
            dated = frame.withColumn("ingested_at", F.lit(moment_of(newest_us)))
            write(dated.coalesce(1), self._set_aside)
        self._set_aside_until_us = newest_us

    def _restore(self) -> None:
        """The state by the tables, the run records before the readings they account for."""
        self._take_records()
        read = self._spark.read.format("delta")
        for there in dicts_of(read.load(self._location).toArrow()):
            self._presences.restore((there["gateway"], there["channel"]), _presence(there))
        aside = read.load(self._set_aside)
        for row in aside.toLocalIterator():
            self._presences.set_aside(row.gateway, row.channel, row.run, row.first_seq, row.last_seq)
        self._set_aside_until_us = _newest_us(aside)
        covered = -1
        for row in read.load(self._settings.table(SEEN.name)).toLocalIterator():
            self._presences.stored(row.gateway, row.channel, row.run, row.first_seq, row.last_seq)
            covered = max(covered, row.readings_version)
        location = self._settings.table(READINGS.name)
        self._take_ranges(rows_after(self._spark, location, covered, identity_ranges)[0])


def _newest_us(rows: DataFrame) -> int | None:
    """When the last of them came in. As a number: Python's local times have an hour twice a year."""
    newest: int | None = rows.agg(F.unix_micros(F.max("ingested_at"))).collect()[0][0]
    return newest


def _run_record(row: Mapping[str, Any]) -> RunRecord:
    """A row of ``runs`` as the record it was made of, as far as the accounts need it."""
    return RunRecord(
        gateway=row["gateway"],
        run=row["run"],
        state=row["state"],
        last_seq=dict(row["last_seq"]),
        in_flight=row["in_flight"],
        outbox_records=row["outbox_records"],
        previous_run=row["previous_run"],
        dropped=tuple(DroppedRange(**drop) for drop in row["dropped"]),
        unfinished=tuple(Unfinished(**each) for each in row["unfinished"]),
    )


def _row(channel: Channel, presence: Presence) -> tuple[Any, ...]:
    """A row of the table, without its ``updated_at``."""
    seen, losses = presence.arrival, astuple(presence.losses)
    return (*channel, seen.last_seen_us, seen.time_us, seen.value, presence.state, *losses, seen.period_ms)


def _presence(row: Mapping[str, Any]) -> Presence:
    return Presence(
        Arrival(row["last_seen"], row["last_time"], row["last_value"], row["period_ms"]),
        row["state"],
        Losses(row["pending"] or 0, row["lost"] or 0, row["announced"] or 0),
    )
