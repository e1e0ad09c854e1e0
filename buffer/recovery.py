"""What can be saved from a damaged file.

The damaged file and its log are renamed to ``<file>.salvage-<when>-<floor>-<last>-<certainty>`` and a fresh
file takes their place at once: nothing waits. Blocks whose checksums are right are then copied, a few at each
asking for records. When that is done the name becomes ``<file>.damaged-…``; it stays for people to see. A
crash between the two names begins the copying again: what is delivered twice has one identity.
"""

# ruff: noqa: S608 - column lists and directions are constants of this package, values are bound.
from __future__ import annotations

import contextlib
import itertools
import sqlite3
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import quote

from buffer import tables
from buffer.blocks import Block, DamagedBlockError, Dictionary, make
from buffer.drops import CORRUPT, Drop
from buffer.errors import OutboxError
from buffer.files import move_database
from buffer.sqlite_errors import is_damage, translated

_SALVAGE: Final = ".salvage-"
_DAMAGED: Final = ".damaged-"
_STEP_S: Final = 0.2
_KNOWN, _AT_MOST = "known", "atmost"
# Offsets in SQLite's first page (https://www.sqlite.org/fileformat.html, 1.3).
_CHANGES_AT, _PAGES_AT, _FREE_LIST_AT, _VALID_FOR_AT = 24, 28, 32, 92


def damaged_name(path: Path, what: str) -> Path:
    """A new name beside an outbox for some of its bytes that are damaged: kept for people to see."""
    return path.with_name(f"{path.name}{_DAMAGED}{_stamp()}-{what}")


def _stamp() -> str:
    return datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")


def set_aside(path: Path, floor: int, last: int, *, last_is_known: bool) -> Path:
    """Rename a damaged file to be salvaged; records ``floor`` to ``last`` may have been in it."""
    certainty = _KNOWN if last_is_known else _AT_MOST
    target = path.with_name(f"{path.name}{_SALVAGE}{_stamp()}-{floor}-{last}-{certainty}")
    move_database(path, target)
    # A file that has vanished leaves a name behind, too: what was in it is still to be announced.
    target.touch()
    return target


def pending(path: Path) -> list[Path]:
    """Files set aside and not yet salvaged, oldest first."""
    prefix = f"{path.name}{_SALVAGE}"
    found = sorted(file for file in path.parent.iterdir() if file.name.startswith(prefix))
    for log in found:
        if log.name.endswith("-wal") and log.with_name(log.name.removesuffix("-wal")) not in found:
            # A crash came between the renaming of the log and that of its database.
            with contextlib.suppress(FileNotFoundError):
                path.rename(log.with_name(log.name.removesuffix("-wal")))
    return sorted(
        file
        for file in path.parent.iterdir()
        if file.name.startswith(prefix) and file.name.endswith((_KNOWN, _AT_MOST))
    )


