"""Salvage from a damaged file.

The damaged file and its log are renamed to ``<file>.salvage-<when>-<floor>-<last>-<certainty>`` and a new
file replaces them at once. Blocks whose checksums are right are then copied, a few at each ``peek``; a crash
restarts the copying. When it is done the name becomes ``<file>.damaged-…``, for people to examine.
"""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import quote

from buffer import tables
from buffer.blocks import Block, DamagedBlockError, Dictionary
from buffer.drops import CORRUPT, Drop
from buffer.errors import OutboxError
from buffer.files import move_database
from buffer.numbering import NumberRanges
from buffer.sqlite_errors import is_damage, translated

_SALVAGE: Final = ".salvage-"
_DAMAGED: Final = ".damaged-"
_STEP_S: Final = 0.2
_KNOWN, _AT_MOST = "known", "atmost"
# Offsets in SQLite's first page (https://www.sqlite.org/fileformat.html, 1.3).
_CHANGES_AT, _PAGES_AT, _FREE_LIST_AT, _VALID_FOR_AT = 24, 28, 32, 92


def damaged_name(path: Path, what: str) -> Path:
    """A new name beside an outbox for damaged bytes of it, kept for people to examine."""
    return path.with_name(f"{path.name}{_DAMAGED}{_stamp()}-{what}")


def _stamp() -> str:
    return datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")


def set_aside(path: Path, floor: int, last: int, *, last_is_known: bool) -> Path:
    """Rename a damaged file for salvage; records ``floor`` to ``last`` may have been in it."""
    certainty = _KNOWN if last_is_known else _AT_MOST
    target = path.with_name(f"{path.name}{_SALVAGE}{_stamp()}-{floor}-{last}-{certainty}")
    move_database(path, target)
    # A file that has vanished gets the name, too: the loss of its records is still to be reported.
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
    records that were removed or dropped before the damage.
    """

    def __init__(
        self, source: Path, first_page: bytes, spare: Dictionary | None, gone: Iterable[tuple[int, int]]
    ) -> None:
        self.source = source
        *_, floor, last, certainty = source.name.split("-")
        self._floor, self._last, self._last_is_known = int(floor), int(last), certainty == _KNOWN
        self._first_page = first_page
        self.dictionaries: dict[int, Dictionary] = {} if spare is None else {spare.number: spare}
        # Not to be reported as lost.
        self._accounted = NumberRanges()
        for begin, end in gone:
            self._accounted.add(begin, end)
        self._drops: list[Drop] = []

    def blocks(self) -> Generator[Block, None, None]:
        """The sound blocks; ``dictionaries`` holds what they need when the first one comes."""
        found = False
        for attempt in (self._read, self._read_with_new_first_page):
            with _damage_suppressed():
                for block in attempt():
                    found = True
                    yield from self._checked(block)
            if found:
                return

    def finish(self, on_drop: Callable[[Drop], None]) -> None:
        """Report what is missing and give the file its final name."""
        target = self.source.with_name(self.source.name.replace(_SALVAGE, _DAMAGED))
        Path(f"{self.source}-shm").unlink(missing_ok=True)
        for drop in (*self._drops, *self._gaps()):
            on_drop(drop)
        move_database(self.source, target)

    def _checked(self, block: Block) -> Iterator[Block]:
        try:
            block.records(self.dictionaries.get(block.dictionary))
        except DamagedBlockError as error:
            if error.head_is_sound:
                self._drops.append(Drop(CORRUPT, block.first, block.last, block.count, block.summary))
                self._accounted.add(block.first, block.last)
            return
        self._accounted.add(block.first, block.last)
        yield block

    def _gaps(self) -> Iterator[Drop]:
        for first, last in self._accounted.missing(self._floor, self._last):
            known = self._last_is_known or last < self._last
            yield Drop(CORRUPT, first, last, last - first + 1 if known else None, b"")

    def _read(self) -> Iterator[Block]:
        # Read-only: closing it as the last reader must not move the log into the damaged file.
        with contextlib.closing(
            sqlite3.connect(f"file:{quote(str(self.source))}?mode=ro", uri=True, check_same_thread=False)
        ) as connection:
            connection.text_factory = tables.damaged_text
            if "blocks" not in tables.names(connection):
                return
            for newest_first in (False, True):
                with _damage_suppressed():
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
                # From the other end up to the damage.
                with _damage_suppressed():
                    yield from tables.blocks_down_to(connection, reached)

    def _read_with_new_first_page(self) -> Iterator[Block]:
        """The first page differs only in sizes between files of this version: replace it with a sound one."""
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

    def begin(self, salvage: Salvage) -> None:
        """Copy from one more, unless it is open already."""
        if all(other.source != salvage.source for other, _ in self._open):
            self._open.append((salvage, salvage.blocks()))

    def step(
        self, path: Path, store: Callable[[Block, Dictionary | None], None], on_drop: Callable[[Drop], None]
    ) -> None:
        """Copy for ``_STEP_S``; report what is missing from files that are done.

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


@contextlib.contextmanager
def _damage_suppressed() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        if not is_damage(error):
            raise
