"""Delta tables: creation, appends that happen once, versions, what changes, retries of what conflicts.

Each table has one writer job, but ``maintain``, ``replay`` and ``recalibrate`` work beside it. The second of
two commits that read or replace the same file is refused as a whole (Delta's optimistic concurrency). Appends
that read nothing never conflict.
"""

from __future__ import annotations

import json
import logging
import random
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

# Without it conflicts come as plain Py4JJavaError: it has PySpark convert them.
import delta.exceptions.captured  # noqa: F401
from delta import exceptions
from delta.tables import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, functions as F

from cloud.backoff import backoff_s
from spark_jobs.platform.errors import JobError
from spark_jobs.platform.files import Files
from spark_jobs.platform.frames import dicts_of
from spark_jobs.platform.java import java_frame, java_of, java_session
from spark_jobs.platform.schemas import Table
from spark_jobs.platform.settings import Settings

log = logging.getLogger("fieldgate.jobs.delta")

CONFLICTS: Final = (
    exceptions.ConcurrentAppendException,
    exceptions.ConcurrentDeleteDeleteException,
    exceptions.ConcurrentDeleteReadException,
    exceptions.ConcurrentWriteException,
    exceptions.MetadataChangedException,
    exceptions.ProtocolChangedException,
)
"""Not ConcurrentTransactionException: two jobs with one app id are a mistake, not a matter of patience."""

_ATTEMPTS: Final = 8
"""Within 13 s. A compaction commits once and is done with these files: the second nearly always succeeds."""

_T = TypeVar("_T")


def retried(step: Callable[[], _T], what: str, sleep: Callable[[float], None] = time.sleep) -> _T:
    """The result of ``step``, done again where another commit came before its own.

    ``step`` reads the table each time. Raises the last conflict.
    """
    for attempt in range(1, _ATTEMPTS):
        try:
            return step()
        except CONFLICTS as conflict:
            # Two that wait equally long would meet again.
            pause_s = backoff_s(attempt, 0.1, 6.4) * random.uniform(0.5, 1.5)  # noqa: S311 - no secret
            figures = what, attempt, pause_s, type(conflict).__name__
            log.info("event=delta.conflict what=%s attempt=%d wait_s=%.2f kind=%s", *figures)
            sleep(pause_s)
    return step()


_MAKING_S: Final = 30.0
"""Whoever makes a table at this moment has made it by then."""


class FencedError(JobError):
    """Another process writes the table in the place of this one."""


def ensure_table(spark: SparkSession, settings: Settings, table: Table) -> str:
    """Creates the table where there is none, and gives its location. Raises JobError if it lacks columns."""
    location = settings.table(table.name)
    if _is_whole(spark, location):
        _refuse_other_columns(spark, location, table)
    else:
        # Two jobs that start at once may both make it.
        retried(lambda: create_table(spark, location, table), f"create-{table.name}")
    return location


def _is_whole(spark: SparkSession, location: str) -> bool:
    """Whether there is a table; of one that a killed process had begun to make nothing is left.

    Delta makes no table where there is the folder of a log without a commit.
    """
    files, folder = Files(spark), f"{location}/_delta_log"
    deadline_s = time.monotonic() + _MAKING_S
    while not DeltaTable.isDeltaTable(spark, location):
        if not files.exists(folder):
            return False
        if time.monotonic() >= deadline_s:
            log.warning("event=delta.half_made table=%s is made anew", location)
            files.delete(folder)
            return False
        time.sleep(_MAKING_S / 100)
    return True


def create_table(spark: SparkSession, location: str, table: Table) -> None:
    """Creates the table, unless there is one by now."""
    builder = (
        DeltaTable.createIfNotExists(spark)
        .location(location)
        .addColumns(table.schema)
        # Other readers (delta-rs, DuckDB) don't all read deletion vectors.
        .property("delta.enableDeletionVectors", "false")
        .property("delta.enableChangeDataFeed", str(table.change_feed).lower())
        .property("delta.checkpointInterval", "50")
        # Thirty days of log, a commit each 5 s, would be half a million files, listed at each read.
        .property("delta.logRetentionDuration", "interval 7 days")
    )
    if table.partitioned_by_date:
        builder = builder.partitionedBy("date")
    if table.bounds:
        builder = builder.property("delta.dataSkippingStatsColumns", ",".join(table.bounds))
    builder.execute()


