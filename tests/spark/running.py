"""How Spark is configured for tests, and jobs run in the tests' own process."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from spark_jobs.platform.settings import Settings
from spark_jobs.streaming.query import Batch, BatchGate, Job, Source, start_query

QUICK_JAVA: Final = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
QUICK_PLANS: Final[tuple[tuple[str, str], ...]] = (
    ("spark.sql.codegen.wholeStage", "false"),
    ("spark.sql.codegen.factoryMode", "NO_CODEGEN"),
    # One task where whole pipelines have two, and none of Delta's checksums: a sixth less again.
    ("spark.sql.shuffle.partitions", "1"),
    ("spark.default.parallelism", "1"),
    ("spark.databricks.delta.snapshotPartitions", "1"),
    ("spark.databricks.delta.writeChecksumFile.enabled", "false"),
    # Nor are plans compared between rules, filters derived, or plans written as text.
    ("spark.sql.lightweightPlanChangeValidation", "false"),
    ("spark.sql.constraintPropagation.enabled", "false"),
    ("spark.sql.ui.explainMode", "simple"),
)
"""Sessions of tests live for minutes and compute few rows: a quick compiler, one thread that collects
garbage, and no code generated for each plan take 60 % of the CPU time, as does the first batch without the
classes verified 85 % (measured)."""


def started(settings: Settings, job: Job) -> StreamingQuery:
    """The job's query, begun."""
    return start_query(settings, job, BatchGate())


def run_to_end(settings: Settings, job: Job) -> None:
    """All there is to read, as ``--once`` does it."""
    try:
        query = started(settings, job)
        query.awaitTermination()
        assert query.exception() is None
        job.finish()
    finally:
        job.close()


class SimpleJob(Job):
    """A job made of rows and a function."""

    def __init__(self, name: str, source: Source, batch: Batch) -> None:
        self.name = name
        self._source, self._batch = source, batch

    def source(self) -> Source:
        return self._source

    def batch(self, rows: DataFrame, number: int) -> None:
        self._batch(rows, number)
