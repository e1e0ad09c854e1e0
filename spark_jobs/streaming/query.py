"""A job: a streaming query, what is done with each batch, and what is due by the clock."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from spark_jobs.schemas import Table
from spark_jobs.settings import Settings
from spark_jobs.sources.identities import IdentitySource
from spark_jobs.streaming.batch_gate import BatchGate
from spark_jobs.streaming.checkpoint import check_checkpoint
from spark_jobs.streaming.lease import Lease


@dataclass(frozen=True)
class Source:
    """The rows a query reads, in a batch each ``trigger_s`` seconds at most.

    ``follows`` are the tables whose changes they are.
    """

    rows: DataFrame
    trigger_s: float
    follows: tuple[Table, ...] = ()


class Job(ABC):
    """One run of a job; after a failure another one is made. One thread supervises it and calls ``tick``."""

    name: str
    query: StreamingQuery | None = None
    """The query once it is started."""
    lease: Lease | None = None
    """Under which it writes, where one process may."""
    topics: str | None = None
    """Kafka's topics that it follows, a Java pattern; None where it follows tables."""
    identities: IdentitySource | None = None
    """Reads which gateways must prove themselves, where its rows come from Kafka."""

    @abstractmethod
    def source(self) -> Source:
        """The rows to read."""

    @abstractmethod
    def batch(self, rows: DataFrame, number: int) -> None:
        """Stores what a batch amounts to; called by the query's thread. Doing it again changes nothing."""

    def tick(self) -> None:
        """Called about once a second while the query runs. Raises LeaseTakenError: it may write no more."""
        if self.lease is not None:
            self.lease.check()

    def finish(self) -> None:  # noqa: B027 - nor when all is read
        """Called after a ``--once`` query has ended."""

    def close(self) -> None:
        """Called when the query has ended, however it did: leaves Kafka, and gives the lease back."""
        if self.identities is not None:
            self.identities.close()
        if self.lease is not None:
            self.lease.give_back()


def query_id(rows: DataFrame) -> str:
    """The id of the query a batch is of: another one after its checkpoint was lost."""
    return str(rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId"))


def start_query(settings: Settings, job: Job, gate: BatchGate) -> StreamingQuery:
    """Starts a job's query, without end or, with ``--once``, until all is read. Raises CheckpointError."""
    source = job.source()
    check_checkpoint(source.rows.sparkSession, settings, job.name, follows=source.follows)
    writer = (
        source.rows.writeStream.queryName(job.name)
        .option("checkpointLocation", settings.checkpoint(job.name))
        .foreachBatch(gate.guard(job.batch))
    )
    if settings.once:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{source.trigger_s} seconds")
    job.query = writer.start()
    return job.query
