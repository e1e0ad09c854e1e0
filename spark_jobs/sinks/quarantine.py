"""Rejected records into ``quarantine``: each once, at most so many of one gateway in one hour.

Those beyond the cap are counted: one row with the reason OVERFLOW for each batch, gateway, hour of Kafka
time, topic and partition, with the number (``overflow``) and the offsets, so that each is counted once. These
rows are in the commit of the batch's other rejects, so the count is as exact as the table; they are appended,
not added up in one row, because in a flood there is no time to rewrite files.

All queries of this process that write the same table (``ingest`` has two) share one cap, and write in turn. A
``replay`` in a process of its own counts for itself.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession, Window, functions as F

from spark_jobs.platform.frames import rows_frame
from spark_jobs.platform.intervals import moment_of
from spark_jobs.platform.schemas import QUARANTINE
from spark_jobs.platform.settings import Settings
from spark_jobs.sinks.delta import ensure_table, write_once
from spark_jobs.sinks.merge import delete_rows
from spark_jobs.transforms.dedupe import RECORD, unquarantined
from spark_jobs.transforms.statistics import begin_of

OVERFLOW: Final = "OVERFLOW"
"""Reason of a row that only counts."""

Bucket = tuple[str, int]
"""Gateway ('' where it is not known) and hour of Kafka time, microseconds since the epoch."""
_HOUR_US: Final = 3_600_000_000
_ROOM: Final = "gateway: string, _hour _room: long"
_TURNS: Final = threading.Lock()
"""Queries of this process take turns: what one writes the next one counts."""


class QuarantineSink:
    """Writes rejects. Owned by the thread that runs the query's batches; two on one table take turns."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self._spark = spark
        self._cap = settings.quarantine_cap
        self._location = ensure_table(spark, settings, QUARANTINE)

    def write(self, rejects: DataFrame, since_us: int, app: str, batch: int) -> Counter[str]:
        """Stores or counts a batch's rejects (with the columns of the table); gives the new ones' reasons.

        ``since_us`` is Kafka's time of the first of them: what is older isn't read. Doing it again changes
        nothing.
        """
        there = self._spark.read.format("delta").load(self._location)
        there = there.where(F.col("kafka_time") >= moment_of(since_us))
        rejects = unquarantined(rejects, there).withColumn("_hour", _hour()).persist()
        try:
            new, reasons = Counter[Bucket](), Counter[str]()
            for row in rejects.groupBy("gateway", "_hour", "reason").count().collect():
                new[row.gateway, row._hour] += row["count"]
                reasons[row.reason] += row["count"]
            if new:
                with _TURNS:
                    write_once(self._kept(rejects, new).coalesce(1), self._location, app, batch)
        finally:
            rejects.unpersist()
        return reasons

    def _room(self, buckets: Collection[Bucket]) -> dict[Bucket, int]:
        """How many rows more the table may have of each bucket."""
        hours = [hour for _, hour in buckets]
        begin, end = (F.timestamp_micros(F.lit(us)) for us in (min(hours), max(hours) + _HOUR_US))
        stored = self._spark.read.format("delta").load(self._location).where("overflow is null")
        stored = stored.where(F.col("kafka_time").between(begin, end))
        # A row of before there was the column has no gateway and isn't counted.
        rows = stored.groupBy("gateway", _hour().alias("hour")).count().collect()
        counts = {(row.gateway, row.hour): int(row["count"]) for row in rows}
        return {bucket: max(self._cap - counts.get(bucket, 0), 0) for bucket in buckets}

    def _kept(self, rejects: DataFrame, new: Mapping[Bucket, int]) -> DataFrame:
        """The rows to append: rejects up to the cap, the oldest first, and the counts of the others."""
        room = self._room(new)
        if all(count <= room[bucket] for bucket, count in new.items()):
            return rejects.drop("_hour")
        rooms = [(gateway, hour, rows) for (gateway, hour), rows in room.items()]
        in_order = Window.partitionBy("gateway", "_hour").orderBy(
            "kafka_time", "kafka_topic", "kafka_partition", "kafka_offset"
        )
        placed = rejects.withColumn("_rank", F.row_number().over(in_order)).join(
            F.broadcast(rows_frame(self._spark, _ROOM, rooms)), ["gateway", "_hour"]
        )
        beyond = (
            placed.where("_rank > _room")
            .groupBy("gateway", "_hour", "kafka_topic", "kafka_partition")
            .agg(
                F.count(F.lit(1)).alias("overflow"),
                F.min("kafka_offset").alias("overflow_from"),
                F.max("kafka_offset").alias("kafka_offset"),
                F.max("kafka_time").alias("kafka_time"),
                F.sum("payload_bytes").alias("payload_bytes"),
                F.max("ingested_at").alias("ingested_at"),
                F.lit(OVERFLOW).alias("reason"),
            )
        )
        names = QUARANTINE.schema.names
        stored = placed.where("_rank <= _room").select(*names)
        return stored.unionByName(beyond.drop("_hour"), allowMissingColumns=True).select(*names)


def release(spark: SparkSession, settings: Settings, records: DataFrame) -> None:
    """Removes records that are readings by now, by their place in Kafka."""
    same_record = " and ".join(f"t.{name} = s.{name}" for name in RECORD)
    location = settings.table(QUARANTINE.name)
    delete_rows(spark, location, records.select(*RECORD).distinct(), same_record, "release-quarantine")


def _hour() -> Column:
    return begin_of(F.unix_micros("kafka_time"), 3600)
