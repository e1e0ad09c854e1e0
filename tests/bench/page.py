"""Results of peers and grid: in docs/results, and from there in tables and a picture of two pages.

docs/performance.md has the peers, docs/results/grid.md the grid.
A file of results has a line of JSON with what all of it shares, then one for each measurement. A block of
a page between ``<!-- results: NAME -->`` and ``<!-- end -->`` is written anew, all else stays: after
each measurement, and by ``make bench BENCH=page``.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, Final

from tests.bench.figures import Row
from tests.bench.pictures import Point, panels
from tests.faults.results import source_commit

PROJECT: Final = Path(__file__).resolve().parents[2]
RESULTS: Final = PROJECT / "docs" / "results"
_BLOCK: Final = re.compile(r"(<!-- results: (\w+) -->\n).*?(<!-- end -->)", re.S)
_LABELS: Final = {
    "paho": "raw: a paho subscriber, no Kafka",
    "mosquitto_sub": "raw: mosquitto_sub, no Kafka",
    "librdkafka": "raw: a librdkafka producer, no MQTT",
    "hand-written": "forty hand-written lines",
    "telegraf": "Telegraf",
    "gateway": "**this gateway**",
}
_PATHS: Final = {
    ("mqtt+kafka", "1"): "Kafka, 1 partition",
    ("mqtt+kafka", "4"): "Kafka, 4 partitions",
    ("mqtt", ""): "Mosquitto alone",
}
_SHOWN: Final = ("100", "1000", "5000")
"""Payloads that the page's table has, in bytes; of the numbers of topics it has every other one."""
_CELL: Final = ("path", "topics", "partitions", "payload_bytes")
_Key = tuple[str, ...]
_Column = tuple[str, str, Callable[[list[Row]], str]]
"""Head, what is measured, and the cell of a name's rounds."""


def options(
    parser: argparse.ArgumentParser, arguments: Sequence[str] | None, rounds: int
) -> argparse.Namespace:
    """What is given, with the options that both benches have."""
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="DIRECTORY")
    return parser.parse_args(arguments)


def record(
    name: str, given: argparse.Namespace, one_round: Callable[[], Iterator[Row]], **more: object
) -> None:
    """Measure the rounds; write the results after each, and the page at the end."""
    shared = {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": source_commit(PROJECT),
        "cores": os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 1),
        "rounds": given.rounds,
    }
    lines = [json.dumps(shared | more)]
    # Before minutes of measuring, not after.
    given.results.mkdir(parents=True, exist_ok=True)
    for number in range(given.rounds):
        for row in one_round():
            digits = {key: float(f"{x:.4g}") if isinstance(x, float) else x for key, x in row.items()}
            lines.append(json.dumps({"round": number} | digits))
            sys.stdout.write(f"{lines[-1]}\n")
            sys.stdout.flush()
        (given.results / f"{name}.jsonl").write_text("\n".join([*lines, ""]))
    write(given.results)


def write(results: Path = RESULTS) -> None:
    """Write the pages beside and in the directory of results, and the picture into it."""
    for path, text in rendered(results).items():
        path.write_text(text, encoding="utf-8")


def rendered(results: Path = RESULTS) -> dict[Path, str]:
    """The pages that are there, and the picture, as they should be."""
    files: dict[Path, str] = {}

    def block(match: re.Match[str]) -> str:
        begin, name, end = match.groups()
        if not (path := results / f"{name}.jsonl").exists():
            return f"{begin}\nNot measured yet: `make bench BENCH={name}`.\n\n{end}"
        shared, *rows = map(json.loads, path.read_text().splitlines())
        origin = "{date}, commit {commit}, {cores} cores, load {load_before} before. Rounds: {rounds}. "
        paragraphs = _peers(shared, rows) if name == "peers" else _grid(shared, rows)
        if name == "grid":
            files[results / "grid.svg"] = _picture(rows)
        return f"{begin}\n{origin.format(**shared)}" + "\n\n".join(paragraphs) + f"\n\n{end}"

    for page in (results.parent / "performance.md", results / "grid.md"):
        if page.exists():
            files[page] = _BLOCK.sub(block, page.read_text(encoding="utf-8"))
    return files


