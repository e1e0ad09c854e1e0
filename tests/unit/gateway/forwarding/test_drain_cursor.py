"""Which rows go next, and when they may be removed."""

from __future__ import annotations

import pytest

from gateway.forwarding.drain_cursor import MOST_OPEN, Drain


def test_rows_are_removed_after_their_delivery_together() -> None:
    drain = Drain()
    assert drain.begin() == 0
    drain.fetched(2)
    drain.sent(1)
    drain.sent(2)
    assert drain.remove_at_s() == float("inf")
    drain.delivered((1,), 10.0)
    drain.delivered((2,), 10.1)
    assert drain.remove_at_s() == 10.2
    assert drain.under_way == 2
    assert drain.take_delivered() == (1, 2)
    assert drain.under_way == 0
    assert drain.remove_at_s() == float("inf")
    assert drain.begin() == 2


def test_a_whole_batch_at_the_sink_is_enough() -> None:
    drain = Drain()
    for number in range(1, MOST_OPEN + 1):
        assert not drain.busy
        drain.sent(number)
    assert drain.busy


def test_rows_the_disk_will_not_forget_are_not_sent_again() -> None:
    drain = Drain()
    drain.begin()
    drain.fetched(1)
    drain.sent(1)
    drain.delivered((1,), 10.0)
    drain.removed(drain.take_delivered())
    drain.begin()
    drain.not_removed((1,), 12.0)
    assert drain.is_under_way(1)
    drain.delivered((2,), 10.5)
    # What can be forgotten, in memory maybe, doesn't wait for what the disk refused.
    assert drain.remove_at_s() == pytest.approx(10.7)
    assert drain.take_delivered(11.0) == (2,)
    assert drain.remove_at_s() == 12.0
    assert not drain.idle
    assert drain.take_delivered(12.0) == (1,)


def test_what_was_not_delivered_stays_and_is_fetched_before_anything_newer() -> None:
    drain = Drain()
    drain.begin()
    drain.fetched(6)
    for number in (4, 5, 6):
        drain.sent(number)
    drain.delivered((4,), 1.0)
    drain.undelivered(5)
    drain.delivered((6,), 1.0)
    assert drain.begin() == 4
    assert drain.take_delivered() == (4, 6)


def test_no_row_is_sent_twice() -> None:
    drain = Drain()
    drain.begin()
    drain.fetched(3)
    for number in (1, 2, 3):
        drain.sent(number)
    drain.delivered((1,), 1.0)
    drain.begin()
    drain.delivered((2,), 1.0)
    drain.removed(drain.take_delivered())
    assert [number for number in (1, 2, 3, 4) if drain.is_under_way(number)] == [1, 2, 3]
    drain.begin()
    assert [number for number in (1, 2, 3, 4) if drain.is_under_way(number)] == [3]


def test_after_the_end_the_next_fetch_starts_over_and_a_fruitless_pass_says_so() -> None:
    drain = Drain()
    drain.begin()
    assert drain.fetched(9)
    drain.sent(9)
    assert drain.begin() == 9
    assert drain.fetched(None)
    assert drain.begin() == 0
    assert drain.fetched(9)
    assert drain.begin() == 9
    assert not drain.fetched(None)


def test_a_failed_fetch_is_asked_again_from_the_same_place() -> None:
    drain = Drain()
    drain.begin()
    drain.fetched(9)
    drain.begin()
    drain.failed()
    assert not drain.busy
    assert drain.begin() == 9
