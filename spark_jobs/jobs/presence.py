"""``presence``: which channels send, which gateways are offline, and which of their readings are missing.

Made once a minute of the tables: arrivals of readings (their change feed), the seqs that are stored
(``_seen``, and of what came since ``readings``), run records (``runs``), statuses (``_status``), and the seqs
that rejects claim (``quarantine``). Nothing is kept from one minute to the next but versions of tables.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from pyspark.sql import DataFrame, SparkSession, functions as F

from cloud.wire.reading_records import IMPORT_RUN
from spark_jobs.platform import metrics
from spark_jobs.platform.files import Files
from spark_jobs.platform.frames import kept
from spark_jobs.platform.intervals import moment_of, now_us
from spark_jobs.platform.schemas import PRESENCE, QUARANTINE, READINGS, RUNS, SEEN, SET_ASIDE, STATUS, Table
from spark_jobs.platform.session import plan_for, small_batch_session
from spark_jobs.platform.settings import Settings
from spark_jobs.sinks.delta import ensure_table, latest_version, table_changes, table_version, write
from spark_jobs.sinks.merge import differs, merge_rows
from spark_jobs.sinks.reading_schemas import ReadingSchemas
from spark_jobs.streaming.query import Job, Source
from spark_jobs.transforms.dedupe import joined_ranges
from spark_jobs.transforms.presence import (
    accountable,
    arrivals,
    claimed,
    dropped,
    judged,
    presence_rows,
    with_arrivals,
)
from spark_jobs.transforms.seen import IDENTITY, identity_ranges

log = logging.getLogger("fieldgate.jobs.presence")

_EVERY_S: Final = 60.0
_CLAIM: Final = (*IDENTITY, "reporter")
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
        for table in (READINGS, QUARANTINE, RUNS, STATUS, SEEN, PRESENCE, SET_ASIDE):
            ensure_table(spark, settings, table)
        # The query's thread takes up new readings, the supervisor's what changes without any.
        self._lock = threading.Lock()
        self._next_s = time.monotonic() + _EVERY_S
        self._runs_version: int | None = None
        self._rejects_version = -1
        # Why a gateway can't be judged, by its name.
        self._faults: dict[str, str] = {}
        self._rejects_until_us = _newest_us(self._read(SET_ASIDE))

    def source(self) -> Source:
        """New readings, without those of loggers' files: a channel of a file is not expected to send."""
        changes = table_changes(self._spark, self._settings, READINGS)
        changes = changes.where(~F.startswith(F.col("run"), F.lit(IMPORT_RUN)))
        return Source(changes, max(_EVERY_S, self._settings.trigger_s), follows=(READINGS,))

    def tick(self) -> None:
        """Writes what has changed without a reading: silence, last wills, run records."""
        if time.monotonic() >= self._next_s:
            self._update(self._spark.createDataFrame([], READINGS.schema))

    def finish(self) -> None:
        """All that was sent before the run records is in the tables now."""
        self._update(self._spark.createDataFrame([], READINGS.schema), all_settled=True)

    def batch(self, rows: DataFrame, number: int) -> None:
        """Takes up new readings."""
        self._update(rows.where(F.col("_change_type").isin("insert", "update_postimage")))

    def _read(self, table: Table) -> DataFrame:
        return self._spark.read.format("delta").load(self._settings.table(table.name))

    def _ranges(self, table: Table) -> DataFrame:
        return self._read(table).select(*IDENTITY, "first_seq", "last_seq").toDF(*IDENTITY, "first", "last")

    def _claims(self) -> DataFrame:
        """The ranges that rejects claim, with their ``reporter``."""
        claims = self._read(SET_ASIDE).withColumnsRenamed({"first_seq": "first", "last_seq": "last"})
        return claims.select(*_CLAIM, "first", "last")

    def _update(self, readings: DataFrame, *, all_settled: bool = False) -> None:
        """Counts everything again, and writes the rows that come out differently."""
        with self._lock:
            self._next_s = time.monotonic() + _EVERY_S
            self._set_rejects_aside()
            runs, settled = self._records(all_settled=all_settled)
            unseen = identity_ranges(self._unseen())
            found = {
                "stored": self._ranges(SEEN).union(unseen),
                "dead_letters": accountable(self._claims(), runs),
                "announced": accountable(dropped(runs), runs),
            }
            old, at_us = self._read(PRESENCE), self._now_us()
            plan_for(self._spark, 10 * old.count())
            channels = kept(with_arrivals(old, arrivals(readings)))
            arrived = channels.groupBy("gateway").agg(F.max("last_seen_us").alias("arrived_us"))
            gateways = kept(
                judged(found, runs, settled, self._read(STATUS), arrived, at_us, all_settled=all_settled)
            )
            self._note_faults(gateways)
            silent_us = int(self._settings.silent_after_s * 1e6)
            rows = presence_rows(channels, gateways, silent_us, at_us)
            changed = kept(rows.subtract(old.select(*rows.columns)))
            if not changed.isEmpty():
                self._merge(changed)

    def _note_faults(self, gateways: DataFrame) -> None:
        faults = dict(map(tuple, gateways.where("fault is not null").select("gateway", "fault").collect()))
        for gateway, fault in faults.items():
            if gateway not in self._faults:
                log.error("event=presence.not_judged gateway=%s %s", gateway, fault)
                metrics.SET_ASIDE.labels(self.name).inc()
        self._faults = faults

    def _merge(self, rows: DataFrame) -> None:
        values = {name: f"s.{name}" for name in PRESENCE.values}
        merge_rows(
            self._spark, self._settings.table(PRESENCE.name), PRESENCE, rows,
            condition=differs(PRESENCE, PRESENCE.values), changed=values, added=values,
        )  # fmt: skip

    def _records(self, *, all_settled: bool) -> tuple[DataFrame, DataFrame]:
        """The run records as they are, and those to count by: of a minute ago, whose readings have come."""
        runs = self._read(RUNS)
        before, self._runs_version = (
            self._runs_version,
            table_version(self._spark, self._settings.table(RUNS.name)),
        )
        if all_settled or before is None:
            return runs, runs
        older = self._spark.read.format("delta").option("versionAsOf", before)
        return runs, older.load(self._settings.table(RUNS.name))

    def _unseen(self) -> DataFrame:
        """Readings that came after those in ``_seen``."""
        location = self._settings.table(READINGS.name)
        covered: int | None = self._read(SEEN).agg(F.max("readings_version")).collect()[0][0]
        if covered is None:
            return self._read(READINGS)
        if latest_version(self._spark, location) <= covered:
            return self._spark.createDataFrame([], READINGS.schema)
        if not Files(self._spark).exists(f"{location}/_delta_log/{covered + 1:020d}.json"):
            # The log of what came since is cleaned: ingest has stored nothing for a week.
            return self._read(READINGS)
        feed = self._spark.read.format("delta").option("readChangeFeed", "true")
        changes = feed.option("startingVersion", covered + 1).load(location)
        return changes.where("_change_type in ('insert', 'update_postimage')")

    def _set_rejects_aside(self) -> None:
        """Stores the ranges that new rejects claim: they stay for longer than the rejects."""
        rejects = self._read(QUARANTINE)
        version = table_version(self._spark, self._settings.table(QUARANTINE.name))
        if version == self._rejects_version:
            return
        if self._rejects_until_us is not None:
            before = F.lit(moment_of(self._rejects_until_us)) - F.expr(_MARGIN)
            rejects = rejects.where(F.col("ingested_at") > before)
        newest_us = _newest_us(rejects)
        if newest_us is not None:
            schemas = ReadingSchemas(self._spark, self._settings, keep=False).known
            known = self._claims().toDF("g", "c", "r", "by", "first", "last")
            same = "gateway = g and channel = c and run = r and reporter <=> by"
            there = F.expr(f"{same} and seq between first and last")
            claims = claimed(rejects, schemas).join(known, there, "left_anti")
            numbers = claims.select(*_CLAIM, F.col("seq").alias("first"), F.col("seq").alias("last"))
            new = joined_ranges(numbers, _CLAIM).persist()
            if not new.isEmpty():
                found = new.withColumnsRenamed({"first": "first_seq", "last": "last_seq"})
                dated = found.withColumn("ingested_at", F.lit(moment_of(newest_us)))
                write(dated.coalesce(1), self._settings.table(SET_ASIDE.name))
            new.unpersist()
            self._rejects_until_us = newest_us
        self._rejects_version = version


def _newest_us(rows: DataFrame) -> int | None:
    """Returns when the last of them came in, as a number: Python's local times have an hour twice a year."""
    newest: int | None = rows.agg(F.unix_micros(F.max("ingested_at"))).collect()[0][0]
    return newest
