"""The table in docs/results/pipeline-results.md: a row a case, with the date and the commit."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tests.faults.results import source_commit

RESULTS: Final = Path(__file__).resolve().parents[2] / "docs" / "results" / "pipeline-results.md"
_HEAD: Final = "| case | date | commit | figures |"
_RULE: Final = "|---|---|---|---|"


def note(case: str, figures: Mapping[str, object], path: Path = RESULTS) -> None:
    """Adds the row of a case that has passed, in the place of its older one."""
    intro = "Full versions of the pipeline's tests, the last time each passed."
    lines = (
        path.read_text().splitlines()
        if path.exists()
        else ["# Pipeline results", "", intro, "", _HEAD, _RULE]
    )
    commit = source_commit(path.parent.parent)
    shown = ", ".join(f"{name} {value}" for name, value in figures.items())
    row = f"| {case} | {datetime.now(UTC).date().isoformat()} | {commit} | {shown} |"
    at = next((n for n, line in enumerate(lines) if line.startswith(f"| {case} |")), None)
    if at is not None:
        lines[at] = row
    else:
        begin = lines.index(_RULE) + 1
        end = next((n for n in range(begin, len(lines)) if not lines[n].startswith("|")), len(lines))
        lines.insert(end, row)
    path.write_text("\n".join(lines) + "\n")
