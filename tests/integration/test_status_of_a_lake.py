"""``fieldgate status --lake``: the accounts by the tables of a lake."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from gateway.cli import main

AT = datetime(2026, 11, 21, 14, 34, 52, tzinfo=UTC)
RUNS = pa.schema(
    {
        **dict.fromkeys(("gateway", "run", "state"), pa.string()),
        **dict.fromkeys(("started", "reported_at"), pa.timestamp("us", "UTC")),
        **dict.fromkeys(("last_seq", "dropped_records"), pa.map_(pa.string(), pa.int64())),
        "unfinished": pa.list_(
            pa.struct({"run": pa.string(), "end": pa.string(), "lost_at_most_s": pa.float64()})
        ),
    }
)


def write_runs(lake: Path, *runs: dict[str, Any]) -> None:
    rows = [{"started": AT, "reported_at": AT, "state": "stopped", **run} for run in runs]
    write_deltalake(str(lake / "runs"), pa.Table.from_pylist(rows, RUNS), mode="append")


def write_presence(lake: Path, *rows: tuple[str, int, int, int]) -> None:
    names = ("gateway", "pending", "lost", "announced")
    table = pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))
    write_deltalake(str(lake / "presence"), table, mode="append")


def status(*arguments: object) -> int:
    return main(["status", *map(str, arguments)])


def test_a_lake_without_the_tables_names_the_job_that_fills_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_runs(tmp_path, {"gateway": "mast-07", "run": "r1", "last_seq": [("cup.wind_speed", 9)]})
    assert status("--lake", tmp_path) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "no table presence yet" in printed.err
    assert status("--gateway", "mast-07") == 1
    assert capsys.readouterr().err == "fieldgate: --gateway needs --lake or --cloud\n"


def test_what_was_sampled_is_stored_waiting_dropped_or_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cut = [{"run": "r1", "end": "reset", "lost_at_most_s": 2.0}]
    write_runs(
        tmp_path,
        {"gateway": "mast-07", "run": "r1", "state": "running", "last_seq": [("a.x", 60), ("b.y", 40)]},
        {
            "gateway": "mast-07", "run": "r2", "last_seq": [("a.x", 17)], "unfinished": cut,
            "dropped_records": [("OUTBOX_FULL", 5)],
        },
        {"gateway": "mast-08", "run": "r9", "last_seq": [("a.x", 1_000)]},
    )  # fmt: skip
    write_presence(tmp_path, ("mast-07", 3, 0, 5), ("mast-07", 0, 2, 0), ("mast-08", 0, 0, 0))

    assert status("--lake", tmp_path, "--json") == 1
    answer = json.loads(capsys.readouterr().out)
    assert not answer["balanced"]
    assert answer["gateways"][0] == {
        "gateway": "mast-07", "sampled": 117, "stored_or_quarantined": 107, "waiting": 3, "dropped": 5,
        "lost": 2,
    }  # fmt: skip
    assert [
        (run["run"], run["state"], run["sampled"], run["dropped"], run["may_lack_s"])
        for run in answer["runs"]
    ] == [("r1", "reset", 100, 0, 2.0), ("r2", "stopped", 17, 5, None), ("r9", "stopped", 1000, 0, None)]

    assert status("--lake", tmp_path, "--gateway", "mast-08") == 0
    lines = capsys.readouterr().out.splitlines()
    gateways, runs = (line.split() for line in lines if line.startswith("mast"))
    assert gateways == ["mast-08", "1,000", "1,000", "0", "0", "0"]
    assert runs == ["mast-08", "r9", "stopped", "11-21", "14:34:52Z", "11-21", "14:34:52Z", "1,000", "0"]
    assert status("--lake", tmp_path, "--gateway", "mast-09") == 0
    assert capsys.readouterr().out == "no runs and no readings of mast-09\n"
