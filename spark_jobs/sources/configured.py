"""When channels were configured, as table ``channels`` has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own name for it

from spark_jobs.intervals import Channel
from spark_jobs.schemas import CHANNELS
from spark_jobs.settings import Settings
from spark_jobs.sinks.delta import ensure_table, table_version
from spark_jobs.state.configured import Configured, configured

_RECORD: Final = ("gateway", "channel", "cal", "in_force", "revision", "interval_s", "unit")
_UPDATED: Final = "updated_us"


class ConfiguredChannels:
    """Follows the table; owned by one thread at a time."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self._spark = spark
        self._location = ensure_table(spark, settings, CHANNELS)
        self._version = -1
        self._records: dict[tuple[str, str, str], Mapping[str, Any]] = {}

    def changed(self) -> dict[Channel, Configured]:
        """What the records of channels with new or changed records say by now; empty when nothing changed."""
        table = self._spark.read.format("delta").load(self._location)
        latest = table_version(self._spark, self._location)
        if latest == self._version:
            return {}
        if self._version >= 0:
            table = (
                self._spark.read.format("delta")
                .option("readChangeFeed", "true")
                .option("startingVersion", self._version + 1)
                .option("endingVersion", latest)
                .load(self._location)
                .where("_change_type in ('insert', 'update_postimage')")
                .orderBy("_commit_version")
            )
        micros = F.transform(
            "periods", lambda each: F.struct(F.unix_micros(each["begin"]), F.unix_micros(each["end"]))
        )
        told: set[Channel] = set()
        for row in table.select(
            *_RECORD, micros.alias("periods"), F.unix_micros("updated_at").alias(_UPDATED)
        ).toLocalIterator():
            record = row.asDict()
            record["periods"] = [tuple(period) for period in record["periods"] or ()]
            self._records[row.gateway, row.channel, row.cal] = record
            told.add((row.gateway, row.channel))
        self._version = latest
        return configured(
            record for (gateway, channel, _), record in self._records.items() if (gateway, channel) in told
        )

    def updated_since(self, micros: int) -> set[Channel]:
        """Channels with records that were written after this time, as far as they have been read."""
        return {
            (gateway, channel)
            for (gateway, channel, _), record in self._records.items()
            if (record[_UPDATED] or 0) > micros
        }
