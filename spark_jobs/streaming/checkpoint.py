"""Checks a query's checkpoint before Spark reads it, whose errors name neither the file nor the remedy.

A query's checkpoint is ``<checkpoints>/<query>/v1``. Files are read through Hadoop: any URI works.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from spark_jobs.platform.errors import JobError
from spark_jobs.platform.files import Files
from spark_jobs.platform.schemas import Table
from spark_jobs.platform.settings import Settings
from spark_jobs.sinks.delta import latest_version, snapshot

_FORMAT: Final = "v1"
"""First line of the files of Spark 4.0."""
VERSION_ENDED: Final = 1 << 62
"""Delta marks the end of a version with an index near 2^63; otherwise the version is still to be read."""
_READ_AGAIN: Final = 2
"""Spark goes on from the last batch planned and the one before it."""
_AGAIN: Final = "the query then begins at the start of its source and stores only what is missing"


class CheckpointError(JobError):
    """A checkpoint that can't be gone on from; the text names file and remedy."""


def _lines(files: Files, file: str) -> list[str]:
    """The lines of a file but for its format, JSON. Raises CheckpointError where it is missing or damaged."""
    try:
        # The Kafka source puts a zero byte before its first offsets.
        text = (files.read_bytes(file, checked=True) or b"").decode().removeprefix("\0")
        lines = text.removeprefix(f"{_FORMAT}\n").splitlines()
        for line in lines:
            if line != "-":
                json.loads(line)
        if len(lines) < (2 if "/offsets/" in file else 1):
            raise ValueError("it is missing, or its end")
    except (Py4JJavaError, ValueError) as error:
        why = error.java_exception if isinstance(error, Py4JJavaError) else error
        raise _damaged(file, str(why)) from error
    return lines


def _damaged(file: str, why: str) -> CheckpointError:
    folder = re.sub(r"/(offsets|commits|sources|metadata)(/.*)?$", "", file)
    return CheckpointError(f"checkpoint file {file} can't be read: {why}; move {folder} away: {_AGAIN}")


def check_checkpoint(
    spark: SparkSession, settings: Settings, query: str, follows: Iterable[Table] = ()
) -> None:
    """Raises CheckpointError where the query can't go on from its checkpoint; having none is fine.

    ``follows`` are the tables it reads the changes of.
    """
    place, files = settings.checkpoint(query), Files(spark)
    if files.exists(f"{place}/metadata"):
        _lines(files, f"{place}/metadata")
    batches = {kind: files.numbers(f"{place}/{kind}") for kind in ("offsets", "commits")}
    for kind, numbers in batches.items():
        for number in numbers[-_READ_AGAIN:]:
            _lines(files, f"{place}/{kind}/{number}")
    if batches["commits"] and batches["commits"][-1] not in batches["offsets"]:
        raise _damaged(
            f"{place}/offsets/{batches['commits'][-1]}", "it is missing, though its batch was done"
        )
    for source in files.entries(f"{place}/sources"):
        for number in files.numbers(source.uri)[-1:]:
            _lines(files, f"{place}/sources/{source.name}/{number}")
    for number in batches["offsets"][-1:]:
        _not_ahead(spark, settings, _lines(files, f"{place}/offsets/{number}"), place, follows)


def _of_tables(offsets: Iterable[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in offsets if '"reservoirId"' in line]


def _version_read(offset: Mapping[str, Any]) -> int:
    """The last version of a table that was read to its end."""
    return int(offset["reservoirVersion"]) - int(offset["index"] < VERSION_ENDED)


def has_all(spark: SparkSession, settings: Settings, query: str, batch: int, table: Table) -> bool:
    """Whether a batch of a query that follows one table has its latest changes."""
    files, place = Files(spark), f"{settings.checkpoint(query)}/offsets/{batch}"
    offsets = _of_tables(_lines(files, place)) if files.exists(place) else []
    latest = latest_version(spark, settings.table(table.name))
    return any(_version_read(offset) >= latest for offset in offsets)


def _not_ahead(
    spark: SparkSession, settings: Settings, offsets: Iterable[str], place: str, follows: Iterable[Table]
) -> None:
    """Refuses a checkpoint that is ahead of a table: what the table gets until then would be left out.

    So it is when a lake was put back as it had been, and its checkpoints not.
    """
    sources = _of_tables(offsets)
    for table in follows:
        now = snapshot(spark, settings.table(table.name), update=True)
        identity, latest = str(now.metadata().id()), int(now.version())
        for offset in sources:
            read = _version_read(offset)
            if offset["reservoirId"] == identity and read > latest:
                raise CheckpointError(
                    f"checkpoint {place} has read version {read} of table {table.name}, whose last is "
                    f"{latest}: the lake is older than its checkpoints. Move all of {settings.checkpoints} "
                    f"away, that of ingest too: {_AGAIN.replace('the query', 'each query')}"
                )
