"""Older and newer files.

Version 1 had a row per record. Its records are copied into a new file beside it, which takes its name when it
is on the disk: at any moment one of the two is whole.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from buffer import tables
from buffer.blocks import Block, Dictionary, learn, make
from buffer.errors import OutboxCorrupt, OutboxUnusable, OutboxVersionError
from buffer.files import sync_directory
from buffer.sqlite_errors import translated
from buffer.tables import Numbering

_BLOCK_RECORDS: Final = 500
_BLOCK_BYTES: Final = 256 << 10


def check_version(path: Path, connection: sqlite3.Connection, version: int) -> None:
    """Refuse a newer file. Raises OutboxVersionError; OutboxCorrupt where the version itself is damaged."""
    if version == tables.SCHEMA_VERSION:
        return
    with contextlib.suppress(sqlite3.Error):
        row = connection.execute("SELECT version FROM numbering").fetchone()
        if row is not None and row[0] == tables.SCHEMA_VERSION:
            raise OutboxCorrupt(f"{path} says version {version} in one place and {row[0]} in another")
    raise OutboxVersionError(
        f"{path} has version {version}, this program knows {tables.SCHEMA_VERSION}: "
        "drain it with the version that wrote it, or upgrade"
    )


def tidy(path: Path) -> None:
    """Remove what a crash during a migration has left."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        with contextlib.suppress(OSError):
            _beside(path).with_name(f"{_beside(path).name}{suffix}").unlink(missing_ok=True)


def to_version_2(path: Path) -> None:
    """Rewrite a file of version 1. Raises an OutboxError, and then the file is as it was."""
    target = _beside(path)
    with (
        translated(path),
        contextlib.closing(sqlite3.connect(path, isolation_level=None)) as old,
        contextlib.closing(sqlite3.connect(target, isolation_level=None)) as new,
    ):
        # Its log goes into the file, so that one rename moves all of it out of the way.
        old.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        row = old.execute("SELECT issued FROM numbering").fetchone()
        newest, count = old.execute("SELECT coalesce(max(number), 0), count(*) FROM records").fetchone()
        if row is None:
            raise OutboxCorrupt(f"{path} has lost its numbering")
        issued = max(newest, row[0])
        tables.create(new, issued)
        new.execute("BEGIN IMMEDIATE")
        dictionary: Dictionary | None = None
        floor = issued + 1
        for block, learned in _blocks(old):
            if learned is not None and dictionary is None:
                dictionary = learned
                tables.add_dictionary(new, dictionary)
            tables.insert(new, block)
            floor = min(floor, block.first)
        holes = newest - floor + 1 - count if count else 0
        tables.write_numbering(new, Numbering(issued, floor, holes, 0))
        new.execute("COMMIT")
    try:
        for suffix in ("-wal", "-shm"):
            Path(f"{path}{suffix}").unlink(missing_ok=True)
        descriptor = os.open(target, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        target.rename(path)
        sync_directory(path.parent)
    except OSError as error:
        raise OutboxUnusable(f"cannot put the new {path} in its place ({error.strerror})") from error


def _blocks(old: sqlite3.Connection) -> Iterator[tuple[Block, Dictionary | None]]:
    first, batch, size = 0, list[bytes](), 0
    dictionary: Dictionary | None = None
    for number, record in old.execute("SELECT number, record FROM records ORDER BY number"):
        full = len(batch) >= _BLOCK_RECORDS or size + len(record) > _BLOCK_BYTES
        if batch and (number != first + len(batch) or full):
            dictionary = dictionary or learn(batch)
            yield make(first, batch, b"", dictionary), dictionary
            batch, size = [], 0
        if not batch:
            first = number
        batch.append(record)
        size += len(record)
    if batch:
        dictionary = dictionary or learn(batch)
        yield make(first, batch, b"", dictionary), dictionary


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.migrating")
