"""The commands a gateway has begun, on its disk, so that none is begun twice, whenever it is killed.

A command is durable here before anything is done, together with the place in Kafka where reading continues.
An id is kept until it has expired and its result has left; what expires no later than the last one that was
deleted counts as expired whatever the clock says. One that was refused because it expires too far ahead goes
with its result: it would stay for ever. Not to be deleted while commands may be valid.

Owned by one thread. Every method raises HistoryError.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cloud.kafka.key_reader import Place
from cloud.wire.command_records import LONGEST_US

MOST: Final = 10_000
"""Ids at most, some 5 MB; a command beyond is refused until others have expired."""
FARTHEST_US: Final = LONGEST_US + 600_000_000
"""No command expires later than so long from now: a day, and ten minutes between two clocks."""

_NEVER_US: Final = (1 << 63) - 1
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS command (
    id TEXT PRIMARY KEY, expires_us INTEGER NOT NULL, record BLOB NOT NULL, result BLOB,
    left INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS position (
    one INTEGER PRIMARY KEY CHECK (one = 1), partition INTEGER, next INTEGER, time_ms INTEGER NOT NULL,
    deleted_us INTEGER NOT NULL DEFAULT 0
);
"""


class HistoryError(Exception):
    """The file can't be used: no command is executed."""


@dataclass(frozen=True, slots=True)
class Begun:
    """Whether a command is new, and else its result, None where there was no room for it."""

    new: bool
    result: bytes | None = None


class History:
    """The file. ``now_ms``: where reading begins the first time, 0 for the topic's end."""

    def __init__(self, path: Path, now_ms: int) -> None:
        with _errors(path):
            self._path = path
            self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            for pragma in ("journal_mode=WAL", "synchronous=FULL", "journal_size_limit=1048576"):
                self._database.execute(f"PRAGMA {pragma}")
            self._database.executescript(_SCHEMA)
            self._database.execute("INSERT OR IGNORE INTO position (one, time_ms) VALUES (1, ?)", (now_ms,))
        self.place = self._place()
        self._skipped = False

    def _place(self) -> Place:
        with _errors(self._path):
            row = self._database.execute("SELECT partition, next, time_ms FROM position").fetchone()
        return Place(*row)

    @property
    def deleted_us(self) -> int:
        """The latest expiry of an id that is no longer here."""
        with _errors(self._path):
            return int(self._database.execute("SELECT deleted_us FROM position").fetchone()[0])

    def unfinished(self) -> list[tuple[str, bytes]]:
        """Id and record of those that were begun and have no result."""
        with _errors(self._path):
            rows = self._database.execute("SELECT id, record FROM command WHERE result IS NULL")
            return list(rows.fetchall())

    def waiting(self) -> list[tuple[str, bytes]]:
        """Id and result of those whose result isn't known to have left."""
        with _errors(self._path):
            rows = self._database.execute("SELECT id, result FROM command WHERE NOT left AND result NOT NULL")
            return list(rows.fetchall())

    def begin(self, name: str, expires_us: int, record: bytes, place: Place, now_us: int) -> Begun:
        """Note that a command is begun, and that reading continues at ``place``; durable at its return.

        ``now_us``: 0 where the time isn't known.
        """
        with _errors(self._path), self._database as database:
            database.execute("BEGIN IMMEDIATE")
            over = "FROM command WHERE left AND expires_us < ?"
            latest = database.execute(f"SELECT max(expires_us) {over}", (now_us,)).fetchone()[0]
            database.execute(
                "UPDATE position SET partition = ?, next = ?, time_ms = ?, deleted_us = max(deleted_us, ?)",
                (*place, latest or 0),
            )
            database.execute(f"DELETE {over}", (now_us,))
            # Only what was refused: the clock may have been set back since another one was carried out.
            database.execute(
                "DELETE FROM command WHERE left AND expires_us > ? "
                "AND json_extract(CAST(result AS TEXT), '$.outcome') = 'refused'",
                # Without the time nothing is known to be far ahead.
                (now_us + FARTHEST_US if now_us else _NEVER_US,),
            )
            known = database.execute("SELECT result FROM command WHERE id = ?", (name,)).fetchone()
            room = database.execute("SELECT count(*) FROM command").fetchone()[0] < MOST
            if known is None and room:
                row = (name, expires_us, record)
                database.execute("INSERT INTO command (id, expires_us, record) VALUES (?, ?, ?)", row)
        self.place = place
        return Begun(known is None and room, known[0] if known else None)

    def pass_over(self, place: Place) -> None:
        """Continue at ``place``, after what isn't for this gateway; stored with the next command."""
        self.place, self._skipped = place, True

    def finish(self, name: str, result: bytes) -> None:
        """Store a command's result."""
        with _errors(self._path):
            self._database.execute("UPDATE command SET result = ? WHERE id = ?", (result, name))

    def note_left(self, names: list[str]) -> None:
        """Note that results are durable elsewhere."""
        with _errors(self._path), self._database as database:
            database.execute("BEGIN IMMEDIATE")
            database.executemany("UPDATE command SET left = 1 WHERE id = ?", [(name,) for name in names])

    def close(self) -> None:
        """Store what was passed over, and close."""
        with _errors(self._path):
            if self._skipped:
                self._database.execute(
                    "UPDATE position SET partition = ?, next = ?, time_ms = ?", tuple(self.place)
                )
            self._database.close()


@contextmanager
def _errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise HistoryError(f"{path}: {error}") from error