def _peers(shared: Row, rows: Sequence[Row]) -> Iterable[str]:
    rows = [row for row in rows if "failed" not in row]
    paho = {row["round"]: row for row in rows if (row["what"], row["name"]) == ("drain", "paho")}
    for row in (row for row in rows if row["what"] == "drain" and row["round"] in paho):
        row |= {f"{key}_ratio": row[key] / paho[row["round"]][key] for key in ("rate", "cpu_us")}
    whats = list(dict.fromkeys(row["what"] for row in rows))
    steps = [what for what in whats if "/s" in what]
    faults = [what for what in whats if what not in ("drain", *steps)]

    def table(*columns: _Column) -> str:
        lines = []
        for name, label in _LABELS.items():
            found = [
                [row for row in rows if (row["what"], row["name"]) == (what, name)] for _, what, _ in columns
            ]
            if any(found):
                cells = (
                    cell(each) if each else "" for (_, _, cell), each in zip(columns, found, strict=True)
                )
                lines.append((label, *cells))
        return _table(("", *(head for head, _, _ in columns)), lines)

    absent = "".join(f"Without {name}: no such program there. " for name in shared["absent"])
    yield f"{absent}{shared['count']:,} messages of {shared['size']} bytes that Mosquitto had queued:"
    drained = {
        "messages/s": "rate", "of paho's": "rate_ratio", "CPU, µs a message": "cpu_us",
        "of paho's CPU": "cpu_us_ratio", "RSS, MiB": "rss_mib", "Mosquitto's CPU": "mosquitto_us",
        "Kafka's CPU": "kafka_us",
    }  # fmt: skip
    columns: list[_Column] = [(head, "drain", partial(_medians, key)) for head, key in drained.items()]
    yield table(*columns, ("missing (twice)", "drain", _accounts))
    yield "From publishing until a consumer has it, p50 / p99 in ms, and the bridge's CPU in µs a message:"
    columns = [(step, step, partial(_medians, "fetch_p50", "fetch_p99")) for step in steps]
    yield table(*columns, *((f"CPU at {step}", step, partial(_medians, "bridge_us")) for step in steps))
    yield f"Missing (twice) of {shared['loss']:,} at {shared['loss_rate']}/s, each round where they differ:"
    memory = ("RSS with Kafka down, MiB", faults[0], partial(_medians, "rss_mib"))
    yield table(*((fault, fault, _accounts) for fault in faults), memory)