def _refuse_other_columns(spark: SparkSession, location: str, table: Table) -> None:
    there = spark.read.format("delta").load(location).schema.names
    if missing := [name for name in table.schema.names if name not in there]:
        raise JobError(
            f"table {location} lacks {', '.join(missing)}: another version of fieldgate made it. Move the "
            "lake and its checkpoints away, and the jobs make them anew of what Kafka has"
        )


def _delta_log(spark: SparkSession, location: str) -> Any:
    return java_of(spark).org.apache.spark.sql.delta.DeltaLog.forTable(java_session(spark), location)


def snapshot(spark: SparkSession, location: str, *, update: bool = False) -> Any:
    """Delta's own view of a table: as this process last read or wrote it; with ``update`` as it is now."""
    log = _delta_log(spark, location)
    if not update:
        return log.unsafeVolatileSnapshot()
    nothing = java_of(spark).scala.Option.empty()
    return log.update(False, nothing, nothing)


def table_version(spark: SparkSession, location: str) -> int:
    """Version this process last read or wrote: at least that of its own latest commit."""
    return int(snapshot(spark, location).version())


def latest_version(spark: SparkSession, location: str) -> int:
    """Version the table has by now, others' commits included."""
    return int(snapshot(spark, location, update=True).version())


def table_changes(
    spark: SparkSession, settings: Settings, table: Table, *, deletions: bool = False
) -> DataFrame:
    """The rows of a table with a change feed, and then each change: ``_change_type``, ``_commit_version``.

    The feed rather than the table itself: a plain stream ends with an error at the first correction. A
    corrected row comes twice, as ``update_preimage`` and as ``update_postimage``. Compaction is no change.
    Rows that leave, with their day or taken back, come with ``deletions`` alone: what was derived from
    readings stays.
    """
    return (
        spark.readStream.format("delta")
        .option("readChangeFeed", "true")
        .option("maxFilesPerTrigger", "2000")
        .load(settings.table(table.name))
        .where(F.lit(deletions) | (F.col("_change_type") != "delete"))
    )


def rows_after(
    spark: SparkSession,
    location: str,
    version: int,
    shape: Callable[[DataFrame], DataFrame] = lambda rows: rows,
) -> tuple[list[dict[str, Any]], int]:
    """What ``shape`` makes of the rows that changed after a version of a table, and the version it has now.

    Of all rows for version -1, and where the feed no longer reaches back so far; else the rows have the
    feed's ``_commit_version`` too, and one that changed twice comes twice. Times are in microseconds.
    """
    latest = latest_version(spark, location)
    if latest == version:
        return [], version
    if 0 <= version < latest:
        feed = spark.read.format("delta").option("readChangeFeed", "true")
        changed = feed.option("startingVersion", version + 1).option("endingVersion", latest)
        try:
            rows = changed.load(location).where("_change_type in ('insert', 'update_postimage')")
            return dicts_of(shape(rows).toArrow()), latest
        except (PySparkException, Py4JJavaError) as error:
            # Its files are vacuumed, or its log is cleaned.
            table = location.rpartition("/")[2]
            log.warning("event=changes.gone table=%s after_version=%d %s", table, version, str(error)[:200])
    return dicts_of(shape(spark.read.format("delta").load(location)).toArrow()), latest


def write(frame: DataFrame, location: str, *, mode: str = "append", **options: Any) -> None:
    """Writes rows, each time it is called."""
    writer = frame.write.format("delta").mode(mode).options(**options)
    # An append conflicts with nothing; an overwrite may with a compaction.
    retried(lambda: writer.save(location), f"write-{mode}")


def write_once(frame: DataFrame, location: str, app: str, number: int) -> int:
    """Appends rows, unless the same app has done so under this number before; the version that has them.

    Their columns are some of the table's. Raises FencedError where the app has written under a higher number:
    another process writes in its place.
    """
    spark = frame.sparkSession
    return retried(lambda: _commit(spark, location, app, number, frame), "write-once")


