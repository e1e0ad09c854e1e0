"""How far ``statistics`` has come, as a table of the lake: a job that starts again goes on from it.

Changed rows are appended, and of a channel the one of the latest pass holds: where each pass changes a few of
very many channels, little is written. Owned by the one job that makes the statistics of an interval length.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from pyspark.sql import DataFrame, SparkSession, functions as F

from spark_jobs.frames import computed, empty_frame
from spark_jobs.schemas import PROGRESS
from spark_jobs.settings import Settings
from spark_jobs.sinks.delta import ensure_table, table_version, write
from spark_jobs.transforms.statistics import CHANNEL
from spark_jobs.transforms.statistics_state import STATE

_COMPACT_EVERY: Final = 50
"""Versions of the table after which rows that no longer hold are dropped, whoever wrote them."""


class Progress:
    """The rows of ``transforms.statistics_state`` of one interval length."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self._spark = spark
        table = replace(PROGRESS, name=f"{PROGRESS.name}_{settings.interval_s}s")
        self._location = ensure_table(spark, settings, table)

    def read(self) -> DataFrame:
        """Gateway, channel and STATE."""
        rows = self._latest().select(*CHANNEL, *STATE)
        return computed(rows) if self._is_written() else empty_frame(self._spark, rows.schema)

    def records_version(self) -> int | None:
        """The version of ``channels`` by which missing intervals were found; None before the first pass."""
        if not self._is_written():
            return None
        row = self._table().agg(F.max("records_version")).first()
        return None if row is None else row[0]

    def add(self, rows: DataFrame, records_version: int) -> None:
        """Stores changed rows."""
        version = table_version(self._spark, self._location) + 1
        noted = rows.select(
            *CHANNEL,
            *STATE,
            F.lit(records_version).cast("long").alias("records_version"),
            F.lit(version).cast("long").alias("pass"),
        )
        write(noted.coalesce(1), self._location)
        if version % _COMPACT_EVERY == 0:
            write(self._latest().coalesce(1), self._location, mode="overwrite")

    def clear(self) -> None:
        """Forgets all of it."""
        write(self._table().limit(0), self._location, mode="overwrite")

    def _is_written(self) -> bool:
        return table_version(self._spark, self._location) > 0

    def _table(self) -> DataFrame:
        return self._spark.read.format("delta").load(self._location)

    def _latest(self) -> DataFrame:
        names = [name for name in PROGRESS.schema.names if name not in CHANNEL]
        latest = F.max_by(F.struct(*names), "pass").alias("latest")
        return self._table().groupBy(*CHANNEL).agg(latest).select(*CHANNEL, "latest.*")
