"""Which rows go next and when, which of them are late, and when they may be removed."""

from __future__ import annotations

import pytest

from gateway.forwarding.backlog import Drain, LateRows, next_batch_s


def test_rows_are_removed_after_their_delivery_together() -> None:
    drain = Drain()
    assert drain.begin() == 0
    drain.fetched(2)
    drain.sent(1)
    drain.sent(2)
    assert drain.remove_at_s == float("inf")
    drain.delivered((1,), 10.0)
    drain.delivered((2,), 10.1)
    assert drain.remove_at_s == 10.2
    assert drain.under_way == 2
    assert drain.take_delivered() == (1, 2)
    assert drain.under_way == 0
    assert drain.remove_at_s == float("inf")
    assert drain.begin() == 2


def test_rows_the_disk_does_not_remove_are_not_sent_again() -> None:
    drain = Drain()
    drain.begin()
    drain.fetched(1)
    drain.sent(1)
    drain.delivered((1,), 10.0)
    drain.removed(drain.take_delivered())
    drain.begin()
    drain.not_removed((1,), 12.0)
    assert drain.under_way_of([1]) == {1}
    # What is delivered meanwhile waits with it: one attempt for all.
    drain.delivered((2,), 10.5)
    assert drain.remove_at_s == 12.0
    assert not drain.idle
    assert drain.take_delivered() == (1, 2)


def test_a_failed_fetch_is_repeated_from_the_same_place() -> None:
    drain = Drain()
    drain.begin()
    drain.fetched(9)
    drain.begin()
    drain.failed()
    assert not drain.busy
    assert drain.begin() == 9


@pytest.mark.parametrize(
    ("ended_s", "next_s"), [(100.5, 160.0), (160.0, 220.0), (219.9, 220.0), (220.0, 280.0), (500.0, 520.0)]
)
def test_a_late_pass_does_not_shift_the_following_ones(ended_s: float, next_s: float) -> None:
    assert next_batch_s(100.0, 60.0, ended_s) == next_s


def late_of(late: LateRows, *numbers: int) -> list[int]:
    return [number for number in numbers if number in late]


def test_rows_of_an_earlier_run_are_late_and_this_runs_only_once_they_are_old() -> None:
    late = LateRows(60.0)
    assert late_of(late, 1, 40) == [1, 40]
    late.stored([100.0, 100.4], [41, 42])
    late.stored([101.5], [43])
    late.tick(160.0)
    assert late_of(late, 40, 41, 42, 43) == [40]
    late.tick(160.1)
    assert late_of(late, 40, 41, 42, 43) == [40, 41, 42]
    late.tick(200.0)
    assert late_of(late, 43) == [43]


def test_what_another_part_of_the_outbox_stored_is_late_among_this_runs_rows() -> None:
    late = LateRows(60.0)
    late.stored([100.0, 100.4], [41, 42])
    # 43 to 45 were in a damaged file.
    late.stored([101.5], [46])
    late.tick(102.0)
    assert late_of(late, *range(40, 48)) == [40, 43, 44, 45, 47]


def test_what_waited_in_memory_is_late_when_it_is_stored_and_what_came_with_it_is_not() -> None:
    late = LateRows(60.0)
    late.stored([0.0, 30.0, 59.0, 100.0], [1, 2, 3, 4])
    late.tick(100.0)
    assert late_of(late, 1, 2, 3, 4) == [1, 2]


def test_an_outage_of_days_is_remembered_as_the_seconds_that_are_not_late() -> None:
    late = LateRows(60.0)
    most = 0
    for commit in range(100_000):
        late.stored([commit * 0.1] * 2, [2 * commit + 1, 2 * commit + 2])
        late.tick(commit * 0.1)
        most = max(most, len(late._seconds))
    assert most <= 62
    assert late_of(late, 2 * 99_399, 2 * 99_410) == [2 * 99_399]


def test_rows_that_come_out_of_order_wait_for_those_before_them() -> None:
    late = LateRows(60.0)
    # What a refusing disk has handed back is older than a parked topic's last one, which is stored already.
    late.stored([5.0], [1])
    late.stored([2.0, 9.0], [2, 3])
    late.tick(62.5)
    assert late_of(late, 1, 2, 3) == []
    late.tick(65.1)
    assert late_of(late, 1, 2, 3) == [1, 2]
