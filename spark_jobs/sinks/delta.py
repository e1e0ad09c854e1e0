"""Delta tables: creation, appends that happen once, versions."""

from __future__ import annotations

from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from spark_jobs.schemas import Table
from spark_jobs.settings import Settings
from spark_jobs.sinks.retry import retried


def ensure_table(spark: SparkSession, settings: Settings, table: Table) -> str:
    """Creates the table where there is none, adds columns an older one lacks, and gives its location."""
    location = settings.table(table.name)
    if DeltaTable.isDeltaTable(spark, location):
        _add_missing_columns(spark, location, table)
        return location
    builder = (
        DeltaTable.createIfNotExists(spark)
        .location(location)
        .addColumns(table.schema)
        # Other readers (delta-rs, DuckDB) don't all know deletion vectors.
        .property("delta.enableDeletionVectors", "false")
        .property("delta.enableChangeDataFeed", str(table.change_feed).lower())
        .property("delta.checkpointInterval", "50")
        # At a commit each 5 s thirty days of log would be half a million files, listed at each look.
        .property("delta.logRetentionDuration", "interval 7 days")
    )
    if table.partitioned_by_date:
        builder = builder.partitionedBy("date")
    if table.bounds:
        builder = builder.property("delta.dataSkippingStatsColumns", ",".join(table.bounds))
    # Two jobs that start at once may both make it.
    retried(builder.execute, f"create-{table.name}")
    return location


def _add_missing_columns(spark: SparkSession, location: str, table: Table) -> None:
    """A table that an older version wrote gets what has come since; its rows have null there."""
    there = spark.read.format("delta").load(location).schema
    missing = [field for field in table.schema if field.name not in there.names]
    if missing:
        # Even a write of no rows has to have the partition's column.
        partition = [table.schema["date"]] if table.partitioned_by_date else []
        spark.createDataFrame([], StructType([*missing, *partition])).write.format("delta").mode(
            "append"
        ).option("mergeSchema", "true").save(location)


def snapshot(spark: SparkSession, location: str, *, update: bool = False) -> Any:
    """Delta's own view of a table: as this process last read or wrote it; with ``update`` as it is now."""
    jvm: Any = spark._jvm
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, location)
    if not update:
        return log.unsafeVolatileSnapshot()
    nothing = jvm.scala.Option.empty()
    return log.update(False, nothing, nothing)


def table_version(spark: SparkSession, location: str) -> int:
    """Version this process last read or wrote: at least that of its own latest commit."""
    return int(snapshot(spark, location).version())


def latest_version(spark: SparkSession, location: str) -> int:
    """Version the table has by now, others' commits included."""
    # Loading a table reads what is new in its log.
    spark.read.format("delta").load(location)
    return table_version(spark, location)


def write(frame: DataFrame, location: str, *, mode: str = "append") -> None:
    """Writes rows, each time it is called."""
    # An append meets nobody; an overwrite may meet a compaction.
    retried(lambda: frame.write.format("delta").mode(mode).save(location), f"write-{mode}")


def write_once(frame: DataFrame, location: str, app: str, batch: int) -> None:
    """Appends a batch; Delta skips it when the same app has written this batch (or a later one) before."""

    def append() -> None:
        (
            frame.write.format("delta")
            .mode("append")
            .option("txnAppId", app)
            .option("txnVersion", batch)
            .save(location)
        )

    retried(append, f"write-{app}")
