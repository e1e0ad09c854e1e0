"""Counting against real Delta tables and a real outbox: what is missing, what is there twice."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from buffer.sqlite_outbox import SqliteOutbox
from cloud.wire.reading_records import Reading, encode_reading
from cloud.wire.run_records import RunRecord
from gateway.commands.demo.accounting import Lake, TableCounts, in_outbox, sampled
from gateway.forwarding.record_codec import to_bytes
from gateway.ports import Record

RUN = RunRecord("mast", "r1", "stopped", {"a.x": 5, "b.y": 3}, 0, 0)
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
    assert lake.count([RUN]) == lake.glance() == TableCounts()
    assert lake.missing([RUN], []) == sampled([RUN]) == 8
    assert lake.quarantined([RUN]) == set()
    assert lake.rows_per_channel() == {}
    assert lake.furthest([RUN]) == [RUN]


def test_whole(lake: Lake, root: Path) -> None:
    write_readings(root, ALL)
    assert lake.missing([RUN], []) == 0
    assert lake.rows_per_channel() == {"a.x": 5, "b.y": 3}
    assert lake.count([RUN]) == TableCounts(rows=8, distinct=8, own=8, synced=8)
    assert lake.glance().rows == 8


def test_a_repeated_row_is_a_duplicate_and_hides_no_loss(lake: Lake, root: Path) -> None:
    write_readings(root, [*ALL[1:], ALL[1]])
    counts = lake.count([RUN])
    assert (counts.rows, counts.distinct, counts.own) == (8, 7, 7)
    assert lake.missing([RUN], []) == 1


def test_others_are_not_ours(lake: Lake, root: Path) -> None:
    strangers = [("box", "a.x", "r1", 1), ("mast", "a.x", "r0", 1)]
    write_readings(root, [*ALL[1:], *strangers])
    counts = lake.count([RUN])
    assert (counts.rows, counts.distinct, counts.own) == (9, 9, 7)
    assert lake.missing([RUN], []) == 1


def test_more_than_was_sampled_is_an_error_too(lake: Lake, root: Path) -> None:
    write_readings(root, [*ALL, ("mast", "a.x", "r1", 6)])
    assert lake.missing([RUN], []) == -1


def test_quarantine_and_outbox_account_for_readings(lake: Lake, root: Path, tmp_path: Path) -> None:
    write_readings(root, ALL[:5])
    write_quarantine(
        root, [payload_of(ALL[5]), payload_of(ALL[5]), b"[", b"", b"[1]", b'{"gateway": "mast"}']
    )
    forged = [("mast", "b.y", "r1", 4), ("mast", "b.y", "r9", 1), ("box", "b.y", "r1", 2)]
    write_quarantine(root, [payload_of(one) for one in forged], "gateway.dead-letter")
    assert lake.quarantined([RUN]) == {ALL[5][1:]}
    counts = lake.count([RUN])
    assert (counts.quarantined, counts.quarantined_readings, counts.quarantined_letters) == (9, 6, 3)

    reading = Reading(
        "mast", "b.y", "y", "m", 1_700_000_000_000_000, 1000, 1.0, 1.0, "V", 1, (), "r1", 2, "synced", None
    )
    stored = to_bytes(Record("mqtt.y", b"mast/b.y", encode_reading(reading), ()))
    path = tmp_path / "outbox.db"
    outbox = SqliteOutbox(path)
    outbox.append([stored, b"damaged", to_bytes(Record("gateway.dead-letter", b"", b"{}", ()))])
    outbox.close()
    assert in_outbox(path, "mast") == {("b.y", "r1", 2)}
    assert in_outbox(path, "box") == set()
    assert in_outbox(tmp_path / "absent.db", "mast") == set()
    assert lake.missing([RUN], in_outbox(path, "mast") | lake.quarantined([RUN])) == 1


def test_statistics_cover_what_is_synced(lake: Lake, root: Path) -> None:
    write_readings(root, ALL)
    write_readings(root, [("mast", "b.y", "r1", 4)], clock="unsynced")
    write_statistics(root, 60, good=6, missing=1)
    write_statistics(root, 600, good=8, missing=0)
    counts = lake.count([RUN])
    assert (counts.rows, counts.synced, counts.covered, counts.statistics_rows) == (9, 8, 7, 1)


def test_a_killed_runs_record_is_behind_its_readings(lake: Lake, root: Path) -> None:
    killed = RunRecord("mast", "r1", "running", {"a.x": 3}, 0, 0)
    write_readings(root, ALL)
    (further,) = lake.furthest([killed])
    assert further.last_seq == {"a.x": 5, "b.y": 3}
    assert lake.furthest([RunRecord("mast", "r1", "stopped", {"a.x": 3}, 0, 0)])[0].last_seq == {"a.x": 3}
