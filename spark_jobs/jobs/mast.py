"""``mast``: statistics of a mast's channels, with their calibration records, to values of the whole mast.

The intervals that a change of either touches are computed again, whole, from the tables, once every channel
in them is closed. So late readings and late records correct them, and a batch that runs twice computes the
same. Rows of missing intervals change no value, so an interval without any reading has no row.
"""

from __future__ import annotations

import logging
import time
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own name for it

from spark_jobs.schemas import CHANNELS, MAST, STATISTICS
from spark_jobs.session import small_batch_session
from spark_jobs.settings import Settings
from spark_jobs.sinks.delta import ensure_table, table_changes
from spark_jobs.sinks.merge import merge_changed
from spark_jobs.sources.mast_intervals import MastInterval, intervals_within, statistics_in
from spark_jobs.state.configured import BEFORE, RecordChange, touched_spans
from spark_jobs.streaming.query import Job, Source
from spark_jobs.transforms.mast import QUANTITIES, mounted_channels
from spark_jobs.transforms.mast_values import mast_rows
from spark_jobs.transforms.statistics import has_readings

log = logging.getLogger("fieldgate.jobs.mast")

_TRIGGERS: Final = 5
"""Polls for changes once in so many triggers: a mast has one new interval in minutes, and each poll costs."""
_PART: Final = 20_000
"""Intervals computed and merged at a time."""


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
        now = F.col("_change_type") != BEFORE
        intervals = (
            table_changes(self._spark, self._settings, STATISTICS)
            .where(closed & F.col("quantity").isin(*QUANTITIES) & now & has_readings())
            .select("gateway", F.unix_micros("interval_start").alias("start_us"))
        )
        periods_us = F.transform(
            "periods", lambda each: F.array(F.unix_micros(each["begin"]), F.unix_micros(each["end"]))
        )
        records = table_changes(self._spark, self._settings, CHANNELS).select(
            *CHANNELS.key,
            periods_us.alias("periods"),
            "height_m",
            "pair",
            F.col("_change_type").alias("kind"),
            F.col("_commit_version").alias("commit"),
        )
        return Source(
            intervals.unionByName(records, allowMissingColumns=True),
            _TRIGGERS * self._settings.trigger_s,
            follows=(STATISTICS, CHANNELS),
        )

    def batch(self, rows: DataFrame, number: int) -> None:
        """Computes the intervals that the changes touch."""
        started = time.monotonic()
        # Twelve channels close one interval, and again with each correction.
        changes = rows.distinct().toArrow().to_pylist()
        wanted = {(row["gateway"], row["start_us"]) for row in changes if row["channel"] is None}
        spans = list(touched_spans(_record_change(row) for row in changes if row["channel"] is not None))
        wanted |= intervals_within(self._spark, self._settings, spans)
        # In the order of time, so that a part touches few dates; in parts, because results pass the driver.
        in_order = sorted(wanted, key=lambda interval: interval[1])
        for at in range(0, len(in_order), _PART):
            self._compute(in_order[at : at + _PART])
        if wanted:
            figures = number, len(wanted), len(spans), time.monotonic() - started
            log.info("event=mast.computed batch=%d intervals=%d records=%d seconds=%.2f", *figures)

    def _compute(self, wanted: list[MastInterval]) -> None:
        statistics = statistics_in(self._spark, self._settings, wanted)
        channels = self._spark.read.format("delta").load(self._settings.table(CHANNELS.name))
        channels = channels.where(F.col("gateway").isin(sorted({gateway for gateway, _ in wanted})))
        mounted = mounted_channels(statistics, channels, self._settings.interval_s).toArrow()
        merge_changed(self._spark, self._location, MAST, mast_rows(mounted, self._settings.interval_s))


def _record_change(row: dict[str, Any]) -> RecordChange:
    key = tuple(row[name] for name in CHANNELS.key)
    periods = tuple((begin, end) for begin, end in row["periods"] or ())
    return RecordChange(key, row["commit"], row["kind"], periods, (row["height_m"], row["pair"]))