def append_files(
    spark: SparkSession, location: str, app: str, number: int, files: Sequence[Mapping[str, Any]]
) -> int:
    """Appends Parquet files to a table by date, numbered, refused and versioned as by ``write_once``.

    A file has its ``date``, ``content`` (bytes) and Delta's ``stats`` of it (JSON). What is in the table's
    folder and never committed is removed by VACUUM.
    """
    store, now_ms = Files(spark), int(time.time() * 1000)
    actions = []
    for file in files:
        name = f"date={file['date']}/part-{uuid.uuid4()}.c000.snappy.parquet"
        store.write(f"{location}/{name}", file["content"])
        found = {"path": name, "partitionValues": {"date": str(file["date"])}, "size": len(file["content"])}
        found |= {"modificationTime": now_ms, "dataChange": True, "stats": file["stats"]}
        actions.append(json.dumps({"add": found}))
    return retried(lambda: _commit(spark, location, app, number, actions), "append-files")


def overwrite_once(frame: DataFrame, location: str, app: str, number: int) -> None:
    """Replaces the table's rows, numbered and refused as by ``write_once``."""
    write(frame, location, mode="overwrite", txnAppId=app, txnVersion=number)
    spark = frame.sparkSession
    _refuse_fenced(spark, location, snapshot(spark, location), app, number)


@contextmanager
def writing_as(spark: SparkSession, location: str, app: str, number: int) -> Iterator[None]:
    """What this session writes to a table meanwhile is numbered, and refused, as by ``write_once``."""
    given = {"AppId": app, "Version": str(number)}
    for key, value in given.items():
        spark.conf.set(f"spark.databricks.delta.write.txn{key}", value)
    try:
        yield
    finally:
        for key in given:
            spark.conf.unset(f"spark.databricks.delta.write.txn{key}")
    _refuse_fenced(spark, location, snapshot(spark, location), app, number)


def fence(spark: SparkSession, location: str, app: str, number: int) -> None:
    """Makes a commit without rows, after which the app can write under higher numbers only.

    A write under a lower one that is under way is refused too. Raises FencedError where there is a higher one
    already.
    """
    _commit(spark, location, app, number)


def _commit(
    spark: SparkSession, location: str, app: str, number: int, rows: DataFrame | Sequence[str] | None = None
) -> int:
    """One commit under a number of the app, where there is none under it yet; the version that has it."""
    jvm = java_of(spark)
    delta, nothing = jvm.org.apache.spark.sql.delta, jvm.scala.Option.empty()
    transaction = _delta_log(spark, location).startTransaction(nothing, nothing)
    # Marked as read, so that another commit of the app meanwhile is a conflict. Delta's own options for it
    # (txnAppId, txnVersion) compute the table's whole state at each commit, a job as long as a small write.
    transaction.readTxn().addOne(app)
    before = transaction.snapshot()
    if _refuse_fenced(spark, location, before, app, number):
        return int(before.version())
    converters = jvm.scala.jdk.javaapi.CollectionConverters
    mark = delta.actions.SetTransaction(app, number, jvm.scala.Option.apply(int(time.time() * 1000)))
    made = jvm.java.util.ArrayList()
    made.add(mark)
    operation = _only(delta, "DeltaOperations$EmptyCommit")
    if rows is not None:
        append = jvm.org.apache.spark.sql.SaveMode.Append
        operation = getattr(delta, "DeltaOperations$Write")(append, nothing, nothing, nothing)
    if isinstance(rows, DataFrame):
        made.addAll(converters.asJava(transaction.writeFiles(java_frame(rows))))
    elif rows is not None:
        for action in rows:
            made.add(_only(delta.actions, "Action").fromJson(action))
    actions = converters.asScala(made).toList()
    return int(transaction.commit(actions, operation))


def _only(package: Any, name: str) -> Any:
    """Scala's object of this name."""
    return getattr(getattr(package, f"{name}$"), "MODULE$")


def _refuse_fenced(spark: SparkSession, location: str, known: Any, app: str, number: int) -> bool:
    """Whether this is the app's last number in a snapshot. Raises FencedError where that is higher."""
    # Delta keeps them with each commit's checksum; only without one they follow from the whole log.
    checksum = known.checksumOpt()
    marks = checksum.get().setTransactions() if checksum.isDefined() else checksum
    marks = marks.get() if marks.isDefined() else known.setTransactions()
    marks = java_of(spark).scala.jdk.javaapi.CollectionConverters.asJava(marks)
    last = max((int(mark.version()) for mark in marks if mark.appId() == app), default=number - 1)
    if last > number:
        raise FencedError(
            f"another process has taken over from this one what writes {location}: nothing was written"
        )
    return last == number
