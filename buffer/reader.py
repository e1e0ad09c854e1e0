"""Reads an outbox that another program may be using: short snapshots, no lock, nothing written to it.

Which records of a block that program has removed already is in its memory only: they are read here once more.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final, Self

from buffer import tables
from buffer.blocks import Block, DamagedBlockError
from buffer.errors import OutboxCorrupt, OutboxUnusable, OutboxVersionError
from buffer.files import file_size, translated
from buffer.tables import ZstdDictionaries

_BUSY_TIMEOUT_S: Final = 2.0
_BLOCKS_A_SNAPSHOT: Final = 200
_BYTES_A_SNAPSHOT: Final = 4 << 20
_LONGEST_VALUE: Final = 64 << 20
"""A block's payload is far below it, packed; what it unpacks to is bounded by the block's reader."""
_PAGES_A_STEP: Final = 1_000


@dataclass(frozen=True, slots=True)
class Files:
    """Sizes in bytes; ``aside`` are damaged files lying beside the outbox, by name."""

    database: int
    log: int
    index: int
    ballast: int
    aside: dict[str, int]

    @property
    def total(self) -> int:
        """What counts against the outbox's cap."""
        return self.database + self.log + self.index + self.ballast


def files_of(path: Path) -> Files:
    """The files of an outbox."""
    aside = [*path.parent.glob(f"{path.name}.damaged-*"), *path.parent.glob(f"{path.name}.salvage-*")]
    return Files(
        database=file_size(path),
        log=file_size(Path(f"{path}-wal")),
        index=file_size(Path(f"{path}-shm")),
        ballast=file_size(Path(f"{path}.ballast")),
        aside={file.name: file_size(file) for file in sorted(aside)},
    )


def user_of(path: Path) -> int | None:
    """The process that uses the outbox, by the kernel's list of locks; None where there is none.

    Taking the lock to find out would make a daemon that starts in that moment fail.
    """
    try:
        facts = Path(f"{path}.lock").stat()
        locks = Path("/proc/locks").read_text()
    except OSError:
        return None
    for line in locks.splitlines():
        words = line.split()
        # "1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF" (proc(5)); the inode is enough beside its kind.
        if len(words) >= 6 and words[1] == "FLOCK" and words[5].rpartition(":")[2] == str(facts.st_ino):
            return int(words[4])
    return None


class OutboxReader:
    """One outbox, read only. Raises OutboxUnusable, OutboxVersionError where it can't be read.

    A damaged block is skipped and counted in ``damaged``, at each read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._dictionaries = ZstdDictionaries()
        self._removed: frozenset[int] = frozenset()
        self.damaged = 0
        if not path.is_file():
            raise OutboxUnusable(f"there is no outbox at {path}")
        with translated(path):
            self._connection = sqlite3.connect(
                f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=_BUSY_TIMEOUT_S, isolation_level=None
            )
        try:
            self._check()
        except BaseException:
            self._connection.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def _check(self) -> None:
        with translated(self._path):
            self._connection.text_factory = tables.damaged_text
            (application,) = self._connection.execute("PRAGMA application_id").fetchone()
            (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        if application != tables.APPLICATION_ID:
            raise OutboxUnusable(f"{self._path} is not an outbox")
        if version != tables.SCHEMA_VERSION:
            raise OutboxVersionError(
                f"{self._path} has version {version}, this program reads {tables.SCHEMA_VERSION}; "
                "use the fieldgate that wrote it"
            )
        with translated(self._path):
            # A file may come from anybody: a view in a table's place makes rows without end.
            self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE)
            kinds = self._connection.execute("SELECT DISTINCT type FROM sqlite_schema").fetchall()
        if others := {kind for (kind,) in kinds} - {"table", "index"}:
            raise OutboxUnusable(f"{self._path} has a {sorted(map(str, others))[0]}, which no outbox has")
        with translated(self._path):
            self._removed = frozenset(tables.read_removed(self._connection))

    def database_bytes(self) -> int:
        """Bytes of the database as it stands, whether they are in the file or still in its log."""
        with translated(self._path):
            (pages,) = self._connection.execute("PRAGMA page_count").fetchone()
        return int(pages) * tables.PAGE_BYTES

    def dropped(self) -> int | None:
        """Records dropped for want of room since the file was made; None where that is damaged."""
        with translated(self._path):
            try:
                return tables.read_numbering(self._connection).dropped
            except OutboxCorrupt:
                return None

    def records(self) -> Iterator[tuple[int, bytes]]:
        """All records, oldest first, in several snapshots."""
        for block in self.blocks():
            yield from self.records_of(block)

    def blocks(self, after: int = 0) -> Iterator[Block]:
        """The blocks with sound heads that begin after a record, oldest first.

        Raises OutboxCorrupt where they are out of order.
        """
        while taken := self._snapshot(after):
            for block in taken:
                if block.first <= after:
                    raise OutboxCorrupt(f"{self._path}: blocks are out of order")
                after = block.last if block.count > 0 else block.first
                if block.head_is_sound():
                    yield block
                else:
                    self.damaged += 1

    def records_of(self, block: Block) -> list[tuple[int, bytes]]:
        """A block's records and their numbers, without those removed; none of a damaged one."""
        with translated(self._path):
            dictionary = self._dictionaries.find(self._connection, block.dictionary)
        try:
            records = block.records(dictionary)
        except DamagedBlockError:
            self.damaged += 1
            return []
        numbered = zip(range(block.first, block.last + 1), records, strict=True)
        return [(number, record) for number, record in numbered if number not in self._removed]

    def newest(self) -> Block | None:
        """The newest block, whole."""
        with translated(self._path):
            head = tables.newest_head(self._connection)
            if head is None:
                return None
            with contextlib.closing(tables.blocks_from(self._connection, head.first)) as found:
                return next(found, None)

    def copy_to(self, target: Path, progress: Callable[[int, int], None]) -> None:
        """One snapshot as a file of its own, damaged blocks as they are; ``progress`` is in pages.

        Until it is written the outbox's log can't be given back.
        """
        with (
            translated(target),
            contextlib.closing(sqlite3.connect(target, isolation_level=None)) as copy,
            contextlib.closing(self._connection.cursor()) as snapshot,
        ):
            # Without a transaction of ours the copy would begin again at each commit of the other program.
            snapshot.execute("BEGIN")
            snapshot.execute("SELECT 1 FROM sqlite_schema").fetchall()
            self._connection.backup(
                copy, pages=_PAGES_A_STEP, progress=lambda _, left, total: progress(total - left, total)
            )
            snapshot.execute("ROLLBACK")
            # Else it could be read only where a log can be written beside it.
            copy.execute("PRAGMA journal_mode = DELETE")

    def _snapshot(self, after: int) -> list[Block]:
        """The next blocks, in one short read transaction."""
        taken: list[Block] = []
        size = 0
        with (
            translated(self._path),
            contextlib.closing(tables.blocks_after(self._connection, after)) as found,
        ):
            for block in islice(found, _BLOCKS_A_SNAPSHOT):
                taken.append(block)
                size += block.size_bytes
                if size > _BYTES_A_SNAPSHOT:
                    break
        return taken
