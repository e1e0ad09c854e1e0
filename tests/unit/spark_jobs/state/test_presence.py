"""What is said of channels and gateways, over a story told step by step."""

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


def told(
    presences: Presences, now_s: int, *, all_told: bool = False
) -> dict[Channel, tuple[str, int, int, int]]:
    """The rows that changed: state, pending, lost, announced."""
    return {
        channel: (row.state, row.losses.pending, row.losses.lost, row.losses.announced)
        for channel, row in presences.changed(now_s * S, all_told=all_told).items()
    }


def heard(presences: Presences, at_s: int, channel: Channel = CUP, period_ms: int = 1000) -> None:
    presences.arrived(channel, Arrival(at_s * S, at_s * S, 7.0, period_ms))


def test_a_story_of_two_runs() -> None:
    presences = Presences(60)
    # 1–10 and 14–20 have arrived; 11 and 12 are announced as dropped, 13 waits in the outbox.
    heard(presences, 100)
    presences.stored(*CUP, "r1", 1, 10)
    presences.stored(*CUP, "r1", 14, 20)
    drop = DroppedRange("OUTBOX_FULL", "mast-07", "r1", CUP[1], 11, 12)
    presences.told(record("r1", "running", 20, outbox_records=1, dropped=(drop,)), 99 * S)
    presences.status("mast-07", "r1", Status("online", "healthy", 1 * S))
    assert told(presences, 101) == {CUP: ("online", 1, 0, 2)}
    assert told(presences, 102) == {}

    # The next run: the outbox is empty, and 13 didn't come. Its record counts once something came after it.
    presences.told(record("r1", "killed", 20, outbox_records=1, dropped=(drop,)), 110 * S)
    presences.told(record("r2", "running", 5, previous_run="r1", outbox_records=0), 111 * S)
    presences.status("mast-07", "r2", Status("online", "healthy", 110 * S))
    assert told(presences, 112) == {}
    presences.stored(*CUP, "r2", 1, 5)
    heard(presences, 112)
    assert told(presences, 112) == {CUP: ("online", 0, 1, 2)}
    # The broker's will of the first run comes late, and says nothing of the second.
    presences.status("mast-07", "r1", Status("offline", None, 113 * S))
    assert told(presences, 114) == {}

    # A hole that is in the outbox is pending; the run stops and has nothing any more: it is lost.
    presences.stored(*CUP, "r2", 8, 10)
    heard(presences, 120)
    presences.told(record("r2", "running", 10, previous_run="r1", outbox_records=2), 119 * S)
    assert told(presences, 120) == {CUP: ("online", 2, 1, 2)}
    presences.told(record("r2", "stopped", 10, previous_run="r1"), 130 * S)
    presences.status("mast-07", "r2", Status("offline", None, 130 * S))
    assert told(presences, 131) == {CUP: ("offline", 2, 1, 2)}
    assert told(presences, 130 + SETTLE_US // S) == {CUP: ("offline", 0, 3, 2)}
    # What comes at last is not lost.
    presences.stored(*CUP, "r2", 6, 7)
    presences.stored(*CUP, "r1", 12, 13)
    assert told(presences, 500) == {CUP: ("offline", 0, 0, 1)}


def test_silence_is_five_periods_and_a_minute_at_least() -> None:
    presences = Presences(60)
    heard(presences, 0)
    heard(presences, 0, BARO, period_ms=20_000)
    assert told(presences, 60) == {CUP: ("online", 0, 0, 0), BARO: ("online", 0, 0, 0)}
    assert told(presences, 61) == {CUP: ("silent", 0, 0, 0)}
    assert told(presences, 100) == {}
    assert told(presences, 101) == {BARO: ("silent", 0, 0, 0)}
    heard(presences, 102)
    assert told(presences, 103) == {CUP: ("online", 0, 0, 0)}
    # A metered gateway sends once a minute.
    presences.status("mast-07", "r1", Status("online", "metered", 0))
    assert told(presences, 282) == {}
    assert told(presences, 283) == {CUP: ("silent", 0, 0, 0)}


@pytest.mark.parametrize("order", list(permutations(range(5))))
def test_the_order_in_which_it_is_told_changes_nothing(order: tuple[int, ...]) -> None:
    presences = Presences(60)
    steps = [
        lambda: presences.told(record("a", "killed", 10), 50 * S),
        lambda: presences.told(record("b", "running", 3, previous_run="a"), 40 * S),
        lambda: presences.status("mast-07", "a", Status("offline", None, 60 * S)),
        lambda: presences.stored(*CUP, "a", 2, 10),
        lambda: heard(presences, 70),
    ]
    for at in order:
        steps[at]()
    presences.set_aside(*CUP, "b", 1, 2)
    # 3 of b is on its way: the run goes on.
    assert told(presences, 70, all_told=True) == {CUP: ("online", 1, 1, 0)}


def test_a_run_that_has_said_no_more_than_online_is_the_newest() -> None:
    presences = Presences(60)
    heard(presences, 10)
    presences.told(record("a", "running", 0), 1 * S)
    presences.status("mast-07", "a", Status("offline", None, 5 * S))
    assert told(presences, 11) == {CUP: ("offline", 0, 0, 0)}
    presences.status("mast-07", "b", Status("online", None, 6 * S))
    assert told(presences, 11) == {CUP: ("online", 0, 0, 0)}
    # The will of a run nobody knows is an old one's.
    presences.status("mast-07", "x", Status("offline", None, 9 * S))
    assert told(presences, 11) == {}


def test_a_run_without_a_record_that_another_names_may_have_lost_its_tail_only() -> None:
    presences = Presences(60)
    presences.stored(*CUP, "gone", 1, 3)
    presences.stored(*CUP, "gone", 5, 6)
    presences.stored("shed", "cup.wind_speed", "own", 4, 4)
    cut = Unfinished("gone", "reset", 2.0)
    presences.told(record("b", "running", 0, previous_run="gone", unfinished=(cut,)), 1 * S)
    found = told(presences, 2, all_told=True)
    # A device that numbers by itself has no record: nobody knows what it sent.
    assert found == {CUP: ("silent", 0, 1, 0), ("shed", "cup.wind_speed"): ("silent", 0, 0, 0)}


def test_a_start_without_settled_records_keeps_what_the_table_says() -> None:
    before = Presences(60)
    heard(before, 10)
    before.stored(*CUP, "a", 1, 3)
    before.told(record("a", "stopped", 5), 9 * S)
    rows = before.changed(10 * S)
    assert rows[CUP].losses.lost == 2
    after = Presences(60)
    after.told(record("a", "stopped", 5), 9 * S)
    after.told(record("b", "running", 0, previous_run="a"), 11 * S)
    for channel, row in rows.items():
        after.restore(channel, row)
    after.stored(*CUP, "a", 1, 3)
    assert told(after, 12) == {CUP: ("online", 0, 2, 0)}
    heard(after, 12)
    assert after.changed(13 * S)[CUP].losses.lost == 2
