"""What is missing of a gateway's channels, and whether it is there, step by step."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from spark_jobs.transforms.presence import SETTLE_US, judge

S = 1_000_000
CUP = "cup.wind_speed"


def record(run: str, state: str, cup: int, told_s: int, **more: Any) -> dict[str, Any]:
    last_seq = [(CUP, cup)] if cup else []
    named: dict[str, Any] = {"previous_run": None, "unfinished": [], "in_flight": 0, "outbox_records": 0}
    return {"run": run, "state": state, "last_seq": last_seq, "reported_us": told_s * S, **named, **more}


def status(run: str, state: str, told_s: int, uplink: str | None = None) -> dict[str, Any]:
    return {"run": run, "state": state, "reported_us": told_s * S, "uplink": uplink}


def spans(run: str, *found: tuple[int, int], place: str = "stored") -> list[dict[str, Any]]:
    return [
        {"place": place, "run": run, "channel": CUP, "first": first, "last": last} for first, last in found
    ]


def found(
    now_s: int, records: list[dict[str, Any]], stored: list[dict[str, Any]], *,
    arrived_s: int | None = 0, statuses: list[dict[str, Any]] | None = None,
    settled: list[dict[str, Any]] | None = None, all_settled: bool = False,
) -> tuple[bool, tuple[int, int, int] | None]:  # fmt: skip
    """Whether it is offline, and the cup's pending, lost and announced; None where they stay as they were."""
    row = {
        "gateway": "mast-07", "arrived_us": None if arrived_s is None else arrived_s * S, "ranges": stored,
        "runs": records, "settled": records if settled is None else settled, "statuses": statuses,
    }  # fmt: skip
    judged = judge(row, now_s * S, all_settled=all_settled)
    if judged["losses"] is None:
        return judged["offline"], None
    of = {each["channel"]: each for each in judged["losses"]}.get(CUP, {})
    return judged["offline"], (of.get("pending", 0), of.get("lost", 0), of.get("announced", 0))


def test_a_story_of_two_runs() -> None:
    # 1–10 and 14–20 have arrived; 11 and 12 are announced as dropped, 13 waits in the outbox.
    stored = [*spans("r1", (1, 10), (14, 20)), *spans("r1", (11, 12), place="announced")]
    first, here = record("r1", "running", 20, 99, outbox_records=1), status("r1", "online", 1)
    assert found(101, [first], stored, arrived_s=100, statuses=[here]) == (False, (1, 0, 2))

    # The next run: the outbox is empty, and 13 didn't come. Its record counts once something came after it.
    runs = [
        record("r1", "killed", 20, 110, outbox_records=1),
        record("r2", "running", 5, 111, previous_run="r1"),
    ]
    assert found(112, runs, stored, arrived_s=100)[1] is None
    stored += spans("r2", (1, 5))
    assert found(112, runs, stored, arrived_s=112) == (False, (0, 1, 2))
    # That of the minute before counts until then.
    newer = [*runs[:1], record("r2", "running", 9, 130, previous_run="r1")]
    assert found(131, newer, stored, arrived_s=112, settled=runs) == (False, (0, 1, 2))
    # The broker's will of the first run comes late, and doesn't count for the second.
    wills = [status("r1", "offline", 113), status("r2", "online", 110)]
    assert found(114, runs, stored, arrived_s=112, statuses=wills) == (False, (0, 1, 2))

    # A hole that is in the outbox is pending; the run stops and has nothing any more: it is lost.
    stored += spans("r2", (8, 10))
    runs[1] = record("r2", "running", 10, 119, previous_run="r1", outbox_records=2)
    assert found(120, runs, stored, arrived_s=120) == (False, (2, 1, 2))
    runs[1] = record("r2", "stopped", 10, 130, previous_run="r1")
    assert found(131, runs, stored, arrived_s=120) == (True, None)
    assert found(130 + SETTLE_US // S, runs, stored, arrived_s=120) == (True, (0, 3, 2))
    # What comes at last is not lost.
    stored += [*spans("r2", (6, 7)), *spans("r1", (12, 13))]
    assert found(500, runs, stored, arrived_s=120) == (True, (0, 0, 1))


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_the_order_of_rows_changes_nothing(order: tuple[int, ...]) -> None:
    runs = [
        record("a", "killed", 10, 50), record("b", "running", 3, 40, previous_run="a"),
        record("c", "killed", 0, 30),
    ]  # fmt: skip
    stored = [*spans("a", (2, 10)), *spans("b", (1, 2), place="dead_letters"), *spans("c", (1, 1))]
    will = status("a", "offline", 60)
    # 3 of b is on its way: the run goes on.
    rows = [runs[at] for at in order], [stored[at] for at in order]
    assert found(70, *rows, arrived_s=70, statuses=[will], all_settled=True) == (False, (1, 1, 0))


def test_a_run_with_no_more_than_a_status_is_the_newest() -> None:
    runs, wills = [record("a", "running", 0, 1)], [status("a", "offline", 5)]
    assert found(11, runs, [], arrived_s=10, statuses=wills)[0]
    wills.append(status("b", "online", 6))
    assert not found(11, runs, [], arrived_s=10, statuses=wills)[0]
    # The will of an unknown run is an old one's.
    wills.append(status("x", "offline", 9))
    assert not found(11, runs, [], arrived_s=10, statuses=wills)[0]


def test_a_run_without_a_record_that_another_names_may_have_lost_its_tail_only() -> None:
    cut = {"run": "gone", "end": "reset", "lost_at_most_s": 2.0}
    runs = [record("b", "running", 0, 1, previous_run="gone", unfinished=[cut])]
    assert found(2, runs, spans("gone", (1, 3), (5, 6)), arrived_s=None, all_settled=True) == (
        False,
        (0, 1, 0),
    )
    # A device that numbers by itself has no record: what it sent is unknown.
    assert found(2, [], spans("own", (4, 4))) == (False, (0, 0, 0))


def test_more_than_the_table_can_count_is_the_most_it_can() -> None:
    most = 2**63 - 1
    runs = [record("a", "stopped", most, 1), record("b", "stopped", most, 2, previous_run="a")]
    assert found(3, runs, [], arrived_s=None, all_settled=True) == (True, (0, most, 0))


def cloned(now_s: int, *records: dict[str, Any]) -> bool:
    row = {
        "gateway": "mast-07", "arrived_us": 0, "ranges": [], "runs": list(records), "settled": [],
        "statuses": [],
    }  # fmt: skip
    return bool(judge(row, now_s * S)["cloned"])


def test_two_runs_that_both_go_on_are_two_gateways_with_one_id() -> None:
    before = record("r0", "stopped", 20, 100)
    here, there = (record(run, "running", 5, 3600, previous_run="r0") for run in ("r1", "r2"))
    assert cloned(3660, before, here, there)
    assert cloned(3660, {**here, "state": "ended"}, there)
    # A restart: the next one names the one before it, which may have been cut off, or come late.
    assert not cloned(3660, here, record("r2", "running", 5, 3601, previous_run="r1"))
    unfinished = [{"run": "r1", "end": "reset", "lost_at_most_s": 2.0}]
    assert not cloned(3660, here, record("r2", "running", 5, 3601, unfinished=unfinished))
    assert not cloned(3660, before, here)
    # A new card half an hour ago.
    assert not cloned(5400, here, {**there, "reported_us": 5400 * S})
    assert not cloned(3660, {**here, "state": "killed"}, there)