def _grid(shared: Row, rows: Sequence[Row]) -> Iterable[str]:
    cells, thesis = _cells(rows), _thesis("latency")
    yield (
        f"{shared['rate_per_topic']} messages a second in each topic, {shared['seconds']:g} s a cell; "
        f"{sum(row['missing'] for row in rows)} missing. Cells in which ours is below the thesis' mean (CPU: "
        "of brokers and gateway in % of the machine; all: with publisher and consumer):"
    )
    metrics = [f"{metric}_{what}" for metric in ("produce", "fetch") for what in ("mean", "p95", "p99")]
    lines = []
    for path, label in _PATHS.items():
        there = [key for key in cells if (key[0], key[2]) == path and key in thesis]
        below = [
            sum(cells[key][name] < float(thesis[key][name.split("_")[0] + "_latency_ms"]) for key in there)
            for name in metrics
        ]
        below += [
            sum(cells[key][name] < float(thesis[key]["cpu_percent"]) for key in there)
            for name in ("cpu_percent", "all_percent")
        ]
        lines.append((label, *(f"{count} of {len(there)}" for count in below)))
    yield _table(("", *(name.replace("_", " ") for name in metrics), "CPU", "all"), lines)
    used = [cell["bridge_percent"] for key, cell in cells.items() if key[0] == "mqtt+kafka"]
    yield f"The gateway, in % of a core: {_number(min(used))} to {_number(max(used))}."
    yield "Fetch, p50 / p99 in ms (the thesis' mean); other payloads: the picture, grid.jsonl:"
    sizes, topics = (list(dict.fromkeys(key[at] for key in cells)) for at in (3, 1))
    sizes = [size for size in sizes if size in _SHOWN]
    lines = []
    for (path, label), count in product(_PATHS.items(), topics[::2]):
        keys = [(path[0], count, path[1], size) for size in sizes]
        lines.append(
            (f"{label}, topics: {count}", *(_fetch(cells.get(key), thesis.get(key)) for key in keys))
        )
    yield _table(("", *(f"{int(size):,} B" for size in sizes)), lines)
    yield "![Produce and fetch over the payload](grid.svg)"
    rates: list[float] = []
    ratios: list[float] = []
    for key, theirs in _thesis("throughput").items():
        if ours := [cell["bytes_per_s"] for at, cell in cells.items() if at[:3] == ("mqtt+kafka", *key)]:
            rates += ours
            ratios.append(min(ours) / float(theirs["throughput_bps"]))
    slowest, fastest = (f"{rate / 1000:,.0f}" for rate in (min(rates), max(rates)))
    yield (
        f"As fast as it goes: {slowest} to {fastest} kB/s, at least {_number(min(ratios))} of the thesis' "
        "throughput (its `bps` taken as bytes)."
    )


def _picture(rows: Sequence[Row]) -> str:
    cells, thesis = _cells(rows), _thesis("latency")
    drawn: list[dict[str, dict[str, list[Point]]]] = []
    for metric in ("produce", "fetch"):
        drawn.append({})
        for path, label in _PATHS.items():
            lines: dict[str, list[Point]] = {"p50": [], "thesis": []}
            for key in (key for key in cells if (key[0], key[2]) == path):
                lines["p50"].append((key[1], float(key[3]), cells[key][f"{metric}_p50"]))
                if key in thesis:
                    lines["thesis"].append(
                        (key[1], float(key[3]), float(thesis[key][f"{metric}_latency_ms"]))
                    )
            drawn[-1][f"{metric}: {label}"] = lines
    return panels(
        drawn, "ms over bytes, topics: 1 (blue) to 5 (red); lines: our p50, dashes: the thesis' mean"
    )


def _cells(rows: Sequence[Row]) -> dict[_Key, Row]:
    """Medians over the rounds."""
    found: dict[_Key, list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(str(row[name]) for name in _CELL), []).append(row)
    return {
        key: {name: median(row[name] for row in each) for name, x in each[0].items() if isinstance(x, float)}
        for key, each in found.items()
    }


def _thesis(what: str) -> dict[_Key, dict[str, str]]:
    with (RESULTS / f"thesis_{what}.csv").open(newline="") as file:
        return {tuple(row[name] for name in _CELL if name in row): row for row in csv.DictReader(file)}


def _fetch(cell: Row | None, theirs: dict[str, str] | None) -> str:
    if cell is None:
        return ""
    there = f" ({_number(float(theirs['fetch_latency_ms']))})" if theirs else ""
    return f"{_number(cell['fetch_p50'])} / {_number(cell['fetch_p99'])}{there}"


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *lines))


def _medians(*arguments: Any) -> str:
    *keys, rows = arguments
    found = [[row[key] for row in rows if key in row] for key in keys]
    return " / ".join(_number(median(each)) if each else "–" for each in found) if any(found) else ""


def _accounts(rows: list[Row]) -> str:
    found = [f"{row['missing']:,} ({row['twice']:,})" for row in rows if "missing" in row]
    return ", ".join(found if len(set(found)) > 1 else found[:1])


def _number(value: float) -> str:
    return f"{float(f'{value:.3g}'):,.10g}"


if __name__ == "__main__":
    write()
