"""A job: a streaming query, what is done with each batch, and what is due by the clock.

What makes a batch fail is set aside, so that one record stops no job; see docs/decisions/pipeline.md.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, functions as F
from pyspark.sql.streaming.query import StreamingQuery

from spark_jobs.platform import metrics
from spark_jobs.platform.errors import JobError
from spark_jobs.platform.files import Files
from spark_jobs.platform.frames import rows_frame
from spark_jobs.platform.intervals import moment_of, now_us
from spark_jobs.platform.kafka_access import require_access
from spark_jobs.platform.schemas import QUARANTINE, Table
from spark_jobs.platform.settings import Settings
from spark_jobs.sinks.quarantine import QuarantineSink
from spark_jobs.sources.kafka import IdentitySource
from spark_jobs.streaming.checkpoint import check_checkpoint
from spark_jobs.streaming.lease import Lease
from spark_jobs.transforms.dedupe import RECORD
from spark_jobs.transforms.records import REASONS, refused, utf8

log = logging.getLogger("fieldgate.jobs")

Batch = Callable[[DataFrame, int], None]

PATIENCE_S: Final = 15.0
"""How long batches under way may take to end once the jobs are to stop; then they are interrupted."""


class BatchGate:
    """Open while a query may run batches; once it ``is_shut`` no further one begins.

    Spark stops a query by interrupting its batch, which would be repeated at the next start: harmless, but
    slow, and logged with pages of stack traces. ``failure`` is what the last one raised, as it was raised.
    """

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self.is_shut = False
        self._busy = threading.Lock()

    def guard(self, batch: Batch) -> Batch:
        """The batch function, refused once the gate is shut."""

        def guarded(rows: DataFrame, number: int) -> None:
            with self._busy:
                if self.is_shut:
                    # It would count as done otherwise.
                    raise JobError("stopping")
                try:
                    batch(rows, number)
                except Exception as error:
                    # Spark's account of it is a page in which this is one line.
                    self.failure = error
                    raise

        return guarded

    def shut(self) -> None:
        """Lets no further batch begin."""
        self.is_shut = True

    def wait(self, deadline: float) -> bool:
        """Waits for the batch under way until this monotonic second; whether it has ended."""
        if not self._busy.acquire(timeout=max(0.0, deadline - time.monotonic())):
            return False
        self._busy.release()
        return True

    def close(self) -> None:
        """Lets no further batch begin and waits for the one under way, at most PATIENCE_S."""
        self.shut()
        self.wait(time.monotonic() + PATIENCE_S)


def _ids(content: bytes | None) -> dict[str, str]:
    try:
        return dict(json.loads(content or b"{}"))
    except ValueError as error:
        # Killed while it was written: the ids of today are taken.
        log.warning("event=topic.ids_unreadable %s", error)
        return {}


class TopicsRecreatedError(JobError):
    """Topics were created again since the query has read them; its checkpoint was removed."""


class TopicIds:
    """The ids of the topics that a query follows; ``pattern`` is a Java pattern of their names.

    Spark finds topics by name. In one that was created again, as when Kafka was rebuilt, offsets begin at 0:
    Spark would fail there or, once the new topic has grown past the old one's end, leave out its beginning
    without a word. The ids are therefore kept beside the checkpoint, in
    ``<checkpoints>/<query>/topics.json``. A topic with another id ends that checkpoint, and the query begins
    again at the start of all its topics, storing only what is missing.
    """

    def __init__(self, spark: SparkSession, settings: Settings, query: str, pattern: str) -> None:
        self._spark, self._settings, self._query, self._pattern = spark, settings, query, pattern
        self._files = Files(spark)
        self._checkpoint = settings.checkpoint(query)
        self._place = f"{self._checkpoint.rpartition('/')[0]}/topics.json"
        self._kept: dict[str, str] = _ids(self._files.read_bytes(self._place))

    def check(self, *, running: bool = False) -> None:
        """Keeps the ids of new topics. Raises TopicsRecreatedError, KafkaAccessError, CloudError."""
        found = require_access(self._spark, self._settings, self._pattern, running=running)
        again = sorted(name for name, topic_id in found.items() if self._kept.get(name, topic_id) != topic_id)
        if again and self._files.exists(self._checkpoint):
            if running:
                # The query is ended first: it writes to its checkpoint.
                raise TopicsRecreatedError(f"{', '.join(again)}: created again since {self._query} began")
            # A checkpoint that is lost costs time, and nothing else.
            self._files.delete(self._checkpoint)
            self._keep(found)
            log.warning("event=topic.recreated query=%s topics=%s", self._query, ",".join(again))
            raise TopicsRecreatedError(
                f"{', '.join(again)}: created again since {self._query} has read it. The query begins at the "
                "start of its topics and stores only what is missing"
            )
        self._keep(found)

    def _keep(self, found: dict[str, str]) -> None:
        if not found.items() <= self._kept.items():
            self._kept |= found
            self._files.make_folder(self._place.rpartition("/")[0])
            self._files.write(self._place, json.dumps(self._kept, sort_keys=True), sync=True)


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
    topic_ids: TopicIds | None = None
    """Of these, once the query is started."""
    identities: IdentitySource | None = None
    """Reads which gateways must prove themselves, where its rows come from Kafka."""

    @abstractmethod
    def source(self) -> Source:
        """The rows to read."""

    @abstractmethod
    def batch(self, rows: DataFrame, number: int) -> None:
        """Stores what a batch amounts to; called by the query's thread. Doing it again changes nothing."""

    def recover(self) -> None:  # noqa: B027 - most keep nothing that a batch changes
        """Called after a batch that failed: makes what is in memory again what is stored."""

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
    """Starts a job's query, without end or, with ``--once``, until all is read.

    Raises CheckpointError; TopicsRecreatedError where another job has to be made, which then begins again.
    """
    source = job.source()
    spark = source.rows.sparkSession
    if job.topics is not None:
        job.topic_ids = TopicIds(spark, settings, job.name, job.topics)
        job.topic_ids.check()
    check_checkpoint(spark, settings, job.name, follows=source.follows)
    batch = Isolation(settings, job).batch
    writer = (
        source.rows.writeStream.queryName(job.name)
        .option("checkpointLocation", settings.checkpoint(job.name))
        .foreachBatch(gate.guard(batch))
    )
    if settings.once:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{source.trigger_s} seconds")
    job.query = writer.start()
    return job.query


