"""Jobs run in the tests' own process."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from spark_jobs.settings import Settings
from spark_jobs.streaming.batch_gate import Batch, BatchGate
from spark_jobs.streaming.query import Job, Source, start_query


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
