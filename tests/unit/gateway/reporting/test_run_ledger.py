"""The records of a run, and how the next one closes it."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from buffer.errors import Drop
from cloud.wire.run_records import RunRecord, Unfinished
from gateway.forwarding.records import summarise
from gateway.reporting.previous_runs import FirstReading, Predecessors, PreviousRuns
from gateway.reporting.run_ledger import RunLedger
from tests.support.forwarding import snapshot
from tests.unit.gateway.forwarding.test_seq_summary import record

COUNTS = {"last_seq": {"cup.wind_speed": 7}, "in_flight": 2, "outbox_records": 3}


def ledger() -> RunLedger:
    before = Predecessors("old", (Unfinished("old", "reset", 2.0),))
    return RunLedger("mast-07", "new", "boot-1", before)


def test_a_record_describes_the_run() -> None:
    runs = ledger()
    for seqs in (range(1, 4), range(4, 7), range(9, 10)):
        block = summarise(record("cup.wind_speed", seq) for seq in seqs)
        drop = Drop("OUTBOX_FULL", seqs[0], seqs[-1], len(seqs), block)
        runs.note(drop)
        event = runs.dropped(drop)
    assert json.loads(event.value)["ranges"] == ["9f3c21ab04de cup.wind_speed 9-9"]
    other = summarise([record("cup.wind_speed", 1, gateway="shed")])
    drop = Drop("DISK_LOW", 1, 1, 1, other)
    runs.note(drop)
    event = runs.dropped(drop)
    assert json.loads(event.value)["ranges"] == ["shed/9f3c21ab04de cup.wind_speed 1-1"]
    made = runs.record("running", COUNTS)
    assert (made.topic, made.key) == ("gateway.runs", b"mast-07/new")
    assert RunRecord.from_json(made.value).unfinished == (Unfinished("old", "reset", 2.0),)
    fields = json.loads(made.value)
    assert fields.pop("started").endswith("Z")
    assert fields == {
        "v": 1,
        "gateway": "mast-07",
        "run": "new",
        "previous_run": "old",
        "unfinished": [{"run": "old", "end": "reset", "lost_at_most_s": 2.0}],
        "boot": "boot-1",
        "state": "running",
        "revision": 1,
        "last_event": 4,
        **COUNTS,
        "dropped": [
            {
                "reason": "OUTBOX_FULL",
                "count": 7,
                "more_unknown": False,
                "ranges": ["9f3c21ab04de cup.wind_speed 1-6", "9f3c21ab04de cup.wind_speed 9-9"],
            },
            {
                "reason": "DISK_LOW",
                "count": 1,
                "more_unknown": False,
                "ranges": ["shed/9f3c21ab04de cup.wind_speed 1-1"],
            },
        ],
    }


def test_events_are_numbered_from_1_whichever_thread_makes_them() -> None:
    runs, usual_s = ledger(), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            made = list(threads.map(lambda _: json.loads(runs.event("x").value)["seq"], range(4000)))
    finally:
        sys.setswitchinterval(usual_s)
    assert sorted(made) == list(range(1, 4001))
    assert RunRecord.from_json(runs.payload("running", COUNTS)).last_event == 4000
    assert RunRecord.from_json(ledger().payload("running", COUNTS)).last_event == 0


def test_an_earlier_run_that_never_ended_is_closed_as_killed() -> None:
    earlier: dict[str, Any] = {"gateway": "mast-07", "run": "old", "state": "running", "last_event": 3}
    earlier["last_seq"] = {"cup.wind_speed": 41}
    closing = ledger().close_previous(json.dumps(earlier).encode())
    assert closing is not None
    assert closing.key == b"mast-07/old"
    assert json.loads(closing.value) == {**earlier, "state": "killed"}


def test_a_run_that_announced_a_thousand_ranges_is_closed_too() -> None:
    # 65 KB and more: drops of as many runs as a mast on a weak battery has in a winter.
    ranges = [f"{run:012x} cup-{each}.wind_speed 1-3600" for run in range(150) for each in range(12)]
    earlier: dict[str, Any] = {"gateway": "mast-07", "run": "old", "state": "running", "last_seq": {}}
    earlier["dropped"] = [{"reason": "OUTBOX_FULL", "count": 1, "more_unknown": False, "ranges": ranges}]
    payload = json.dumps(earlier).encode()
    assert len(payload) > 64 << 10
    closing = ledger().close_previous(payload)
    assert closing is not None
    assert json.loads(closing.value) == {**earlier, "state": "killed"}


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[]",
        b"nonsense",
        b'{"gateway": "mast-07", "run": 7, "state": "running"}',
        b'{"gateway": "mast-07", "run": "old"}',
        b'{"gateway": "mast-07", "run": "old", "state": "stopped"}',
        b'{"gateway": "mast-07", "run": "old", "state": "killed"}',
        b'{"gateway": "mast-07", "run": "new", "state": "running"}',
        b'{"gateway": "mast-08", "run": "old", "state": "running"}',
        b'{"gateway": "mast-07", "run": "\\ud800", "state": "running"}',
        b"[" * 60_000,
        b'{"gateway": "mast-07", "run": "old", "state": "running"}' + b" " * (1 << 20),
    ],
)
def test_nothing_else_is_closed(payload: bytes) -> None:
    assert ledger().close_previous(payload) is None


def test_each_start_reads_the_run_before(tmp_path: Path) -> None:
    path = tmp_path / "outbox.db.run"
    first = PreviousRuns(path, "first", 2.0)
    assert first.begin() == Predecessors()
    first.end()
    assert PreviousRuns(path, "second", 1.5).begin() == Predecessors("first")
    killed = Unfinished("second", "killed", 1.5)
    third = PreviousRuns(path, "third", 2.0)
    assert third.begin() == Predecessors("second", (killed,))
    third.end()
    # It is still there: the third may not have come to report it.
    assert PreviousRuns(path, "fourth", 2.0).begin() == Predecessors("third", (killed,))


def test_another_boot_means_that_the_machine_was_reset(tmp_path: Path) -> None:
    path = tmp_path / "outbox.db.run"
    PreviousRuns(path, "first", 2.0).begin()
    path.write_text(json.dumps({**json.loads(path.read_text()), "boot": "another"}))
    assert PreviousRuns(path, "second", 2.0).begin().unfinished == (Unfinished("first", "reset", 2.0),)


def test_the_latest_unfinished_runs_are_remembered(tmp_path: Path) -> None:
    path = tmp_path / "outbox.db.run"
    for number in range(20):
        made = PreviousRuns(path, f"run-{number}", 2.0).begin()
    assert [each.run for each in made.unfinished] == [f"run-{number}" for number in range(11, 19)]


@pytest.mark.parametrize(
    "text",
    ["\0" * 64, "", "7", "[]", "{}", '{"run": "old", "stopped": false}', '{"run": "old", "unfinished": [7]}'],
)
def test_a_state_that_cannot_be_read_is_no_reason_to_stop(text: str, tmp_path: Path) -> None:
    path = tmp_path / "outbox.db.run"
    path.write_text(text)
    assert PreviousRuns(path, "third", 2.0).begin() == Predecessors()
    assert PreviousRuns(path, "fourth", 2.0).begin().previous_run == "third"


def test_a_state_that_cannot_be_written_is_no_reason_to_stop(tmp_path: Path) -> None:
    state = PreviousRuns(tmp_path / "missing" / "outbox.db.run", "first", 2.0)
    assert state.begin() == Predecessors()
    state.end()


def test_a_record_never_grows_beyond_what_kafka_takes() -> None:
    runs = ledger()
    for first in range(1, 24_001, 2000):
        lost = [record("cup.wind_speed", seq) for seq in range(first, first + 2000, 2)]
        runs.note(Drop("OUTBOX_FULL", first, first + 1998, 1000, summarise(lost)))
    value = runs.record("running", COUNTS).value
    (dropped,) = json.loads(value)["dropped"]
    assert (dropped["count"], len(dropped["ranges"]), dropped["more_unknown"]) == (12_000, 10_000, True)
    assert dropped["ranges"][-1] == "9f3c21ab04de cup.wind_speed 23999-23999"
    assert len(value) < 1 << 20


def test_a_start_is_named_once_a_reading_of_it_is_safe(tmp_path: Path) -> None:
    first = FirstReading({"RUNTIME_DIRECTORY": str(tmp_path), "INVOCATION_ID": "0f3c"})
    first.tick(snapshot(durable=False))
    assert not list(tmp_path.iterdir())
    first.tick(snapshot(durable=True))
    assert (tmp_path / "durable").read_text() == "0f3c\n"
    # Once: the main loop turns each second.
    (tmp_path / "durable").unlink()
    first.tick(snapshot(durable=True))
    assert not list(tmp_path.iterdir())


def test_without_systemd_nothing_is_written(tmp_path: Path) -> None:
    FirstReading({}).tick(snapshot(durable=True))
    FirstReading({"RUNTIME_DIRECTORY": str(tmp_path / "absent")}).tick(snapshot(durable=True))
    assert not list(tmp_path.iterdir())
