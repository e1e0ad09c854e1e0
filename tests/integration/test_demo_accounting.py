"""Counting against real Delta tables: what is missing, what is there twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from gateway.commands.demo.accounting import Lake, RunCounts, TableCounts, waiting_and_lost

ALL = [("mast", "a.x", "r1", seq) for seq in range(1, 6)] + [
    ("mast", "b.y", "r1", seq) for seq in range(1, 4)
]

Identity = tuple[str, str, str, int]


def write_readings(lake: Path, rows: Iterable[Identity], clock: str = "synced") -> None:
    names = ("gateway", "channel", "run", "seq")
    columns = {name: list(values) for name, values in zip(names, zip(*rows, strict=True), strict=True)}
    columns["clock"] = [clock] * len(columns["seq"])
    write_deltalake(str(lake / "readings"), pa.table(columns), mode="append")


def write_quarantine(lake: Path, payloads: list[bytes], topic: str = "mqtt.x") -> None:
    table = pa.table({"payload": pa.array(payloads, pa.binary()), "kafka_topic": [topic] * len(payloads)})
    write_deltalake(str(lake / "quarantine"), table, mode="append")


def write_statistics(lake: Path, interval_s: int, good: int, missing: int) -> None:
    counts = {"n_good": good, "n_not_evaluated": 0, "n_suspect": 0, "n_fail": 0, "n_missing": missing}
    table = pa.table({"interval_s": [interval_s], **{name: [count] for name, count in counts.items()}})
    write_deltalake(str(lake / "statistics"), table, mode="append")


RUNS = pa.schema(
    {
        **dict.fromkeys(("gateway", "run", "state"), pa.string()),
        "started": pa.timestamp("us", "UTC"),
        "last_seq": pa.map_(pa.string(), pa.int64()),
        **dict.fromkeys(("in_flight", "outbox_records"), pa.int64()),
    }
)


def write_run(
    lake: Path, state: str = "stopped", last_seq: Mapping[str, int] = MappingProxyType({"a.x": 5, "b.y": 3}),
    **more: object,
) -> None:  # fmt: skip
    """Writes the record of a run; by default of one that issued ALL."""
    started = datetime(2026, 1, 1, tzinfo=UTC)
    row = {"gateway": "mast", "run": "r1", "state": state, "started": started, **more}
    row["last_seq"] = list(last_seq.items())
    write_deltalake(str(lake / "runs"), pa.Table.from_pylist([row], RUNS), mode="append")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    lake = tmp_path / "lake"
    lake.mkdir()
    return lake


@pytest.fixture
def lake(root: Path) -> Lake:
    return Lake(root, "mast", 60)


def test_without_tables_nothing_is_known(tmp_path: Path) -> None:
    lake = Lake(tmp_path, "mast", 60)
    assert lake.glance() == TableCounts()
    assert lake.count() == TableCounts(runs=())
    write_run(tmp_path)
    assert lake.count().runs == ()


@pytest.mark.parametrize(
    ("rows", "counted", "distinct", "stored"),
    [
        (ALL, 8, 8, 8),
        # A repeated row is a duplicate, and hides no loss.
        ([*ALL[1:], ALL[1]], 8, 7, 7),
        ([identity for identity in ALL if identity[3] not in (2, 4)], 5, 5, 5),
        # Another gateway's reading, and that of a device that numbers by itself.
        ([*ALL[1:], ("box", "a.x", "r1", 1), ("mast", "a.x", "own", 1)], 9, 9, 7),
        # More than was sampled is an error too.
        ([*ALL, ("mast", "a.x", "r1", 6)], 9, 9, 9),
    ],
)
def test_what_is_there_and_what_is_missing(
    lake: Lake, root: Path, rows: list[Identity], counted: int, distinct: int, stored: int
) -> None:
    write_run(root, in_flight=1, outbox_records=2)
    write_readings(root, rows)
    counts = lake.count()
    assert counts.runs == [RunCounts("r1", "stopped", 3, {"a.x": 5, "b.y": 3}, stored)]
    assert (counts.rows, counts.distinct_rows, counts.synced) == (counted, distinct, counted)
    of_ours = [channel for gateway, channel, _, _ in rows if gateway == "mast"]
    assert counts.rows_per_channel == Counter(of_ours)
    assert lake.glance().rows == counted


@pytest.mark.parametrize(
    ("waiting", "stored", "expected"),
    [
        (0, 8, (0, 0)),
        (3, 5, (3, 0)),
        (2, 5, (2, 1)),
        # An event was in flight when the last record was made.
        (1, 8, (0, 0)),
        # More than was sampled is an error too.
        (1, 9, (0, -1)),
    ],
)
def test_only_what_lacks_can_wait(waiting: int, stored: int, expected: tuple[int, int]) -> None:
    run = RunCounts("r1", "stopped", waiting, {"a.x": 5, "b.y": 3}, stored)
    assert waiting_and_lost([run]) == expected
    assert waiting_and_lost([]) == (0, 0)


def test_quarantine_is_counted_with_the_dead_letters_in_it(lake: Lake, root: Path) -> None:
    write_quarantine(root, [b"[", b""])
    write_quarantine(root, [b"[1]"], "gateway.dead-letter")
    counts = lake.count()
    assert (counts.quarantined, counts.quarantined_dead_letters) == (3, 1)


def test_statistics_cover_what_is_synced(lake: Lake, root: Path) -> None:
    write_readings(root, ALL)
    write_readings(root, [("mast", "b.y", "r1", 4)], clock="unsynced")
    write_statistics(root, 60, good=6, missing=1)
    write_statistics(root, 600, good=8, missing=0)
    counts = lake.count()
    assert (counts.rows, counts.synced, counts.covered, counts.statistics_rows) == (9, 8, 7, 1)


def test_alerts_are_counted(lake: Lake, root: Path) -> None:
    write_deltalake(str(root / "alerts"), pa.table({"id": ["x", "y"]}))
    assert lake.glance() == TableCounts(alerts=2)
    assert lake.count() == TableCounts(alerts=2, runs=())


def test_a_killed_runs_record_is_behind_its_readings(lake: Lake, root: Path) -> None:
    write_run(root, "killed", {"a.x": 3})
    write_run(root, "running", {}, run="r2", started=datetime(2026, 1, 2, tzinfo=UTC))
    write_run(root, "stopped", {"a.x": 3}, run="r0", started=datetime(2025, 1, 2, tzinfo=UTC))
    write_readings(root, [*ALL[:5], *(("mast", "a.x", "r0", seq) for seq in range(1, 6))])
    assert lake.count().runs == [
        RunCounts("r0", "stopped", 0, {"a.x": 3}, 5),
        RunCounts("r1", "killed", 0, {"a.x": 5}, 5),
        RunCounts("r2", "running", 0, {}, 0),
    ]
