"""When channels were configured, as table ``channels`` has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own name for it

from spark_jobs.intervals import Channel
from spark_jobs.schemas import CHANNELS
from spark_jobs.settings import Settings
from spark_jobs.sinks.delta import ensure_table, rows_after
from spark_jobs.state.configured import Configured, configured


class ConfiguredChannels:
    """Follows the table; owned by one thread at a time."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self._spark = spark
        self._location = ensure_table(spark, settings, CHANNELS)
        self._version = -1
        self._records: dict[tuple[str, str, str], Mapping[str, Any]] = {}

    def changed(self) -> dict[Channel, Configured]:
        """The state of channels with new or changed records; empty when nothing changed."""
        rows, self._version = rows_after(self._spark, self._location, self._version, with_periods_us)
        # Of a record that changed twice the later one holds.
        for row in sorted(rows, key=lambda row: row.get("_commit_version", 0)):
            self._records[row["gateway"], row["channel"], row["cal"]] = row
        changed = {(row["gateway"], row["channel"]) for row in rows}
        return configured(record for key, record in self._records.items() if key[:2] in changed)

    def updated_since(self, micros: int) -> set[Channel]:
        """Channels with records that were written after this time, as far as they have been read."""
        return {key[:2] for key, record in self._records.items() if (record["updated_at"] or 0) > micros}


def with_periods_us(records: DataFrame) -> DataFrame:
    """Records with each of their periods as begin and end in microseconds."""
    return records.withColumn(
        "periods",
        F.transform(
            "periods", lambda each: F.array(F.unix_micros(each["begin"]), F.unix_micros(each["end"]))
        ),
    )