BATCH_FAILED: Final = "BATCH_FAILED"
"""The reason begins so; the exception's words follow."""
_MOST_FAILURES: Final = 64
"""After so many of one mast's records in a batch, what is left of them is set aside untried."""
_LONGEST_WORDS: Final = 300
_OF_DATA: Final = (ArithmeticError, ValueError, TypeError, LookupError, AttributeError, RecursionError)
"""Python's exceptions that a value leads to. Away, refused or full are others: OSError, MemoryError."""
_IN_WORKERS: Final = re.compile(
    r"^(?:[\w.]+\.)?((?:Arithmetic|Overflow|ZeroDivision|FloatingPoint|Value|Type|Lookup|Index|Key|Attribute|"
    r"Recursion|Unicode\w*|Validation|JSONDecode)Error|Arrow(?:Invalid|TypeError)|Invalid\w*)(?:: (.*))?$"
)
_IN_SPARK: Final = re.compile(
    r"\[((?:ARITHMETIC|CAST|DATETIME|BINARY_ARITHMETIC)_OVERFLOW|CAST_INVALID_INPUT|DIVIDE_BY_ZERO|"
    r"NUMERIC_VALUE_OUT_OF_RANGE|INVALID_ARRAY_INDEX\w*|CANNOT_PARSE_TIMESTAMP)[^\]]*\] ([^\n]*)"
)

