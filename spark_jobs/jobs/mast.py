"""``mast``: statistics of a mast's channels, with their calibration records, to values of the whole mast.

The intervals that a change of either touches are computed again, whole, from the tables, once every channel
in them is closed. So late readings and late records correct them, and a batch that runs twice computes the
same. Rows of missing intervals change no value, so an interval without any reading has no row.
"""

from __future__ import annotations

import logging
import time
from typing import Final

from pyspark.sql import DataFrame, SparkSession, functions as F

from spark_jobs.platform.frames import few_of, kept
from spark_jobs.platform.intervals import changed_spans, periods_as_spans
from spark_jobs.platform.schemas import CHANNELS, MAST, STATISTICS
from spark_jobs.platform.session import plan_for, small_batch_session
from spark_jobs.platform.settings import Settings
from spark_jobs.sinks.delta import ensure_table, table_changes
from spark_jobs.sinks.merge import merge_changed
from spark_jobs.sinks.statistics import intervals_within, other_intervals, statistics_in
from spark_jobs.streaming.query import Job, Source
from spark_jobs.transforms.mast_values import QUANTITIES, mast_rows, mounted_channels, tilt
from spark_jobs.transforms.statistics import has_readings

log = logging.getLogger("fieldgate.jobs.mast")

_TRIGGERS: Final = 5
"""Polls for changes once in so many triggers: a mast has one new interval in minutes, and each poll costs."""
_USED: Final = ("height_m", "pair", "tilt_deg")
"""What is made of a calibration record: where another one holds, or these are others, values change."""


class MastJob(Job):
    """One run of the query; after a failure, make a new one."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self.name = f"mast-{settings.interval_s}s"
        self._spark = spark = small_batch_session(spark)
        self._settings = settings
        for table in (STATISTICS, CHANNELS):
            ensure_table(spark, settings, table)
        self._location = ensure_table(spark, settings, MAST)

    def source(self) -> Source:
        """Closed intervals of ``statistics`` and records of ``channels`` that changed."""
        closed = (F.col("interval_s") == self._settings.interval_s) & (F.col("version") > 0)
        is_before = F.col("_change_type") == "update_preimage"
        intervals = (
            table_changes(self._spark, self._settings, STATISTICS)
            .where(closed & F.col("quantity").isin(*QUANTITIES) & ~is_before & has_readings())
            .select("gateway", F.unix_micros("interval_start").alias("start_us"))
        )
        sign = F.when(is_before, -1).otherwise(1).alias("sign")
        records = table_changes(self._spark, self._settings, CHANNELS)
        records = records.withColumn("tilt_deg", tilt())
        records = records.select(*CHANNELS.key, *_USED, sign, periods_as_spans())
        return Source(
            intervals.unionByName(records, allowMissingColumns=True),
            _TRIGGERS * self._settings.trigger_s,
            follows=(STATISTICS, CHANNELS),
        )

    def batch(self, rows: DataFrame, number: int) -> None:
        """Computes the intervals that the changes touch."""
        started = time.monotonic()
        changes = kept(rows)
        spans = kept(changed_spans(changes.where("channel is not null"), CHANNELS.key, _USED))
        wanted = changes.where("start_us is not null").select("gateway", "start_us")
        if records := spans.count():
            wanted = wanted.union(intervals_within(self._spark, self._settings, spans))
        # Twelve channels close one interval, and again with each correction.
        wanted = kept(wanted.distinct())
        if intervals := wanted.count():
            plan_for(self._spark, 10 * intervals)
            self._compute(wanted)
            figures = number, intervals, records, time.monotonic() - started
            log.info("event=mast.computed batch=%d intervals=%d records=%d seconds=%.2f", *figures)

    def finish(self) -> None:
        """Says which intervals there are, where none is of this length."""
        if hint := other_intervals(self._spark, self._settings):
            log.warning("event=mast.no_intervals %s", hint)

    def _compute(self, wanted: DataFrame) -> None:
        interval_s = self._settings.interval_s
        statistics = statistics_in(self._spark, self._settings, wanted)
        channels = self._spark.read.format("delta").load(self._settings.table(CHANNELS.name))
        mounted = mounted_channels(statistics, channels.where(few_of("gateway", wanted)), interval_s)
        merge_changed(self._location, MAST, kept(mast_rows(mounted, interval_s)))
