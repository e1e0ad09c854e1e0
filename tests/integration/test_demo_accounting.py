"""Counting against real Delta tables: what is missing, what is there twice."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from cloud.kafka.run_accounts import Books, RunAccount
from cloud.wire.reading_records import RUNS_TOPIC
from gateway.commands.demo.accounting import Lake, TableCounts, sampled, stored

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


def books(state: str = "stopped", outbox_records: int = 0, **last_seq: int) -> Books:
    """With the record of one run; by default of one that issued ALL."""
    found = Books("mast")
    record = {
        "v": 1, "gateway": "mast", "run": "r1", "state": state, "in_flight": 0,
        "outbox_records": outbox_records, "last_seq": last_seq or {"a.x": 5, "b.y": 3},
    }  # fmt: skip
    found.take_run(RUNS_TOPIC, json.dumps(record).encode(), 0)
    return found


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


def test_without_tables_everything_is_missing(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "none", "mast", 60)
    assert lake.count() == lake.glance() == TableCounts()
    (account,) = lake.accounts(books())
    assert (account.sampled, account.unaccounted) == (8, 8)
    assert lake.accounts(Books("mast")) == []


def test_whole(lake: Lake, root: Path) -> None:
    write_readings(root, ALL)
    (account,) = lake.accounts(books())
    assert (account.sampled, account.in_kafka, account.unaccounted) == (8, 8, 0)
    assert missing([account]) == 0
    per_channel = {"a.x": 5, "b.y": 3}
    assert lake.count() == TableCounts(rows=8, rows_per_channel=per_channel, distinct_rows=8, synced=8)
    assert lake.glance().rows == 8


def test_a_repeated_row_is_a_duplicate_and_hides_no_loss(lake: Lake, root: Path) -> None:
    write_readings(root, [*ALL[1:], ALL[1]])
    counts = lake.count()
    assert (counts.rows, counts.distinct_rows) == (8, 7)
    assert [account.unaccounted for account in lake.accounts(books())] == [1]


def test_a_gap_within_a_channel_is_missing(lake: Lake, root: Path) -> None:
    write_readings(root, [identity for identity in ALL if identity[3] not in (2, 4)])
    (account,) = lake.accounts(books())
    assert account.unaccounted == missing([account]) == 3


def test_others_are_not_ours(lake: Lake, root: Path) -> None:
    write_readings(root, [*ALL[1:], ("box", "a.x", "r1", 1)])
    counts = lake.count()
    assert (counts.rows, counts.distinct_rows) == (8, 8)
    assert missing(lake.accounts(books())) == 1
    assert counts.rows_per_channel == {"a.x": 4, "b.y": 3}


def test_more_than_was_sampled_is_an_error_too(lake: Lake, root: Path) -> None:
    write_readings(root, [*ALL, ("mast", "a.x", "r1", 6)])
    (account,) = lake.accounts(books())
    assert (account.unaccounted, account.never_sampled, missing([account])) == (0, 1, 0)


def test_quarantine_and_outbox_account_for_readings(lake: Lake, root: Path) -> None:
    write_readings(root, ALL[:5])
    write_quarantine(
        root, [payload_of(ALL[5]), payload_of(ALL[5]), b"[", b"", b"[1]", b'{"gateway": "mast"}']
    )
    forged = [("mast", "b.y", "r1", 4), ("mast", "b.y", "r9", 1), ("box", "b.y", "r1", 2)]
    write_quarantine(root, [payload_of(one) for one in forged], "gateway.dead-letter")
    counts = lake.count()
    assert (counts.quarantined, counts.quarantined_letters) == (9, 3)
    (account,) = lake.accounts(books(outbox_records=1))
    assert (account.in_kafka, account.dead_letters, account.pending, account.unaccounted) == (5, 1, 1, 1)
    assert account.never_sampled == 0


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


def test_a_killed_runs_record_is_behind_its_readings(lake: Lake, root: Path) -> None:
    write_readings(root, ALL)
    (further,) = lake.accounts(books("killed", **{"a.x": 3}))
    assert (further.last_seq, further.unaccounted) == ({"a.x": 5, "b.y": 3}, 0)
    (stopped,) = lake.accounts(books("stopped", **{"a.x": 3}))
    assert stopped.last_seq["a.x"] == 3
