"""When a metered uplink sends what is stored, and what of it is late."""

from __future__ import annotations

import pytest

from gateway.forwarding.spill import Batches, Pace


def test_live_waits_for_kafka_half_the_interval_and_in_an_outage_nearly_all_of_it() -> None:
    pace = Pace(2.0)
    assert (pace.store_after_s(answering=True), pace.store_after_s(answering=False)) == (1.0, 1.8)
    assert pace.verdict_s == 1.0
    assert not pace.metered


def test_metered_stores_everything_once_per_interval_and_is_patient_with_kafka() -> None:
    pace = Pace(2.0, 60.0)
    assert (pace.store_after_s(answering=True), pace.store_after_s(answering=False)) == (1.8, 1.8)
    assert pace.verdict_s == 30.0
    assert pace.metered


def test_live_rows_may_go_at_any_time_and_are_late() -> None:
    batches = Batches(None)
    batches.stored([1, 2])
    batches.tick(5.0)
    batches.end()
    assert batches.wake_s() == float("-inf")
    assert batches.is_late(2)


def test_a_pass_begins_at_once_and_then_every_batch() -> None:
    batches = Batches(60.0)
    batches.tick(100.0)
    # The pass goes on until it has come to the newest row.
    assert batches.wake_s() == float("-inf")
    batches.end()
    assert batches.wake_s() == 160.0


@pytest.mark.parametrize(
    ("late_at_s", "next_s"), [(160.0, 220.0), (219.9, 220.0), (220.0, 280.0), (500.0, 520.0)]
)
def test_a_late_pass_does_not_shift_the_following_ones(late_at_s: float, next_s: float) -> None:
    batches = Batches(60.0)
    batches.tick(100.0)
    batches.end()
    batches.tick(late_at_s)
    batches.end()
    assert batches.wake_s() == next_s


def test_late_is_what_was_there_at_the_start_or_what_an_earlier_pass_left() -> None:
    batches = Batches(60.0)
    assert batches.is_late(40)
    batches.tick(0.0)
    batches.end()
    batches.stored([41, 42])
    assert (batches.is_late(40), batches.is_late(41)) == (True, False)
    batches.tick(60.0)
    # Stored before the pass at 60 s and still there at 120 s: left behind.
    batches.stored([43])
    assert not batches.is_late(42)
    # That pass has not come to its end, and the next one is due.
    batches.tick(120.0)
    assert (batches.is_late(42), batches.is_late(43)) == (True, False)
