"""Which dictionary the blocks of a file are compressed with, and how often it is stored there."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

from buffer import blocks, tables
from buffer.blocks import Dictionary

_COPIES_AFTER: Final = frozenset({1, 64, 512, 4096, 32768})
"""After so many blocks another copy is stored. The second comes at once: else a byte flipped in the only copy
of a young file would cost all its blocks. The later ones lie far from it."""


class Dictionaries:
    """What is known of the dictionaries of the open file."""

    def __init__(self) -> None:
        self._current: Dictionary | None = None
        self._in_file: dict[int, Dictionary] = {}
        self._blocks = 0

    def for_append(
        self, connection: sqlite3.Connection, records: Sequence[bytes]
    ) -> tuple[Dictionary | None, bool]:
        """What to compress records with, and whether a copy of it is to be stored with them."""
        if self._current is None:
            known = next(tables.dictionaries(connection, newest_first=True), None)
            if known is None:
                learned = blocks.learn(records)
                return learned, learned is not None
            return known, False
        return self._current, self._blocks in _COPIES_AFTER

    def appended(self, dictionary: Dictionary | None) -> None:
        """A block compressed with it is on the disk."""
        self._current = dictionary
        self._blocks += 1
        if dictionary is not None:
            self._in_file[dictionary.number] = dictionary

    def has(self, dictionary: Dictionary) -> bool:
        """Whether the file is known to hold a copy."""
        return dictionary.number in self._in_file

    def stored(self, dictionary: Dictionary) -> None:
        """A copy is on the disk."""
        self._in_file[dictionary.number] = dictionary

    def find(self, connection: sqlite3.Connection, number: int) -> Dictionary | None:
        """The dictionary with a number; None for 0, and where no copy is sound."""
        if number and number not in self._in_file:
            for dictionary in tables.dictionaries(connection):
                self._in_file.setdefault(dictionary.number, dictionary)
        return self._in_file.get(number)

    def forget(self) -> Dictionary | None:
        """Another file, or an emptied one: it holds none. The one last used."""
        current, self._current = self._current, None
        self._in_file.clear()
        self._blocks = 0
        return current
