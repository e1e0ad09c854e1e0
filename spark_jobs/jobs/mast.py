"""``mast``: statistics of a mast's channels, and their calibration records, to what they say together.

Changes of either say which intervals to compute again; these are computed whole, from the tables, once every
channel in them is closed. So neither late readings nor a record that comes after them leave anything behind,
and a batch that runs twice computes the same. An interval of which ``statistics`` took back all it had said
(no channel was configured then) has no row here either.
"""

from __future__ import annotations

import logging
import time
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own name for it
from pyspark.sql.streaming.query import StreamingQuery

from spark_jobs.schemas import CHANNELS, MAST, STATISTICS
from spark_jobs.session import small_batch_session
from spark_jobs.settings import Settings
from spark_jobs.sinks.delta import ensure_table
from spark_jobs.sinks.merge import delete_intervals, merge_changed
from spark_jobs.sources.changes import table_changes
from spark_jobs.sources.mast_intervals import MastInterval, intervals_within, statistics_in
from spark_jobs.sources.statistics import has_readings
from spark_jobs.sources.withdrawn import corrections
from spark_jobs.state.record_changes import BEFORE, RecordChange, touched_spans
from spark_jobs.streaming.batch_gate import Gate
from spark_jobs.streaming.query import start_query
from spark_jobs.transforms.mast import QUANTITIES, mounted_channels
from spark_jobs.transforms.mast_values import mast_rows

log = logging.getLogger("fieldgate.jobs.mast")

_TRIGGERS: Final = 5
"""Looks for changes once in so many triggers: a mast has one new interval in minutes, and each look costs."""
_PART: Final = 20_000
"""Intervals computed and merged at a time."""


class MastJob:
    """One run of the query; after a failure, make a new one."""

    def __init__(self, spark: SparkSession, settings: Settings, gate: Gate) -> None:
        self._gate = gate
        self.name = f"mast-{settings.interval_s}s"
        self._spark = spark = small_batch_session(spark)
        self._settings = settings
        for table in (STATISTICS, CHANNELS):
            ensure_table(spark, settings, table)
        self._location = ensure_table(spark, settings, MAST)

    def start(self) -> StreamingQuery:
        """Starts the query."""
        closed = (F.col("interval_s") == self._settings.interval_s) & (F.col("version") > 0)
        was = F.col("_change_type").isin(*BEFORE)
        # Rows of missing intervals are all that is ever taken back; the others leave with their day.
        taken_back = (F.col("_change_type") == "delete") & ~has_readings()
        intervals = (
            table_changes(self._spark, self._settings, STATISTICS, deletions=True)
            .where(closed & F.col("quantity").isin(*QUANTITIES) & (~was | taken_back))
            .select(
                "gateway",
                F.unix_micros("interval_start").alias("start_us"),
                F.when(was, F.col("_commit_version")).alias("gone"),
            )
        )
        period = F.transform(
            "periods",
            lambda each: F.array(F.unix_micros(each["begin"]), F.unix_micros(each["end"])),
        )
        records = table_changes(self._spark, self._settings, CHANNELS).select(
            *CHANNELS.key,
            period.alias("periods"),
            "height_m",
            "pair",
            F.col("_change_type").alias("kind"),
            F.col("_commit_version").alias("commit"),
        )
        stream = intervals.unionByName(records, allowMissingColumns=True)
        pace_s = _TRIGGERS * self._settings.trigger_s
        return start_query(
            self._settings,
            self.name,
            stream,
            self._batch,
            self._gate,
            trigger_s=pace_s,
            follows=(STATISTICS, CHANNELS),
        )

    def tick(self) -> None:
        """Nothing is due by the clock: an interval is closed by ``statistics``."""

    def finish(self) -> None:
        """Nothing is left to do after the last change."""

    def _batch(self, changes: DataFrame, batch: int) -> None:
        started = time.monotonic()
        # Twelve channels close one interval, and again with each correction.
        rows = changes.distinct().toArrow().to_pylist()
        told = [row for row in rows if row["channel"] is None]
        withdrawn = self._withdrawn(told)
        wanted = {(row["gateway"], row["start_us"]) for row in told if row["gone"] is None} | withdrawn
        spans = list(touched_spans(_record_change(row) for row in rows if row["channel"] is not None))
        wanted |= intervals_within(self._spark, self._settings, spans)
        # In the order of time, so that a part touches few dates; in parts, because results pass the driver.
        in_order = sorted(wanted, key=lambda interval: interval[1])
        for at in range(0, len(in_order), _PART):
            self._compute(in_order[at : at + _PART])
        if withdrawn:
            self._forget(withdrawn)
        if wanted:
            log.info(
                "event=mast.computed batch=%d intervals=%d records=%d seconds=%.2f",
                batch,
                len(wanted),
                len(spans),
                time.monotonic() - started,
            )

    def _withdrawn(self, told: list[dict[str, Any]]) -> set[MastInterval]:
        """The intervals of which rows were taken back, and didn't just leave with their day."""
        gone = {row["gone"] for row in told if row["gone"] is not None}
        meant = corrections(self._spark, self._settings.table(STATISTICS.name), gone) if gone else set()
        return {(row["gateway"], row["start_us"]) for row in told if row["gone"] in meant}

    def _forget(self, withdrawn: set[MastInterval]) -> None:
        """Takes away the rows of those of these intervals that no channel has a row of any more."""
        left = statistics_in(self._spark, self._settings, withdrawn).where(
            F.col("quantity").isin(*QUANTITIES)
        )
        starts = (
            left.select("gateway", F.unix_micros("interval_start").alias("start_us")).distinct().collect()
        )
        gone = withdrawn - {(row.gateway, row.start_us) for row in starts}
        delete_intervals(self._spark, self._location, self._settings.interval_s, gone)

    def _compute(self, wanted: list[MastInterval]) -> None:
        statistics = statistics_in(self._spark, self._settings, wanted)
        channels = self._spark.read.format("delta").load(self._settings.table(CHANNELS.name))
        channels = channels.where(F.col("gateway").isin(sorted({gateway for gateway, _ in wanted})))
        mounted = mounted_channels(statistics, channels, self._settings.interval_s).toArrow()
        merge_changed(self._spark, self._location, MAST, mast_rows(mounted, self._settings.interval_s))


def _record_change(row: dict[str, Any]) -> RecordChange:
    return RecordChange(
        key=tuple(row[name] for name in CHANNELS.key),
        version=row["commit"],
        kind=row["kind"],
        periods=tuple((begin, end) for begin, end in row["periods"] or ()),
        use=(row["height_m"], row["pair"]),
    )
