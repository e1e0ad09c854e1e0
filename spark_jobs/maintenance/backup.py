"""Copies of the checkpoints, taken while their queries run.

A copy is whole: it is of batches that were committed, and is marked so when all of it is there. It leaves out
the query's id on purpose. A query that begins again from an older batch numbers its batches once more, with
other records in them; by its id `alerts`, which stores the number of its last batch, would take one of them
for a repeat of that. With a new id it decides by content, as after a lost checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from pyspark.sql import SparkSession

from spark_jobs.files import Files

KEPT: Final = 3
"""Copies kept of each checkpoint."""
_COPIED_FIRST: Final = frozenset({"commits", "offsets"})
_WHOLE: Final = "COMPLETE"


@dataclass(frozen=True)
class Copy:
    """One copy of a query's checkpoint: ``batch`` is the last that was done."""

    query: str
    batch: int
    uri: str


def back_up(spark: SparkSession, root: str, target: str, now: datetime, kept: int = KEPT) -> list[Copy]:
    """Copies each checkpoint to ``target/QUERY/VERSION/TIME-batchN``, where its last batch isn't there yet.

    Older copies than the last ``kept`` are removed.
    """
    files = Files(spark)
    copies = []
    folders = [entry for entry in files.entries(root) if entry.is_folder]
    versions = [(folder.name, version) for folder in folders for version in files.entries(folder.uri)]
    for query, version in versions:
        if not (done := files.numbers(f"{version.uri}/commits")):
            continue
        place = f"{target.rstrip('/')}/{query}/{version.name}"
        _drop(files, place, kept)
        if any(entry.name.endswith(f"-batch{done[-1]}") for entry in files.entries(place)):
            continue
        copy = f"{place}/{now.astimezone(UTC):%Y%m%dT%H%M%SZ}-batch{done[-1]}"
        _copy(files, version.uri, copy, done[-1])
        _drop(files, place, kept)
        copies.append(Copy(query, done[-1], copy))
    return copies


def _copy(files: Files, source: str, copy: str, batch: int) -> None:
    # What only grows comes first, so that nothing of a later batch is missing beneath it.
    for kind in ("offsets", "commits"):
        for number in files.numbers(f"{source}/{kind}"):
            if number <= batch:
                files.copy(f"{source}/{kind}/{number}", f"{copy}/{kind}/{number}")
    # Folders only: `metadata`, a file, has the query's id.
    for folder in files.entries(source):
        if folder.name in _COPIED_FIRST or not folder.is_folder:
            continue
        # The newest first: the oldest of what `alerts` keeps there go meanwhile, and it does without them.
        for entry in reversed(files.entries(folder.uri)):
            if files.exists(entry.uri):
                files.copy(entry.uri, f"{copy}/{folder.name}/{entry.name}")
    files.write(f"{copy}/{_WHOLE}", f"batch {batch}\n")


def _drop(files: Files, place: str, kept: int) -> None:
    """Removes copies that were cut off, and of the others all but the newest."""
    there = [entry for entry in files.entries(place) if entry.is_folder]
    whole = [entry for entry in there if files.exists(f"{entry.uri}/{_WHOLE}")]
    for entry in there:
        if entry not in whole[-kept:]:
            files.delete(entry.uri)
