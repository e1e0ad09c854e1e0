"""Files of docs/results: a row a case that has passed, with date and commit."""

from __future__ import annotations

import csv
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

_COLUMNS: Final = (
    "sampled", "in Kafka", "repeats", "replayed", "outbox", "dead letters", "announced", "unaccounted",
)  # fmt: skip
PIPELINE: Final = ("produced", "in readings", "missing", "duplicates")
"""Columns of what the jobs go through."""


class Results:
    """The rows of a file, kept in the order in which cases first passed."""

    def __init__(self, path: Path, columns: Sequence[str] = _COLUMNS) -> None:
        self._path = path
        self._columns = columns
        self.commit = source_commit(path.parent.parent)
        self._rows = self._read()

    def has(self, case: str) -> bool:
        """Whether a case has passed with exactly these sources."""
        row = self._rows.get(case)
        return row is not None and row["commit"] == self.commit and "+" not in self.commit

    def add(self, case: str, figures: Mapping[str, object]) -> None:
        """Note that a case has passed, and write the file."""
        columns = {column: str(figures.get(column, "")) for column in self._columns}
        more = ", ".join(f"{name} {value}" for name, value in figures.items() if name not in self._columns)
        date = datetime.now(UTC).date().isoformat()
        # Tests beside each other write one file.
        self._rows = self._read()
        self._rows[case] = {"case": case, "date": date, "commit": self.commit, **columns, "more": more}
        with self._path.open("w", newline="") as file:
            writer = csv.DictWriter(file, self._rows[case], lineterminator="\n")
            writer.writeheader()
            writer.writerows(self._rows.values())

    def _read(self) -> dict[str, dict[str, str]]:
        with self._path.open(newline="") as file:
            return {row["case"]: row for row in csv.DictReader(file)}


def source_commit(root: Path) -> str:
    """The last commit that changed anything but the notes; with a plus where sources are changed since."""
    # From the top, wherever ``root`` is.
    sources = ("--", ":/", ":(top,exclude)docs", ":(top,exclude)*.md")

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments, *sources], cwd=root, capture_output=True, text=True, check=True
        ).stdout.strip()

    return git("log", "-1", "--format=%h") + ("+" if git("status", "--porcelain") else "")