class Salvage:
    """One damaged file being copied.

    ``first_page`` is of a sound file, ``spare`` a dictionary that may have been lost, ``gone`` the ranges of
    records that were in the file once and are missed by nobody.
    """

    def __init__(
        self,
        source: Path,
        first_page: bytes,
        spare: Dictionary | None,
        gone: Sequence[tuple[int, int]],
    ) -> None:
        self.source = source
        *_, floor, last, certainty = source.name.split("-")
        self._floor, self._last, self._last_is_known = int(floor), int(last), certainty == _KNOWN
        self._first_page = first_page
        self.dictionaries: dict[int, Dictionary] = {} if spare is None else {spare.number: spare}
        # Removed or dropped before: not to be announced as lost.
        self._accounted = list(gone)
        self._drops: list[Drop] = []

    def blocks(self) -> Generator[Block, None, None]:
        """The sound blocks; ``dictionaries`` holds what they need when the first one comes."""
        found = False
        for attempt in (self._read, self._read_with_new_first_page):
            try:
                for block in attempt():
                    found = True
                    yield from self._judged(block)
            except sqlite3.Error as error:
                if not is_damage(error):
                    raise
            if found:
                return

    def finish(self, on_drop: Callable[[Drop], None]) -> None:
        """Announce what is missing and give the file its last name."""
        target = self.source.with_name(self.source.name.replace(_SALVAGE, _DAMAGED))
        Path(f"{self.source}-shm").unlink(missing_ok=True)
        for drop in (*self._drops, *self._gaps()):
            on_drop(drop)
        move_database(self.source, target)

    def _judged(self, block: Block) -> Iterator[Block]:
        try:
            block.records(self.dictionaries.get(block.dictionary))
        except DamagedBlockError as error:
            if error.head_is_sound:
                self._drops.append(Drop(CORRUPT, block.first, block.last, block.count, block.summary))
                self._account(block)
            return
        self._account(block)
        yield block

    def _account(self, block: Block) -> None:
        first, last = self._accounted[-1] if self._accounted else (0, -1)
        if last + 1 == block.first:
            self._accounted[-1] = (first, block.last)
        elif block.last + 1 == first:
            self._accounted[-1] = (block.first, last)
        else:
            self._accounted.append((block.first, block.last))

    def _gaps(self) -> Iterator[Drop]:
        after = self._floor
        for first, last in sorted(self._accounted):
            if first > after:
                yield Drop(CORRUPT, after, first - 1, first - after, b"")
            after = max(after, last + 1)
        if after <= self._last:
            count = self._last - after + 1 if self._last_is_known else None
            yield Drop(CORRUPT, after, self._last, count, b"")

    def _read(self) -> Iterator[Block]:
        # Read-only: closing it as the last reader must not move the log into a file kept as evidence.
        with contextlib.closing(
            sqlite3.connect(f"file:{quote(str(self.source))}?mode=ro", uri=True, check_same_thread=False)
        ) as connection:
            connection.text_factory = tables.damaged_text
            found = tables.names(connection)
            if "blocks" in found:
                for newest_first in (False, True):
                    with _DamageSuppressed():
                        for dictionary in tables.dictionaries(connection, newest_first=newest_first):
                            self.dictionaries.setdefault(dictionary.number, dictionary)
                reached = 0
                try:
                    for block in tables.blocks_from(connection, 0):
                        yield block
                        if block.head_is_sound():
                            reached = block.first
                except sqlite3.Error as error:
                    if not is_damage(error):
                        raise
                    # From the other end until the damage is met again.
                    with _DamageSuppressed():
                        yield from tables.blocks_down_to(connection, reached)
            elif "records" in found:
                yield from _rows_as_blocks(connection)

    def _read_with_new_first_page(self) -> Iterator[Block]:
        """The first page is the same in every file of this version but for sizes: a sound one will do."""
        with self.source.open("r+b") as file:
            size = file.seek(0, 2)
            if size < 2 * len(self._first_page):
                return
            file.seek(0)
            Path(f"{self.source}.page1").write_bytes(file.read(len(self._first_page)))
            page = bytearray(self._first_page)
            page[_PAGES_AT : _PAGES_AT + 4] = (size // len(page)).to_bytes(4)
            page[_FREE_LIST_AT : _FREE_LIST_AT + 8] = bytes(8)
            page[_VALID_FOR_AT : _VALID_FOR_AT + 4] = page[_CHANGES_AT : _CHANGES_AT + 4]
            file.seek(0)
            file.write(page)
        yield from self._read()


class Salvages:
    """The damaged files being copied from, one after another."""

    def __init__(self) -> None:
        self._open: list[tuple[Salvage, Iterator[Block]]] = []

    def __bool__(self) -> bool:
        return bool(self._open)

    def begin(
        self,
        source: Path,
        first_page: bytes,
        spare: Dictionary | None,
        gone: Sequence[tuple[int, int]],
    ) -> None:
        """Copy from one more, unless it is among them."""
        if all(salvage.source != source for salvage, _ in self._open):
            salvage = Salvage(source, first_page, spare, gone)
            self._open.append((salvage, salvage.blocks()))

    def step(
        self,
        path: Path,
        store: Callable[[Block, Dictionary | None], None],
        on_drop: Callable[[Drop], None],
    ) -> None:
        """Copy for a moment; announce what is missing from those that are done.

        Raises what ``store`` raises; that block is stored the next time.
        """
        until_s = time.monotonic() + _STEP_S
        while self._open and time.monotonic() < until_s:
            salvage, found = self._open[0]
            with translated(path):
                block = next(found, None)
            if block is None:
                salvage.finish(on_drop)
                self._open.pop(0)
                continue
            try:
                store(block, salvage.dictionaries.get(block.dictionary))
            except OutboxError:
                self._open[0] = (salvage, itertools.chain([block], found))
                raise


class _DamageSuppressed:
    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        return isinstance(error, sqlite3.Error) and is_damage(error)


def _rows_as_blocks(connection: sqlite3.Connection) -> Iterator[Block]:
    """The records of a file of version 1, which had no checksums."""
    for direction in ("ASC", "DESC"):
        with _DamageSuppressed():
            for number, record in connection.execute(
                f"SELECT number, record FROM records ORDER BY number {direction}"
            ):
                if isinstance(number, int) and isinstance(record, bytes):
                    yield make(number, [record], b"", None)
            return