_Place = tuple[Any, ...]
_Guilty = tuple[str, str, list[_Place]]
"""A mast, why, and the places of its records in Kafka."""


def fault_of(error: BaseException) -> str | None:
    """The words of a failure that a record's content leads to; None of any other failure."""
    text = str(error)
    if isinstance(error, JobError):
        return None
    if not isinstance(error, PySparkException | Py4JError):
        return f"{type(error).__name__}: {' '.join(text.split())}" if isinstance(error, _OF_DATA) else None
    if found := _IN_SPARK.search(text):
        return f"{found[1]}: {found[2]}"
    _, is_python, trace = text.rpartition("Traceback (most recent call last):")
    # The frames are indented; the exception itself is the first line that is not.
    ends = (line for line in trace.splitlines()[1:] if line and not line.startswith(" "))
    found = _IN_WORKERS.match(next(ends, "")) if is_python else None
    return f"{found[1]}: {found[2] or ''}" if found else None


def _kind(fault: str | None) -> str | None:
    return fault and fault.partition(":")[0]


class Isolation:
    """The batches of a job. Owned by the thread that runs them."""

    def __init__(self, settings: Settings, job: Job) -> None:
        self._settings = settings
        self._job = job
        self._parts = 0

    def batch(self, rows: DataFrame, number: int) -> None:
        """Does the job's batch; what makes it fail twice in one way is found and set aside."""
        try:
            self._job.batch(rows, number)
            return
        except Exception as error:
            if (first := fault_of(error)) is None:
                raise
            log.warning("event=batch.again query=%s batch=%d %s", self._job.name, number, first)
        self._job.recover()
        try:
            self._job.batch(rows, number)
        except Exception as error:
            has_records, of_masts = "offset" in rows.columns, "gateway" in rows.columns
            if _kind(fault_of(error)) != _kind(first) or not (has_records or of_masts):
                raise
            self._job.recover()
            kept = rows.persist()
            try:
                self._without_guilty(kept, number, error)
            finally:
                kept.unpersist()

    def _without_guilty(self, rows: DataFrame, number: int, error: Exception) -> None:
        """Does the batch in parts. Raises the error where it isn't that of a part alone."""
        nothing = rows.where(F.lit(False))
        # What fails without any record is no record's fault.
        self._job.batch(nothing, self._next_part())
        has_records = "offset" in rows.columns
        # The text compares equal to what was collected: a key may hold bytes that are no UTF-8.
        key = F.substring_index(utf8(F.col("key")), "/", 1) if has_records else F.col("gateway")
        mast = F.coalesce(key, F.lit(""))
        masts = sorted(row[0] for row in rows.select(mast).distinct().collect())
        if rows.where(mast.between(masts[0], masts[-1])).count() != rows.count():
            raise JobError("the parts of a batch that fails are not all of it") from error
        guilty: list[_Guilty] = []
        for (name,), words in self._failing(rows, masts, mast, error):
            if has_records:
                guilty += self._records(rows.where(mast == name), name, error)
            else:
                guilty.append((name, words, []))
        if len(guilty) == len(masts) > 1 and not has_records:
            raise error
        for name, words, places in guilty:
            figures = self._job.name, number, name, len(places), words
            log.error("event=batch.set_aside query=%s batch=%d gateway=%s records=%d %s", *figures)
            metrics.SET_ASIDE.labels(self._job.name).inc(len(places) or 1)
        if guilty:
            self._quarantine(rows, number, guilty)
        # Only now is this number done.
        self._job.batch(nothing, number)

    def _records(self, rows: DataFrame, name: str, error: Exception) -> Iterator[_Guilty]:
        """Does a mast's part of Kafka's records; those that fail."""
        places = sorted(map(tuple, rows.select("topic", "partition", "offset").collect()))
        at = F.struct("topic", "partition", "offset")
        for found, words in self._failing(rows, places, at, error, _MOST_FAILURES):
            yield name, words, list(found)

    def _failing(
        self, rows: DataFrame, keys: Sequence[Any], column: Column, error: Exception, most: int | None = None
    ) -> Iterator[tuple[Sequence[Any], str]]:
        """Does the rows, all of which together fail, by halves; those that fail, and with what words."""
        waiting = [(keys, fault_of(error) or "")]
        failures = 0
        while waiting:
            part, words = waiting.pop()
            if len(part) == 1 or (most is not None and failures >= most):
                yield part, words
                continue
            for half in (part[: len(part) // 2], part[len(part) // 2 :]):
                try:
                    bounds = (_literal(half[0]), _literal(half[-1]))
                    self._job.batch(rows.where(column.between(*bounds)), self._next_part())
                except Exception as failure:
                    if (fault := fault_of(failure)) is None:
                        raise
                    failures += 1
                    self._job.recover()
                    waiting.append((half, fault))

    def _next_part(self) -> int:
        """A number that no batch of the query has."""
        self._parts += 1
        return -self._parts - time.time_ns() // 1000

    def _quarantine(self, rows: DataFrame, number: int, guilty: Sequence[_Guilty]) -> None:
        spark = rows.sparkSession
        begin = f"{BATCH_FAILED}: {self._job.name}: "
        reasons = [(name, (begin + words)[:_LONGEST_WORDS]) for name, words, _ in guilty]
        at_us = now_us()
        if "offset" in rows.columns:
            # Whom a key names is not known to be true where gateways have to prove it.
            is_proof = self._job.identities is not None and len(self._job.identities.current())
            given = [
                dict(zip(RECORD[:3], place, strict=True))
                | {"gateway": "" if is_proof else name, "reason": reason}
                for (name, reason), (_, _, places) in zip(reasons, guilty, strict=True)
                for place in places
            ]
            chosen = ([each[column] for column in REASONS.names] for each in given)
            rejects = refused(rows, rows_frame(spark, REASONS, chosen)).persist()
            since_us = rejects.agg(F.unix_micros(F.min("kafka_time"))).collect()[0][0]
        else:
            of_all = {"kafka_topic": self._job.name, "kafka_partition": 0, "kafka_offset": number}
            of_all |= dict.fromkeys(("kafka_time", "ingested_at"), moment_of(at_us))
            given = [{**of_all, "gateway": name, "key": name, "reason": reason} for name, reason in reasons]
            chosen = ([each.get(column) for column in QUARANTINE.schema.names] for each in given)
            rejects, since_us = rows_frame(spark, QUARANTINE.schema, chosen), at_us
        sink = QuarantineSink(spark, self._settings)
        found = sink.write(rejects, since_us, f"fieldgate-aside-{self._job.name}", at_us)
        metrics.quarantined({BATCH_FAILED: found.total()})


def _literal(key: Any) -> Column:
    if isinstance(key, str):
        return F.lit(key)
    topic, partition, offset = key
    return F.struct(
        F.lit(topic).alias("topic"),
        F.lit(partition).cast("int").alias("partition"),
        F.lit(offset).cast("long").alias("offset"),
    )


class Timer:
    """Due every ``every_s`` seconds; the first time at once, or not before they have passed."""

    def __init__(self, every_s: float, *, at_once: bool = True) -> None:
        self._every_s = every_s
        self._next_s = 0.0 if at_once else time.monotonic() + every_s

    def due(self) -> bool:
        """Whether it is due; if so, the next time is ``every_s`` seconds from now."""
        now_s = time.monotonic()
        if now_s < self._next_s:
            return False
        self._next_s = now_s + self._every_s
        return True

    def rest(self, seconds: float) -> None:
        """Isn't due for so long, whatever ``every_s`` is."""
        self._next_s = max(self._next_s, time.monotonic() + seconds)
