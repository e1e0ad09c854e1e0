"""What each target has been sent, in a file: neither a restart nor a repeated record sends it again.

Killed between sending and storing, the process sends that one message once more. One thread uses an object.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from cloud.errors import CloudError

_KEPT_DAYS: Final = 30


class Sent:
    """Raises CloudError where the file can't be used."""

    def __init__(self, path: Path, target: str) -> None:
        self._path, self._target = path, target
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(path, isolation_level=None, timeout=10)
            self._database.execute("PRAGMA synchronous = FULL")
            self._database.execute(
                "CREATE TABLE IF NOT EXISTS sent (target TEXT, id TEXT, state TEXT, at_s INTEGER, "
                "PRIMARY KEY (target, id, state)) WITHOUT ROWID"
            )
        except (sqlite3.Error, OSError) as error:
            raise self._problem(error) from error

    def has(self, alert: str, state: str) -> bool:
        """Whether the target has been sent this alert's state."""
        try:
            found = self._database.execute(
                "SELECT 1 FROM sent WHERE target = ? AND id = ? AND state = ?", (self._target, alert, state)
            )
            return found.fetchone() is not None
        except sqlite3.Error as error:
            raise self._problem(error) from error

    def add(self, alerts: Iterable[tuple[str, str]], now_s: int) -> None:
        """Note alerts, by id and state; durable at its return. Old ones are forgotten."""
        rows = [(self._target, *alert, now_s) for alert in alerts]
        try:
            with self._database:
                self._database.execute("BEGIN IMMEDIATE")
                self._database.executemany("INSERT OR REPLACE INTO sent VALUES (?, ?, ?, ?)", rows)
                self._database.execute("DELETE FROM sent WHERE at_s < ?", (now_s - _KEPT_DAYS * 86_400,))
        except sqlite3.Error as error:
            raise self._problem(error) from error

    def close(self) -> None:
        """End."""
        self._database.close()

    def _problem(self, error: Exception) -> CloudError:
        return CloudError(f"{self._path}: {error}: --state names another place")
