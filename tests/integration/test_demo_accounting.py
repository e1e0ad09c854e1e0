"""Counting against real Delta tables: what is missing, what is there twice."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from gateway.commands.demo.accounting import Lake, RunAccount, TableCounts, sampled, stored

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
        **dict.fromkeys(("gateway", "run", "state", "previous_run"), pa.string()),
        **dict.fromkeys(("started", "reported_at"), pa.timestamp("us", "UTC")),
        "last_seq": pa.map_(pa.string(), pa.int64()),
        **dict.fromkeys(("in_flight", "outbox_records"), pa.int64()),
        "unfinished": pa.list_(
            pa.struct({"run": pa.string(), "end": pa.string(), "lost_at_most_s": pa.float64()})
        ),
        "dropped": pa.list_(
            pa.struct(
                {
                    **dict.fromkeys(("reason", "gateway", "run", "channel"), pa.string()),
                    **dict.fromkeys(("first", "last"), pa.int64()),
                }
            )
        ),
    }
)


def write_run(
    lake: Path, state: str = "stopped", last_seq: Mapping[str, int] = MappingProxyType({"a.x": 5, "b.y": 3}),
    **more: object,
) -> None:  # fmt: skip
    """Writes the record of a run; by default of one that issued ALL."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    row = {
        "gateway": "mast", "run": "r1", "state": state, "started": at, "reported_at": at,
        "last_seq": list(last_seq.items()), **more,
    }  # fmt: skip
    write_deltalake(str(lake / "runs"), pa.Table.from_pylist([row], RUNS), mode="append")


def missing(accounts: Iterable[RunAccount]) -> int:
    accounts = list(accounts)
    return sampled(accounts) - stored(accounts)


def payload_of(identity: Identity) -> bytes:
    gateway, channel, run, seq = identity
    return json.dumps({"gateway": gateway, "channel": channel, "run": run, "seq": seq}).encode()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    lake = tmp_path / "lake"
    lake.mkdir()
    return lake


@pytest.fixture
def lake(root: Path) -> Lake:
    return Lake(root, "mast", 60)


def figures(account: RunAccount) -> tuple[int, int, int]:
    balance = account.balance
    return balance.sampled, balance.stored, balance.lost


def test_without_tables_nothing_is_known_and_without_readings_everything_is_missing(tmp_path: Path) -> None:
    lake = Lake(tmp_path, "mast", 60)
    assert lake.count() == lake.glance() == TableCounts()
    assert lake.accounts() == []
    assert not lake.has_stopped("r1")
    write_run(tmp_path)
    assert [figures(account) for account in lake.accounts()] == [(8, 0, 8)]
    assert lake.has_stopped("r1")


@pytest.mark.parametrize(
    ("rows", "counted", "distinct", "lost"),
    [
        (ALL, 8, 8, 0),
        # A repeated row is a duplicate, and hides no loss.
        ([*ALL[1:], ALL[1]], 8, 7, 1),
        ([identity for identity in ALL if identity[3] not in (2, 4)], 5, 5, 3),
        # Another gateway's reading, and that of a device that numbers by itself.
        ([*ALL[1:], ("box", "a.x", "r1", 1), ("mast", "a.x", "own", 1)], 9, 9, 1),
    ],
)
def test_what_is_there_and_what_is_missing(
    lake: Lake, root: Path, rows: list[Identity], counted: int, distinct: int, lost: int
) -> None:
    write_run(root)
    write_readings(root, rows)
    (account,) = lake.accounts()
    assert figures(account) == (8, 8 - lost, lost)
    assert missing([account]) == lost
    counts = lake.count()
    assert (counts.rows, counts.distinct_rows, counts.synced) == (counted, distinct, counted)
    of_ours = [channel for gateway, channel, _, _ in rows if gateway == "mast"]
    assert counts.rows_per_channel == Counter(of_ours)
    assert lake.glance().rows == counted


def test_more_than_was_sampled_is_an_error_too(lake: Lake, root: Path) -> None:
    write_run(root)
    write_readings(root, [*ALL, ("mast", "a.x", "r1", 6)])
    (account,) = lake.accounts()
    assert (account.balance.lost, account.balance.never_sampled, missing([account])) == (0, 1, 0)


def test_quarantine_drops_and_outbox_account_for_readings(lake: Lake, root: Path) -> None:
    lost = [{"reason": "CORRUPT", "gateway": "mast", "run": "r1", "channel": "a.x", "first": 5, "last": 6}]
    write_run(root, outbox_records=1, dropped=lost)
    write_readings(root, ALL[:4])
    write_quarantine(
        root, [payload_of(ALL[5]), payload_of(ALL[5]), b"[", b"", b"[1]", b'{"gateway": "mast"}']
    )
    forged = [("mast", "b.y", "r1", 4), ("mast", "b.y", "r9", 1), ("box", "b.y", "r1", 2)]
    write_quarantine(root, [payload_of(one) for one in forged], "gateway.dead-letter")
    counts = lake.count()
    assert (counts.quarantined, counts.quarantined_dead_letters) == (9, 3)
    (account,) = lake.accounts()
    balance = account.balance
    assert (balance.stored, balance.dropped, balance.pending, balance.lost) == (5, 2, 1, 1)
    # The sixth was never sampled.
    assert balance.never_sampled == 1


def test_statistics_cover_what_is_synced(lake: Lake, root: Path) -> None:
    write_readings(root, ALL)
    write_readings(root, [("mast", "b.y", "r1", 4)], clock="unsynced")
    write_statistics(root, 60, good=6, missing=1)
    write_statistics(root, 600, good=8, missing=0)
    counts = lake.count()
    assert (counts.rows, counts.synced, counts.covered, counts.statistics_rows) == (9, 8, 7, 1)


def test_alerts_are_counted(lake: Lake, root: Path) -> None:
    write_deltalake(str(root / "alerts"), pa.table({"id": ["x", "y"]}))
    assert lake.count() == lake.glance() == TableCounts(alerts=2)


@pytest.mark.parametrize(("state", "last"), [("killed", 5), ("stopped", 3)])
def test_a_killed_runs_record_is_behind_its_readings(lake: Lake, root: Path, state: str, last: int) -> None:
    write_run(root, state, {"a.x": 3})
    write_readings(root, ALL[:5])
    (account,) = lake.accounts()
    assert account.balance.channels["a.x"].issued == last
    assert account.balance.lost == 0
