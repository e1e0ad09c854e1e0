"""Starting a query: name, checkpoint, batches behind a gate, trigger."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_jobs.schemas import Table
from spark_jobs.settings import Settings
from spark_jobs.sources.changes import table_changes
from spark_jobs.streaming.batch_gate import Batch, Gate
from spark_jobs.streaming.checkpoint import check_checkpoint


def start_query(
    settings: Settings,
    name: str,
    stream: DataFrame,
    batch: Batch,
    gate: Gate,
    *,
    trigger_s: float,
    version: int = 1,
    follows: Iterable[Table] = (),
) -> StreamingQuery:
    """Starts ``batch`` over a stream, each ``trigger_s`` seconds at most, or once until it is through.

    ``version`` is that of the query's checkpoint: one more when the query's sources or its state change so
    that what an older version wrote can't be read on. ``follows`` are the tables whose changes the stream is
    made of. Raises CheckpointError.
    """
    check_checkpoint(stream.sparkSession, settings, name, version, follows)
    writer = (
        stream.writeStream.queryName(name)
        .option("checkpointLocation", settings.checkpoint(name, version))
        .foreachBatch(gate.guard(batch))
    )
    if settings.once:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{trigger_s} seconds").start()


def follow_table(
    spark: SparkSession,
    settings: Settings,
    name: str,
    table: Table,
    batch: Batch,
    gate: Gate,
    *,
    trigger_s: float,
) -> StreamingQuery:
    """Starts ``batch`` over the rows of a table and its changes, as ``start_query`` does."""
    stream = table_changes(spark, settings, table)
    return start_query(settings, name, stream, batch, gate, trigger_s=trigger_s, follows=(table,))
