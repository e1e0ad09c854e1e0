"""Rows of docs/results name the commit of what they are about."""

from __future__ import annotations

from pathlib import Path

from tests.faults.results import source_commit

ROOT = Path(__file__).parents[2]


def test_a_rows_commit_is_that_of_the_sources_whichever_folder_is_given() -> None:
    assert source_commit(ROOT / "docs" / "results") == source_commit(ROOT)
