"""The states of channels and gateways, and what is missing of them, step by step."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from cloud.wire.run_records import DroppedRange, RunRecord, Unfinished
from spark_jobs.state.presence import SETTLE_US, Arrival, Channel, Presences, Status

S = 1_000_000
CUP, BARO = ("mast-07", "cup.wind_speed"), ("mast-07", "baro.pressure")


def record(run: str, state: str, cup: int, **more: Any) -> RunRecord:
    last_seq = {CUP[1]: cup} if cup else {}
    return RunRecord(**{"gateway": "mast-07", "run": run, "state": state, "last_seq": last_seq} | more)


def changed(
    presences: Presences, now_s: int, *, all_settled: bool = False
) -> dict[Channel, tuple[str, int, int, int]]:
    """The rows that changed: state, pending, lost, announced."""
    return {
        channel: (row.state, row.losses.pending, row.losses.lost, row.losses.announced)
        for channel, row in presences.changed(now_s * S, all_settled=all_settled).items()
    }


def arrive(presences: Presences, at_s: int, channel: Channel = CUP, period_ms: int = 1000) -> None:
    presences.arrived(channel, Arrival(at_s * S, at_s * S, 7.0, period_ms))


def test_a_story_of_two_runs() -> None:
    presences = Presences(60)
    # 1–10 and 14–20 have arrived; 11 and 12 are announced as dropped, 13 waits in the outbox.
    arrive(presences, 100)
    presences.stored(*CUP, "r1", 1, 10)
    presences.stored(*CUP, "r1", 14, 20)
    drop = DroppedRange("OUTBOX_FULL", "mast-07", "r1", CUP[1], 11, 12)
    presences.reported(record("r1", "running", 20, outbox_records=1, dropped=(drop,)), 99 * S)
    presences.status("mast-07", "r1", Status("online", "healthy", 1 * S))
    assert changed(presences, 101) == {CUP: ("online", 1, 0, 2)}
    assert changed(presences, 102) == {}

    # The next run: the outbox is empty, and 13 didn't come. Its record counts once something came after it.
    presences.reported(record("r1", "killed", 20, outbox_records=1, dropped=(drop,)), 110 * S)
    presences.reported(record("r2", "running", 5, previous_run="r1", outbox_records=0), 111 * S)
    presences.status("mast-07", "r2", Status("online", "healthy", 110 * S))
    assert changed(presences, 112) == {}
    presences.stored(*CUP, "r2", 1, 5)
    arrive(presences, 112)
    assert changed(presences, 112) == {CUP: ("online", 0, 1, 2)}
    # The broker's will of the first run comes late, and doesn't count for the second.
    presences.status("mast-07", "r1", Status("offline", None, 113 * S))
    assert changed(presences, 114) == {}

    # A hole that is in the outbox is pending; the run stops and has nothing any more: it is lost.
    presences.stored(*CUP, "r2", 8, 10)
    arrive(presences, 120)
    presences.reported(record("r2", "running", 10, previous_run="r1", outbox_records=2), 119 * S)
    assert changed(presences, 120) == {CUP: ("online", 2, 1, 2)}
    presences.reported(record("r2", "stopped", 10, previous_run="r1"), 130 * S)
    presences.status("mast-07", "r2", Status("offline", None, 130 * S))
    assert changed(presences, 131) == {CUP: ("offline", 2, 1, 2)}
    assert changed(presences, 130 + SETTLE_US // S) == {CUP: ("offline", 0, 3, 2)}
    # What comes at last is not lost.
    presences.stored(*CUP, "r2", 6, 7)
    presences.stored(*CUP, "r1", 12, 13)
    assert changed(presences, 500) == {CUP: ("offline", 0, 0, 1)}


def test_silence_is_five_periods_and_a_minute_at_least() -> None:
    presences = Presences(60)
    arrive(presences, 0)
    arrive(presences, 0, BARO, period_ms=20_000)
    assert changed(presences, 60) == {CUP: ("online", 0, 0, 0), BARO: ("online", 0, 0, 0)}
    assert changed(presences, 61) == {CUP: ("silent", 0, 0, 0)}
    assert changed(presences, 100) == {}
    assert changed(presences, 101) == {BARO: ("silent", 0, 0, 0)}
    arrive(presences, 102)
    assert changed(presences, 103) == {CUP: ("online", 0, 0, 0)}
    # A metered gateway sends once a minute.
    presences.status("mast-07", "r1", Status("online", "metered", 0))
    assert changed(presences, 282) == {}
    assert changed(presences, 283) == {CUP: ("silent", 0, 0, 0)}


@pytest.mark.parametrize("order", list(permutations(range(5))))
def test_the_order_of_records_changes_nothing(order: tuple[int, ...]) -> None:
    presences = Presences(60)
    steps = [
        lambda: presences.reported(record("a", "killed", 10), 50 * S),
        lambda: presences.reported(record("b", "running", 3, previous_run="a"), 40 * S),
        lambda: presences.status("mast-07", "a", Status("offline", None, 60 * S)),
        lambda: presences.stored(*CUP, "a", 2, 10),
        lambda: arrive(presences, 70),
    ]
    for at in order:
        steps[at]()
    presences.set_aside(*CUP, "b", 1, 2)
    # 3 of b is on its way: the run goes on.
    assert changed(presences, 70, all_settled=True) == {CUP: ("online", 1, 1, 0)}


def test_a_run_with_no_more_than_a_status_is_the_newest() -> None:
    presences = Presences(60)
    arrive(presences, 10)
    presences.reported(record("a", "running", 0), 1 * S)
    presences.status("mast-07", "a", Status("offline", None, 5 * S))
    assert changed(presences, 11) == {CUP: ("offline", 0, 0, 0)}
    presences.status("mast-07", "b", Status("online", None, 6 * S))
    assert changed(presences, 11) == {CUP: ("online", 0, 0, 0)}
    # The will of an unknown run is an old one's.
    presences.status("mast-07", "x", Status("offline", None, 9 * S))
    assert changed(presences, 11) == {}


def test_a_run_without_a_record_that_another_names_may_have_lost_its_tail_only() -> None:
    presences = Presences(60)
    presences.stored(*CUP, "gone", 1, 3)
    presences.stored(*CUP, "gone", 5, 6)
    presences.stored("shed", "cup.wind_speed", "own", 4, 4)
    cut = Unfinished("gone", "reset", 2.0)
    presences.reported(record("b", "running", 0, previous_run="gone", unfinished=(cut,)), 1 * S)
    found = changed(presences, 2, all_settled=True)
    # A device that numbers by itself has no record: what it sent is unknown.
    assert found == {CUP: ("silent", 0, 1, 0), ("shed", "cup.wind_speed"): ("silent", 0, 0, 0)}


def test_a_start_without_settled_records_keeps_what_the_table_has() -> None:
    before = Presences(60)
    arrive(before, 10)
    before.stored(*CUP, "a", 1, 3)
    before.reported(record("a", "stopped", 5), 9 * S)
    rows = before.changed(10 * S)
    assert rows[CUP].losses.lost == 2
    after = Presences(60)
    after.reported(record("a", "stopped", 5), 9 * S)
    after.reported(record("b", "running", 0, previous_run="a"), 11 * S)
    for channel, row in rows.items():
        after.restore(channel, row)
    after.stored(*CUP, "a", 1, 3)
    assert changed(after, 12) == {CUP: ("online", 0, 2, 0)}
    arrive(after, 12)
    assert after.changed(13 * S)[CUP].losses.lost == 2
