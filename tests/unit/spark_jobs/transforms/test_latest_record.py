"""What a run, a calibration or a status is once all its records have come, in whatever order."""

from __future__ import annotations

from functools import reduce
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, strategies as st

from cloud.wire.fields import InvalidFields
from spark_jobs.transforms.records import Row, calibration, furthest_run, last_status, revised


def run(state: str, cup: int, *, revision: int = 0, reported_at: int = 0, waits: int = 0) -> Row:
    return {
        "gateway": "mast-07", "run": "r1", "state": state, "last_seq": [("a", cup), ("b", 1)],
        "revision": revision, "reported_at": reported_at, "outbox_records": waits,
    }  # fmt: skip


def cal(revision: int, begin: int | None, **more: Any) -> Row:
    row = dict.fromkeys(
        ("driver", "quantity", "unit", "slope", "offset", "model", "serial", "certificate", "lab",
         "calibrated", "expires", "height_m", "boom_deg")
    )  # fmt: skip
    return row | {"settings": [("a", "1"), ("b", "2")], "revision": revision, "valid_from": begin} | more


def status(state: str, at: int, revision: int) -> Row:
    return {"state": state, "reported_at": at, "reported_offset": at, "revision": revision}


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_a_killed_run_stays_killed_whatever_comes_late(order: tuple[int, ...]) -> None:
    records = [
        run("running", 4, revision=1, reported_at=1),
        run("running", 9, revision=3, reported_at=9),
        run("killed", 8, revision=2, reported_at=5),
        run("running", 4, revision=2, reported_at=7, waits=3),
    ]
    assert reduce(furthest_run, (records[at] for at in order), None) == records[2]


def test_of_two_as_far_the_higher_revision_counts_and_then_kafkas_time() -> None:
    first, second = run("running", 4, revision=2, reported_at=7), run("running", 4, revision=3, reported_at=1)
    assert furthest_run(first, second) == furthest_run(second, first) == second
    early, late = run("running", 4, reported_at=1), run("running", 4, reported_at=2)
    assert furthest_run(early, late) == furthest_run(late, early) == late
    assert furthest_run(late, dict(late)) is late


@given(st.permutations([cal(5, 300, pair="x"), cal(7, None, pair="y"), cal(9, 900, pair="z"), cal(8, 800)]))
def test_a_calibration_keeps_its_earliest_beginning_and_its_highest_revision(order: list[Row]) -> None:
    row = reduce(calibration, order, None)
    assert row is not None
    assert (row["revision"], row["valid_from"], row["pair"]) == (9, 300, "z")
    # Nothing new is the very same row: it needn't be written.
    assert calibration(row, cal(5, 300)) is row


def test_what_determines_a_value_never_changes_under_one_cal() -> None:
    first = cal(1, 100, slope=0.765)
    with pytest.raises(InvalidFields, match="CAL_CHANGED: slope"):
        calibration(first, cal(2, 100, slope=0.766))
    # Settings are a map: their order doesn't count.
    assert calibration(first, cal(1, 100, slope=0.765, settings=[("b", "2"), ("a", "1")])) is first


def test_a_status_goes_by_kafkas_order_unless_it_is_an_old_one_stored() -> None:
    online, newer, will = status("online", 1, 3), status("online", 2, 4), status("offline", 3, 0)
    assert last_status(None, online) is online
    assert last_status(online, newer) == newer
    assert last_status(newer, status("online", 5, 2)) is newer
    ended = last_status(newer, will)
    assert (ended["state"], ended["revision"]) == ("offline", 4)
    # An older one that was stored doesn't undo the will, a newer one does.
    assert last_status(ended, status("online", 6, 4 - 1))["state"] == "offline"
    assert last_status(ended, status("online", 6, 5))["state"] == "online"
    # All of it again, from the beginning.
    assert last_status(ended, online) is ended


@pytest.mark.parametrize("order", list(permutations((1, 3, 2, 3))))
def test_of_a_sites_records_the_highest_revision_counts(order: tuple[int, ...]) -> None:
    known: Row | None = None
    for revision in order:
        known = revised(known, {"revision": revision, "name": f"r{revision}"})
    assert known == {"revision": 3, "name": "r3"}
