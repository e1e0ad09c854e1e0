"""What a run tells of itself, and how the next one closes it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from buffer.drops import Drop
from gateway.run_ledger import RunLedger
from gateway.state_file import replace_run
from gateway.summaries import summarise
from tests.unit.test_summaries import record


def ledger() -> RunLedger:
    return RunLedger("mast-07", "new", "boot-1", "old", lambda: {"last_seq": {"cup.wind_speed": 7}})


def test_a_record_tells_the_run() -> None:
    runs = ledger()
    for seqs in (range(1, 4), range(4, 7), range(9, 10)):
        block = summarise(record("cup.wind_speed", seq) for seq in seqs)
        event = runs.dropped(Drop("OUTBOX_FULL", seqs[0], seqs[-1], len(seqs), block))
    assert json.loads(event.value)["ranges"] == ["9f3c21ab04de cup.wind_speed 9-9"]
    other = summarise([record("cup.wind_speed", 1, gateway="shed")])
    event = runs.dropped(Drop("DISK_LOW", 1, 1, 1, other))
    assert json.loads(event.value)["ranges"] == ["shed/9f3c21ab04de cup.wind_speed 1-1"]
    told = runs.record("running")
    assert (told.topic, told.key) == ("gateway.runs", b"mast-07/new")
    fields = json.loads(told.value)
    assert fields.pop("started").endswith("Z")
    assert fields == {
        "v": 1,
        "gateway": "mast-07",
        "run": "new",
        "previous_run": "old",
        "boot": "boot-1",
        "state": "running",
        "last_seq": {"cup.wind_speed": 7},
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


def test_an_earlier_run_that_never_ended_is_closed_as_killed() -> None:
    earlier = {"gateway": "mast-07", "run": "old", "state": "running", "last_seq": {"cup.wind_speed": 41}}
    closing = ledger().close_previous(json.dumps(earlier).encode())
    assert closing is not None
    assert closing.key == b"mast-07/old"
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
        b" " * 70_000,
    ],
)
def test_nothing_else_is_closed(payload: bytes) -> None:
    assert ledger().close_previous(payload) is None


def test_each_start_learns_of_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "outbox.db.run"
    assert replace_run(path, "first") is None
    assert replace_run(path, "second") == "first"
    path.write_bytes(b"\x00" * 64)
    assert replace_run(path, "third") is None
    assert replace_run(path, "fourth") == "third"


def test_a_state_that_cannot_be_written_is_no_reason_to_stop(tmp_path: Path) -> None:
    assert replace_run(tmp_path / "missing" / "outbox.db.run", "first") is None
