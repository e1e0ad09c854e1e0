"""Which dictionary new blocks of a file are compressed with, and which ones the file has."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from buffer import blocks, tables
from buffer.blocks import Dictionary


class ZstdDictionaries:
    """The dictionaries of one open file; ``in_file`` are those known to be on the disk, by number."""

    def __init__(self) -> None:
        self._current: Dictionary | None = None
        # What came before there was one, each record once: where storing failed they come again.
        self._seen: dict[bytes, None] = {}
        self.in_file: dict[int, Dictionary] = {}

    def for_append(self, connection: sqlite3.Connection, records: Sequence[bytes]) -> Dictionary | None:
        """The dictionary for records: the file's newest, or one learned from them and those before them."""
        if self._current is None:
            self._current = tables.newest_dictionary(connection)
            if self._current is not None:
                self.in_file[self._current.number] = self._current
            else:
                self._seen.update(dict.fromkeys(records))
                self._current = blocks.learn(self._seen)
            if self._current is not None:
                self._seen.clear()
        return self._current

    def find(self, connection: sqlite3.Connection, number: int) -> Dictionary | None:
        """The dictionary with a number; None for 0, and where it is damaged."""
        if number and number not in self.in_file:
            found = tables.dictionary(connection, number)
            if found is None:
                return None
            self.in_file[number] = found
        return self.in_file.get(number)
