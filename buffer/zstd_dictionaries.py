"""Which dictionary the blocks of a file are compressed with, and how many copies the file has."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

from buffer import blocks, tables
from buffer.blocks import Dictionary

_COPIES_AFTER: Final = frozenset({1, 64, 512, 4096, 32768})
"""After so many blocks another copy is stored. The second comes at once: else a byte flipped in the only copy
of a young file would cost all its blocks. The later ones lie far from it."""


class ZstdDictionaries:
    """The dictionaries of the open file."""

    def __init__(self) -> None:
        self._current: Dictionary | None = None
        self._in_file: dict[int, Dictionary] = {}
        self._blocks = 0

    def for_append(
        self, connection: sqlite3.Connection, records: Sequence[bytes]
    ) -> tuple[Dictionary | None, bool]:
        """The dictionary for records, and whether a copy of it must be stored with them."""
        if self._current is None:
            known = next(tables.dictionaries(connection, newest_first=True), None)
            if known is None:
                learned = blocks.learn(records)
                return learned, learned is not None
            return known, False
        return self._current, self._blocks in _COPIES_AFTER

    def appended(self, dictionary: Dictionary | None) -> None:
        """Note that a block compressed with it is on the disk."""
        self._current = dictionary
        self._blocks += 1
        if dictionary is not None:
            self._in_file[dictionary.number] = dictionary

    def has(self, dictionary: Dictionary) -> bool:
        """Whether the file is known to have a copy."""
        return dictionary.number in self._in_file

    def stored(self, dictionary: Dictionary) -> None:
        """Note that a copy is on the disk."""
        self._in_file[dictionary.number] = dictionary

    def find(self, connection: sqlite3.Connection, number: int) -> Dictionary | None:
        """The dictionary with a number; None for 0, and where no copy is sound."""
        if number and number not in self._in_file:
            for dictionary in tables.dictionaries(connection):
                self._in_file.setdefault(dictionary.number, dictionary)
        return self._in_file.get(number)

    def forget(self) -> Dictionary | None:
        """The file is another one, or emptied, and has none; returns the one last used."""
        current, self._current = self._current, None
        self._in_file.clear()
        self._blocks = 0
        return current
