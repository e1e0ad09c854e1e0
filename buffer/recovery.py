"""Salvage from a damaged file: what SQLite still reads of it is kept, the rest is announced.

The damaged file and its log are renamed to ``<file>.salvage-<when>-<floor>-<last>-<certainty>`` and a new
file replaces them at once. The records of blocks whose checksums are right are then stored again, as the
newest, a few blocks at each ``peek``; a crash restarts that, and some come twice. When it is done the name
becomes ``<file>.damaged-…``, for people to examine.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import quote

from buffer import tables
from buffer.blocks import Block, DamagedBlockError
from buffer.drops import CORRUPT, Drop
from buffer.files import move_database
from buffer.numbering import NumberRanges
from buffer.sqlite_errors import FAULTS, is_damage
from buffer.zstd_dictionaries import ZstdDictionaries

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


def pending(path: Path) -> list[Path]:
    """Files set aside and not yet salvaged, oldest first."""
    found = path.parent.glob(f"{path.name}{_SALVAGE}*")
    return sorted(file for file in found if file.name.endswith((_KNOWN, _AT_MOST)))


class Salvage:
    """One damaged file being read; ``stored`` is how many records it had, None where that is unknown."""

    def __init__(self, source: Path, stored: int | None = None) -> None:
        self.source = source
        *_, floor, last, certainty = source.name.split("-")
        self._floor, self.last, self._last_is_known = int(floor), int(last), certainty == _KNOWN
        self._stored = stored
        self.begin()

    def begin(self) -> None:
        """Read from the start: what was stored again until now is lost, or in doubt."""
        self._found = NumberRanges()
        self._drops: list[Drop] = []
        # The blocks between these are still to be read.
        self._above, self._below = 0, 1 << 63
        self._blocks = self._sound_blocks()
        self._next: tuple[Block, list[bytes]] | None = None

    def step(self, store: Callable[[Block, list[bytes]], None]) -> bool:
        """Store one more block's records again; False where there is none left.

        Raises sqlite3.Error where the disk can't be read now, and what ``store`` raises (that block is stored
        the next time).
        """
        try:
            self._next = self._next or next(self._blocks, None)
        except sqlite3.Error:
            self._blocks = self._sound_blocks()
            raise
        if self._next is None:
            return False
        store(*self._next)
        self._next = None
        return True

    def finish(self, on_drop: Callable[[Drop], None]) -> None:
        """Report what is missing and give the file its final name."""
        missing = list(self._found.missing(self._floor, self.last))
        lost = sum(end - begin + 1 for begin, end in missing)
        if self._stored is not None:
            stored = self._stored - sum(end - begin + 1 for begin, end in self._found)
            if stored < lost:
                # Others of these numbers were removed or dropped before.
                missing = [(missing[0][0], missing[-1][1])] if stored > 0 else []
                lost = stored
        for drop in self._drops:
            on_drop(drop)
        for begin, end in missing:
            count = lost if len(missing) == 1 else end - begin + 1
            is_known = self._last_is_known or end < self.last
            on_drop(Drop(CORRUPT, begin, end, count if is_known else None, b""))
        move_database(self.source, Path(str(self.source).replace(_SALVAGE, _DAMAGED)))

    def _sound_blocks(self) -> Iterator[tuple[Block, list[bytes]]]:
        dictionaries = ZstdDictionaries()
        # Read-only: closing it as the last reader must not move the log into the damaged file.
        with contextlib.closing(
            sqlite3.connect(f"file:{quote(str(self.source))}?mode=ro", uri=True, check_same_thread=False)
        ) as connection:
            connection.text_factory = tables.damaged_text
            for block in self._readable_blocks(connection):
                dictionary = None
                with _damage_suppressed():
                    dictionary = dictionaries.find(connection, block.dictionary)
                try:
                    yield block, block.records(dictionary)
                except DamagedBlockError:
                    self._drops.append(Drop(CORRUPT, block.first, block.last, block.count, block.summary))
                self._found.add(block.first, block.last)

    def _readable_blocks(self, connection: sqlite3.Connection) -> Iterator[Block]:
        """Those with sound heads, from the oldest on up to damage, then from the newest down to it."""
        try:
            for block in tables.blocks_after(connection, self._above):
                if self._is_next(block):
                    yield block
                    self._above = block.first
        except FAULTS as error:
            if not is_damage(error):
                raise
            with _damage_suppressed():
                for block in tables.blocks_down_to(connection, self._above):
                    if self._is_next(block):
                        yield block
                        self._below = block.first

    def _is_next(self, block: Block) -> bool:
        """Whether a block is sound and wasn't read yet: a damaged tree may show one twice."""
        return self._above < block.first < self._below and block.head_is_sound()


@contextlib.contextmanager
def _damage_suppressed() -> Iterator[None]:
    try:
        yield
    except FAULTS as error:
        if not is_damage(error):
            raise
