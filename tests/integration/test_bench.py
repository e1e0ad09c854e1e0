"""``make bench`` in small: both benches run, and the page has their tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.bench import grid, peers
from tests.bench.page import RESULTS

SMALL = {
    "peers": (peers.main, ("--rounds", "1", "--count", "500", "--seconds", "0.2", "--loss", "1500")),
    "grid": (grid.main, ("--seconds", "0.2", "--topics", "2", "--sizes", "100", "5000")),
}


@pytest.mark.system
@pytest.mark.parametrize("name", SMALL)
def test_a_bench_in_small(name: str, tmp_path: Path, full: bool) -> None:
    if not full:
        pytest.skip("only with --full: minutes of loads and outages; the page has a test of its own")
    results = tmp_path / "results"
    results.mkdir()
    page = {"peers": RESULTS.parent / "performance.md", "grid": RESULTS / "grid.md"}[name]
    written = tmp_path / page.relative_to(RESULTS.parent)
    written.write_text(page.read_text())
    main: Callable[[Sequence[str]], None]
    main, arguments = SMALL[name]
    main([*arguments, "--results", str(results)])
    shared, *rows = (json.loads(line) for line in (results / f"{name}.jsonl").read_text().splitlines())
    assert shared["rounds"] == 1
    assert [row for row in rows if "failed" in row] == []
    if name == "grid":
        assert [row["missing"] for row in rows] == [0] * 6
    else:
        # A Mosquitto without a disk loses what it acknowledged before a bridge is back.
        lost = [row for row in rows if row.get("missing") and row["what"] != "Mosquitto killed"]
        assert lost == []
    assert f"<!-- results: {name} -->\n\nNot measured" not in written.read_text()
