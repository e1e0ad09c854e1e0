"""docs/results/power-cuts.csv: a row a cut, with date and commit of the code that was hurt."""

from __future__ import annotations

import csv
from datetime import UTC, datetime
from pathlib import Path

from tests.faults.results import source_commit
from tests.vm.guest_mast import Cut


class CutTable:
    """Rows by the name of the cut, ``series.number``."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.commit = source_commit(path.parent.parent)
        with path.open(newline="") as file:
            self._head, *rows = csv.reader(file)
        self._rows = {row[0]: row for row in rows}

    def has(self, series: int, cuts: int) -> bool:
        """Whether all cuts of a series have passed with exactly these sources."""
        rows = [self._rows.get(f"{series}.{number}") for number in range(1, cuts + 1)]
        return "+" not in self.commit and all(row is not None and row[2] == self.commit for row in rows)

    def add(self, series: int, seed: int, rows: list[tuple[Cut, list[object]]]) -> None:
        """Note a series that has passed, and write the file."""
        date = datetime.now(UTC).date().isoformat()
        for number, (cut, figures) in enumerate(rows, 1):
            cells = [f"{series}.{number}", date, self.commit, seed, cut.phase, *figures]
            self._rows[f"{series}.{number}"] = [str(cell) for cell in cells]
        ordered = sorted(self._rows.values(), key=lambda row: [int(part) for part in row[0].split(".")])
        with self._path.open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([self._head, *ordered])
