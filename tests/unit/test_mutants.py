"""Each mutant breaks what is there now, and names a test that is there: otherwise it guards nothing."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
CHECK = ("git", "apply", "--check")
MUTANTS = sorted((PROJECT / "tests" / "mutants").glob("*.patch"))


def test_each_mutant_applies() -> None:
    # Each by itself: two may break the same line.
    refused = [
        each.name
        for each in MUTANTS
        if subprocess.run([*CHECK, each], cwd=PROJECT, capture_output=True, check=False).returncode
    ]
    assert MUTANTS
    assert refused == []


def test_each_mutant_names_a_test() -> None:
    for each in MUTANTS:
        first = each.read_text().partition("\n")[0]
        named = re.fullmatch(r"# fails: (tests/\S+\.py)(?:::(\w+).*)?", first)
        assert named, f"{each.name}: {first}"
        assert (named[2] or "") in (PROJECT / named[1]).read_text(), first
