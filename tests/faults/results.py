"""The tables in docs/results/{faults,pipeline-faults}.md: a row a case, with date and commit."""

from __future__ import annotations

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


def _head(columns: Sequence[str]) -> tuple[str, str]:
    return f"| case | date | commit | {' | '.join(columns)} | more |", (
        "|---|---|---|" + "---:|" * len(columns) + "---|"
    )


class Results:
    """The rows of a file, kept in the order in which cases first passed; all else in the file stays."""

    def __init__(self, path: Path, columns: Sequence[str] = _COLUMNS) -> None:
        self._path = path
        self._columns = columns
        head, rule = _head(columns)
        self.commit = source_commit(path.parent.parent)
        lines = path.read_text().splitlines() if path.exists() else ["# Faults", "", head, rule]
        at = lines.index(rule) + 1
        end = next((n for n in range(at, len(lines)) if not lines[n].startswith("|")), len(lines))
        self._before, self._after = lines[:at], lines[end:]
        self._rows = {line.split("|")[1].strip(): line for line in lines[at:end]}

    def has(self, case: str) -> bool:
        """Whether a case has passed with exactly these sources."""
        row = self._rows.get(case)
        return row is not None and row.split("|")[3].strip() == self.commit and "+" not in self.commit

    def add(self, case: str, figures: Mapping[str, object]) -> None:
        """Note that a case has passed, and write the file."""
        cells = [str(figures.get(column, "")) for column in self._columns]
        more = ", ".join(f"{name} {value}" for name, value in figures.items() if name not in self._columns)
        date = datetime.now(UTC).date().isoformat()
        self._rows[case] = f"| {case} | {date} | {self.commit} | {' | '.join(cells)} | {more} |"
        self._path.write_text("\n".join([*self._before, *self._rows.values(), *self._after]) + "\n")


def source_commit(root: Path) -> str:
    """The last commit that changed anything but the notes; with a plus where sources are changed since."""
    sources = ("--", ".", ":!docs", ":!*.md")

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments, *sources], cwd=root, capture_output=True, text=True, check=True
        ).stdout.strip()

    return git("log", "-1", "--format=%h") + ("+" if git("status", "--porcelain") else "")
