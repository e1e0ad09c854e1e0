"""Salvage from a damaged file: what SQLite still reads of it is kept, the rest is announced.

The damaged file and its log are renamed to ``<file>.salvage-<when>-<floor>-<last>-<certainty>`` and a new
file replaces them at once. Blocks whose checksums are right are then copied, a few at each ``peek``; a crash
restarts the copying. When it is done the name becomes ``<file>.damaged-…``, for people to examine.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import quote

from buffer import tables
from buffer.blocks import Block, DamagedBlockError, Dictionary
from buffer.drops import CORRUPT, Drop
from buffer.files import move_database
from buffer.numbering import NumberRanges
from buffer.sqlite_errors import FAULTS, is_damage

_SALVAGE: Final = ".salvage-"
_DAMAGED: Final = ".damaged-"
_KNOWN, _AT_MOST = "known", "atmost"


def set_aside(path: Path, floor: int, last: int, *, last_is_known: bool) -> Path:
    """Rename a damaged file for salvage; records ``floor`` to ``last`` may have been in it."""
    when = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    certainty = _KNOWN if last_is_known else _AT_MOST
    target = path.with_name(f"{path.name}{_SALVAGE}{when}-{floor}-{last}-{certainty}")
    move_database(path, target)
    # A file that has vanished gets the name, too: the loss of its records is still to be reported.
    target.touch()
    return target


def complete(path: Path, target: Path) -> None:
    """Rename the log of a file that was set aside as ``target``, where a crash came before that."""
    if not path.exists() and not Path(f"{target}-wal").exists():
        move_database(path, target)


def pending(path: Path) -> list[Path]:
    """Files set aside and not yet salvaged, oldest first."""
    found = path.parent.glob(f"{path.name}{_SALVAGE}*")
    return sorted(file for file in found if file.name.endswith((_KNOWN, _AT_MOST)))


def last_of(source: Path) -> int:
    """The last number that a record in a file set aside can have."""
    return int(source.name.split("-")[-2])


class Salvage:
    """One damaged file being copied from.

    ``gone`` are ranges of records removed or dropped before, ``elsewhere`` those that older damaged files
    give back, or report.
    """

    def __init__(
        self, source: Path, gone: Iterable[tuple[int, int]], elsewhere: Iterable[tuple[int, int]]
    ) -> None:
        self.source = source
        self._gone, self._elsewhere = tuple(gone), tuple(elsewhere)
        self.begin()

    def own(self) -> Iterator[tuple[int, int]]:
        """The ranges of records that this file gives back, or reports."""
        return NumberRanges(ranges=self._elsewhere).missing(self._floor, last_of(self.source))

    @property
    def _floor(self) -> int:
        return int(self.source.name.split("-")[-3])

    def begin(self) -> None:
        """Copy from the start: what was copied until now is lost again, or can't be read further."""
        # Not to be reported as lost.
        self._accounted = NumberRanges(ranges=self._gone + self._elsewhere)
        self._dictionaries: dict[int, Dictionary | None] = {0: None}
        self._drops: list[Drop] = []
        self._blocks = self._sound_blocks()
        self._next: Block | None = None

    def step(self, store: Callable[[Block, Dictionary | None], None]) -> bool:
        """Copy one more block; False where there is none left.

        Raises sqlite3.Error where the disk can't be read now (it begins again then), and what ``store``
        raises (that block is stored the next time).
        """
        try:
            self._next = self._next or next(self._blocks, None)
        except sqlite3.Error:
            self.begin()
            raise
        if self._next is None:
            return False
        store(self._next, self._dictionaries[self._next.dictionary])
        self._next = None
        return True

    def finish(self, on_drop: Callable[[Drop], None]) -> list[tuple[int, int]]:
        """Report what is missing and give the file its final name; the ranges that were not copied."""
        last, is_known = last_of(self.source), self.source.name.endswith(_KNOWN)
        drops = list(self._drops)
        for begin, end in self._accounted.missing(self._floor, last):
            count = end - begin + 1 if is_known or end < last else None
            drops.append(Drop(CORRUPT, begin, end, count, b""))
        for drop in drops:
            on_drop(drop)
        move_database(self.source, Path(str(self.source).replace(_SALVAGE, _DAMAGED)))
        return [*self._gone, *((drop.first, drop.last) for drop in drops)]

    def _sound_blocks(self) -> Iterator[Block]:
        # Read-only: closing it as the last reader must not move the log into the damaged file.
        with contextlib.closing(
            sqlite3.connect(f"file:{quote(str(self.source))}?mode=ro", uri=True, check_same_thread=False)
        ) as connection:
            connection.text_factory = tables.damaged_text
            for block in _readable_blocks(connection):
                try:
                    block.records(self._dictionary(connection, block.dictionary))
                except DamagedBlockError as error:
                    if not error.head_is_sound:
                        continue
                    self._drops.append(Drop(CORRUPT, block.first, block.last, block.count, block.summary))
                else:
                    yield block
                self._accounted.add(block.first, block.last)

    def _dictionary(self, connection: sqlite3.Connection, number: int) -> Dictionary | None:
        if number not in self._dictionaries:
            self._dictionaries[number] = None
            with _damage_suppressed():
                self._dictionaries[number] = tables.dictionary(connection, number)
        return self._dictionaries[number]


def _readable_blocks(connection: sqlite3.Connection) -> Iterator[Block]:
    """From the oldest on up to damage, then from the newest down to it."""
    reached = 0
    try:
        for block in tables.blocks_from(connection, 0):
            yield block
            if block.head_is_sound():
                reached = block.first
    except FAULTS as error:
        if not is_damage(error):
            raise
        with _damage_suppressed():
            yield from tables.blocks_down_to(connection, reached)


@contextlib.contextmanager
def _damage_suppressed() -> Iterator[None]:
    try:
        yield
    except FAULTS as error:
        if not is_damage(error):
            raise
