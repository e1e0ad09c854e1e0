"""``presence``: which channels send, which gateways are offline, and which of their readings are missing.

Made of the tables: when readings arrived and which numbers (their change feed), run records (``runs``),
statuses (``_status``), and what rejects claim to be (``quarantine``). At a start the numbers come from
``_seen``, so ``readings`` itself is not read again, however long it is.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own name for it
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from cloud.wire.run_records import DroppedRange, RunRecord, Unfinished
from spark_jobs.schemas import PRESENCE, QUARANTINE, READINGS, RUNS, SEEN, SET_ASIDE, STATUS
from spark_jobs.session import small_batch_session
from spark_jobs.settings import Settings
from spark_jobs.sinks.delta import ensure_table, table_version, write
from spark_jobs.sinks.merge import merge_changed
from spark_jobs.sources.changes import new_rows, table_changes
from spark_jobs.state.presence import Arrival, Channel, Losses, Presence, Presences, Status
from spark_jobs.streaming.query import Job, Source
from spark_jobs.streaming.timer import Timer
from spark_jobs.transforms.presence import arrivals, claimed, seq_ranges

log = logging.getLogger("fieldgate.jobs.presence")

_TRIGGER_S: Final = 5.0
"""Every reading changes its channel's row, so each batch is a commit: no more often than people read it."""
_TICK_S: Final = 5.0
_MARGIN: Final = "interval 5 minutes"
"""Rejects are looked for from so long before the last ones: clocks of several writers differ."""

_ROW: Final = to_arrow_schema(StructType([field for field in PRESENCE.schema if field.name != "updated_at"]))


_SET_ASIDE: Final = to_arrow_schema(
    StructType([field for field in SET_ASIDE.schema if field.name != "ingested_at"])
)


def _wall_us() -> int:
    return time.time_ns() // 1000


class PresenceJob(Job):
    """One run of the query; after a failure, make a new one."""

    name = "presence"

    def __init__(
        self, spark: SparkSession, settings: Settings, *, now_us: Callable[[], int] = _wall_us
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
        self._set_aside_until: datetime | None = None
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
            found, ranges = arrivals(changes).collect(), seq_ranges(changes).toArrow()
        finally:
            changes.unpersist()
        with self._lock:
            self._take_ranges(ranges)
            for row in found:
                arrival = Arrival(row.last_seen_us, row.time_us, row.value, row.period_ms)
                self._presences.arrived((row.gateway, row.channel), arrival)
            self._update(f"batch={number}")

    def _update(self, cause: str, *, all_settled: bool = False) -> None:
        self._take_records()
        self._take_rejects()
        rows = self._presences.changed(self._now_us(), all_settled=all_settled)
        if rows:
            merge_changed(self._spark, self._location, PRESENCE, _table(rows))
            log.debug("event=presence.updated cause=%s rows=%d", cause, len(rows))

    def _take_ranges(self, ranges: Any) -> None:
        for each in ranges.to_pylist():
            self._presences.stored(*each.values())

    def _take_records(self) -> None:
        for row in self._news(RUNS):
            self._presences.reported(_run_record(row), _us(row["told_at"]))
        for row in self._news(STATUS):
            status = Status(row["state"], row["uplink"], _us(row["told_at"]))
            self._presences.status(row["gateway"], row["run"], status)

    def _news(self, table: Any) -> list[dict[str, Any]]:
        found, self._versions[table.name] = new_rows(
            self._spark, self._settings, table, self._versions[table.name]
        )
        rows: list[dict[str, Any]] = [] if found is None else found.to_pylist()
        # Of a row that changed twice the later one comes later in time.
        return sorted(rows, key=lambda row: _us(row["told_at"]))

    def _take_rejects(self) -> None:
        """What new rejects claim to be; the feed is not needed, for rejects are never changed."""
        location = self._settings.table(QUARANTINE.name)
        rejects = self._spark.read.format("delta").load(location)
        version = table_version(self._spark, location)
        if version == self._versions[QUARANTINE.name]:
            return
        self._versions[QUARANTINE.name] = version
        if self._set_aside_until is not None:
            rejects = rejects.where(F.col("ingested_at") > F.lit(self._set_aside_until) - F.expr(_MARGIN))
        newest = rejects.agg(F.max("ingested_at")).collect()[0][0]
        if newest is None:
            return
        ranges = [tuple(row.values()) for row in seq_ranges(claimed(rejects)).toArrow().to_pylist()]
        found = [each for each in ranges if self._presences.set_aside(*each)]
        if found:
            rows = [dict(zip(_SET_ASIDE.names, each, strict=True)) for each in found]
            frame = self._spark.createDataFrame(pa.Table.from_pylist(rows, schema=_SET_ASIDE))
            write(frame.withColumn("ingested_at", F.lit(newest)).coalesce(1), self._set_aside)
        self._set_aside_until = newest

    def _restore(self) -> None:
        """What the tables say already, the run records before the readings they tell of."""
        self._take_records()
        read = self._spark.read.format("delta")
        for row in read.load(self._location).toArrow().to_pylist():
            self._presences.restore((row["gateway"], row["channel"]), _presence(row))
        aside = read.load(self._set_aside)
        for row in aside.toLocalIterator():
            self._presences.set_aside(row.gateway, row.channel, row.run, row.first_seq, row.last_seq)
        self._set_aside_until = aside.agg(F.max("ingested_at")).collect()[0][0]
        covered = -1
        for row in read.load(self._settings.table(SEEN.name)).toLocalIterator():
            self._presences.stored(row.gateway, row.channel, row.run, row.first_seq, row.last_seq)
            covered = max(covered, row.readings_version)
        missing, _ = new_rows(self._spark, self._settings, READINGS, covered, seq_ranges)
        if missing is not None:
            self._take_ranges(missing)


def _us(moment: datetime) -> int:
    """Microseconds since the epoch, exactly."""
    return int(moment.replace(microsecond=0).timestamp()) * 1_000_000 + moment.microsecond


def _moment(micros: int | None) -> datetime | None:
    if micros is None:
        return None
    return datetime.fromtimestamp(micros // 1_000_000, UTC).replace(microsecond=micros % 1_000_000)


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


def _presence(row: Mapping[str, Any]) -> Presence:
    seen, at = row["last_seen"], row["last_time"]
    return Presence(
        Arrival(
            None if seen is None else _us(seen),
            None if at is None else _us(at),
            row["last_value"],
            row["period_ms"],
        ),
        row["state"],
        Losses(row["pending"] or 0, row["lost"] or 0, row["announced"] or 0),
    )


def _table(rows: Mapping[Channel, Presence]) -> Any:
    return pa.Table.from_pylist(
        [
            {
                "gateway": gateway,
                "channel": channel,
                "last_seen": _moment(row.arrival.last_seen_us),
                "last_time": _moment(row.arrival.time_us),
                "last_value": row.arrival.value,
                "state": row.state,
                "pending": row.losses.pending,
                "lost": row.losses.lost,
                "announced": row.losses.announced,
                "period_ms": row.arrival.period_ms,
            }
            for (gateway, channel), row in rows.items()
        ],
        schema=_ROW,
    )
