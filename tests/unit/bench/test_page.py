"""The measured parts of docs/performance.md and docs/results/grid.md are what the committed results give."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.bench.page import RESULTS, rendered

PEERS: dict[str, Any] = {"absent": ["telegraf"], "size": 200, "count": 1_000, "loss": 2_000, "loss_rate": 500}
GRID: dict[str, Any] = {"rate_per_topic": 200, "seconds": 5.0}
SHARED = {"date": "2026-11-23", "commit": "abc", "cores": 2, "load_before": 0.1, "rounds": 3}


def test_the_committed_pages_and_picture_are_what_the_committed_results_give() -> None:
    assert {path.name for path in rendered(RESULTS)} == {"performance.md", "grid.md", "grid.svg"}
    assert {path: path.read_text(encoding="utf-8") for path in rendered(RESULTS)} == rendered(RESULTS)


def page_of(directory: Path, name: str, shared: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """The page's only block, between two lines that stay."""
    results = directory / "results"
    results.mkdir()
    page = directory / "performance.md"
    page.write_text(f"before\n<!-- results: {name} -->\nold\n<!-- end -->\nafter\n")
    (results / f"{name}.jsonl").write_text("\n".join(json.dumps(row) for row in (SHARED | shared, *rows)))
    files = rendered(results)
    assert set(files) == ({page} if name == "peers" else {page, results / "grid.svg"})
    assert "old" not in files[page]
    assert files[page].startswith("before\n")
    assert files[page].endswith("after\n")
    return files[page]


def test_peers_are_medians_over_rounds_and_ratios_within_a_round(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = []
    for number, (paho, gateway, missing) in enumerate(((40e3, 20e3, 0), (50e3, 40e3, 7), (10e3, 9e3, 0))):
        came = {"round": number, "name": "gateway", "missing": 0, "twice": 2}
        rows += [
            {"round": number, "what": "drain", "name": "paho", "rate": paho, "cpu_us": 20.0},
            {"round": number, "what": "drain", "name": "hand-written", "failed": "ended with 1"},
            came | {"what": "drain", "rate": gateway, "cpu_us": 30.0},
            came | {"what": "1,000/s", "fetch_p50": 4.0 + number, "fetch_p99": 9.0, "bridge_us": 140.0},
            came | {"what": "Kafka down", "missing": missing, "rss_mib": 70.0},
        ]
    page = page_of(tmp_path, "peers", PEERS, rows)
    assert "Without telegraf: no such program there." in page
    assert "| **this gateway** | 20,000 | 0.8 | 30 | 1.5 |  |  |  | 0 (2) |" in page
    assert "| **this gateway** | 5 / 9 | 140 |" in page
    assert "| **this gateway** | 0 (2), 7 (2), 0 (2) | 70 |" in page
    assert "forty" not in page


def test_the_grid_counts_the_cells_below_the_thesis(tmp_path: Path) -> None:
    def cell(path: str, partitions: object, payload: int, fetch_ms: float) -> dict[str, Any]:
        fetch = {f"fetch_{what}": fetch_ms for what in ("mean", "p50", "p95", "p99")}
        produce = {f"produce_{what}": 1.5 for what in ("mean", "p50", "p95", "p99")}
        place = {"path": path, "topics": 1, "partitions": partitions, "payload_bytes": payload}
        more = {
            "bridge_percent": 4.0,
            "cpu_percent": 6.0,
            "all_percent": 14.0,
            "bytes_per_s": 205_000.0,
            "missing": 0,
        }
        return place | produce | fetch | more

    rows = [cell("mqtt+kafka", 1, 100, 11.43), cell("mqtt+kafka", 1, 1000, 25.0), cell("mqtt", "", 100, 0.5)]
    page = page_of(tmp_path, "grid", GRID, rows)
    assert (
        "| Kafka, 1 partition | 2 of 2 | 2 of 2 | 2 of 2 | 1 of 2 | 1 of 2 | 1 of 2 | 2 of 2 | 1 of 2 |"
        in page
    )
    assert (
        "| Mosquitto alone | 1 of 1 | 1 of 1 | 1 of 1 | 1 of 1 | 1 of 1 | 1 of 1 | 0 of 1 | 0 of 1 |" in page
    )
    assert "| Kafka, 1 partition, topics: 1 | 11.4 / 11.4 (11.4) | 25 / 25 (24.8) |" in page
    assert "As fast as it goes: 205 to 205 kB/s, at least 2 of the thesis' throughput" in page
