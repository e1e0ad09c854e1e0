"""Delays double up to their bound and begin again after a reset."""

from __future__ import annotations

from cloud.backoff import Backoff, backoff_s


def test_delays_double_up_to_the_longest_and_begin_again() -> None:
    backoff = Backoff(1.0, 5.0)
    assert [backoff.next() for _ in range(5)] == [1.0, 2.0, 4.0, 5.0, 5.0]
    backoff.reset()
    assert backoff.delay_s == 1.0
    assert [backoff.next() for _ in range(2)] == [1.0, 2.0]


def test_a_delay_by_the_number_of_failures() -> None:
    assert [backoff_s(failures, 1.0, 5.0) for failures in (1, 2, 3, 4, 10_000)] == [1.0, 2.0, 4.0, 5.0, 5.0]
