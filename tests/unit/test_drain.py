"""Which rows go next, and when they may be removed."""

from __future__ import annotations

from gateway.drain import Drain


def test_rows_are_removed_together_once_the_whole_batch_is_told() -> None:
    drain = Drain()
    assert drain.begin() == 0
    drain.fetched([1, 2])
    drain.sent(1)
    drain.sent(2)
    assert drain.outcome(1, delivered=True) == ()
    assert drain.busy
    assert drain.outcome(2, delivered=True) == (1, 2)
    assert not drain.busy
    assert drain.begin() == 2


def test_what_was_not_delivered_stays_and_is_fetched_before_anything_newer() -> None:
    drain = Drain()
    drain.begin()
    drain.fetched([4, 5, 6])
    for number in (4, 5, 6):
        drain.sent(number)
    drain.outcome(4, delivered=True)
    drain.outcome(5, delivered=False)
    assert drain.outcome(6, delivered=True) == (4, 6)
    assert drain.begin() == 4


def test_after_the_end_the_next_fetch_starts_over() -> None:
    drain = Drain()
    drain.begin()
    drain.fetched([9])
    assert drain.begin() == 9
    drain.fetched([])
    assert drain.begin() == 0


def test_a_failed_fetch_is_asked_again_from_the_same_place() -> None:
    drain = Drain()
    drain.begin()
    drain.fetched([9])
    drain.begin()
    drain.failed()
    assert not drain.busy
    assert drain.begin() == 9
