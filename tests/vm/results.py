"""The table in docs/results/power-cuts.md: a row a cut, with date and commit of the code that was hurt."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tests.faults.results import source_commit
from tests.vm.guest_mast import Cut

_RULE: Final = "|---|---|---|---:|---|" + "---:|" * 11


class CutTable:
    """Rows by the name of the cut, ``series.number``; all else in the file stays."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.commit = source_commit(path.parent.parent)
        lines = path.read_text().splitlines()
        at = lines.index(_RULE) + 1
        end = next((n for n in range(at, len(lines)) if not lines[n].startswith("|")), len(lines))
        self._before, self._after = lines[:at], lines[end:]
        self._rows = {line.split("|")[1].strip(): line for line in lines[at:end]}

    def has(self, series: int, cuts: int) -> bool:
        """Whether all cuts of a series have passed with exactly these sources."""
        rows = [self._rows.get(f"{series}.{number}", "||||") for number in range(1, cuts + 1)]
        return "+" not in self.commit and all(row.split("|")[3].strip() == self.commit for row in rows)

    def add(self, series: int, seed: int, rows: list[tuple[Cut, list[object]]]) -> None:
        """Note a series that has passed, and write the file."""
        date = datetime.now(UTC).date().isoformat()
        for number, (cut, figures) in enumerate(rows, 1):
            cells = [f"{series}.{number}", date, self.commit, seed, cut.phase, *figures]
            self._rows[f"{series}.{number}"] = f"| {' | '.join(map(str, cells))} |"
        ordered = sorted(self._rows.items(), key=lambda row: [int(part) for part in row[0].split(".")])
        self._path.write_text("\n".join([*self._before, *(line for _, line in ordered), *self._after]) + "\n")
