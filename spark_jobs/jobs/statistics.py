"""``statistics``: readings to interval statistics.

New readings say which intervals to compute again; these are computed whole, from the table, and no others. So late
readings correct what they touch, and a batch that runs twice computes the same.
"""

from __future__ import annotations

import logging
import threading
import time
from datetime import UTC, datetime
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own name for it
from pyspark.sql.streaming.query import StreamingQuery

from spark_jobs.schemas import READINGS, STATISTICS
from spark_jobs.settings import Settings
from spark_jobs.sinks.delta import ensure_table
from spark_jobs.sinks.statistics import merge_statistics
from spark_jobs.sources.readings import new_readings, readings_in
from spark_jobs.state.intervals import Channel, OpenIntervals
from spark_jobs.transforms.statistics import interval_statistics, touched_intervals

log = logging.getLogger("fieldgate.jobs.statistics")

_TRIGGER_S: Final = 0.5
"""Looks for new readings so often at most: it follows ``ingest``, which sets the pace."""
_TICK_S: Final = 5.0
_UTC: Final = pa.timestamp("us", tz="UTC")


class StatisticsJob:
    """One run of the query; after a failure, make a new one."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self.name = f"statistics-{settings.interval_s}s"
        self._spark = spark
        self._settings = settings
        ensure_table(spark, settings, READINGS)
        self._location = ensure_table(spark, settings, STATISTICS)
        # The query's thread computes what new readings touch, the supervisor's what silence closes.
        self._lock = threading.Lock()
        self._intervals = self._restore()
        self._ticked_at = time.monotonic()

    def start(self) -> StreamingQuery:
        """Starts the query."""
        writer = (
            new_readings(self._spark, self._settings)
            .writeStream.queryName(self.name)
            .option("checkpointLocation", self._settings.checkpoint(self.name))
            .foreachBatch(self._batch)
        )
        if self._settings.once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{min(_TRIGGER_S, self._settings.trigger_s)} seconds").start()

    def tick(self) -> None:
        """Closes the intervals of channels that went silent."""
        now_s = time.monotonic()
        if now_s - self._ticked_at < _TICK_S:
            return
        self._ticked_at = now_s
        with self._lock:
            due = self._intervals.silent(time.time_ns() // 1000, now_s)
            self._compute(due, "silence")

    def finish(self) -> None:
        """Closes what is open: nothing more will come in this run."""
        with self._lock:
            self._compute(self._intervals.all(), "end")

    def _restore(self) -> OpenIntervals:
        intervals = OpenIntervals(self._settings.interval_s)
        table = self._spark.read.format("delta").load(self._location)
        mine = table.where(F.col("interval_s") == self._settings.interval_s)
        newest = mine.groupBy("gateway", "channel").agg(
            F.max(F.unix_micros("interval_start")).alias("newest"),
            F.collect_list(F.when(F.col("version") == 0, F.unix_micros("interval_start"))).alias("open"),
        )
        now_s = time.monotonic()
        for row in newest.collect():
            channel = (row.gateway, row.channel)
            intervals.restore(channel, row.newest, is_open=False, now_s=now_s)
            for start_us in row.open:
                intervals.restore(channel, start_us, is_open=True, now_s=now_s)
        return intervals

    def _batch(self, changes: DataFrame, batch: int) -> None:
        touched = touched_intervals(changes, self._settings.interval_s)
        found = [
            ((row.gateway, row.channel), row.start_us)
            for row in touched.select(
                "gateway", "channel", F.unix_micros("interval_start").alias("start_us")
            ).collect()
        ]
        with self._lock:
            self._compute(self._intervals.touch(found, time.monotonic()), f"batch={batch}")

    def _compute(self, due: dict[tuple[Channel, int], bool], cause: str) -> None:
        if not due:
            return
        started = time.monotonic()
        keys = self._keys(due)
        readings = readings_in(self._spark, self._settings, due, keys)
        computed = interval_statistics(readings, self._settings.interval_s).join(
            F.broadcast(keys), ["gateway", "channel", "interval_start"]
        )
        computed = computed.persist()
        try:
            dates = sorted({datetime.fromtimestamp(start_us // 1_000_000, UTC).date() for _, start_us in due})
            merge_statistics(self._spark, self._location, computed, dates)
        finally:
            computed.unpersist()
        log.info(
            "event=statistics.%s intervals=%d closed=%d seconds=%.2f",
            cause.replace("=", " batch=") if cause.startswith("batch") else cause,
            len(due),
            sum(due.values()),
            time.monotonic() - started,
        )

    def _keys(self, due: dict[tuple[Channel, int], bool]) -> DataFrame:
        rows = [(*channel, start_us, closed) for (channel, start_us), closed in due.items()]
        gateways, channels, starts, closed = zip(*rows, strict=True)
        return self._spark.createDataFrame(
            pa.table(
                {
                    "gateway": pa.array(gateways, pa.string()),
                    "channel": pa.array(channels, pa.string()),
                    "interval_start": pa.array(starts, pa.int64()).cast(_UTC),
                    "closed": pa.array(closed, pa.bool_()),
                }
            )
        )
