"""Delays double up to their bound and begin again after a reset."""

from __future__ import annotations

from gateway.system.backoff import Backoff


def test_delays_double_up_to_the_longest_and_begin_again() -> None:
    backoff = Backoff(1.0, 5.0)
    assert [backoff.next() for _ in range(5)] == [1.0, 2.0, 4.0, 5.0, 5.0]
    backoff.reset()
    assert backoff.delay_s == 1.0
    assert [backoff.next() for _ in range(2)] == [1.0, 2.0]
