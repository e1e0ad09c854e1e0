"""Counting what the local broker publishes as dropped."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st

from gateway.mqtt.broker_drops import BrokerDrops


def record(run: object, counter: object) -> bytes:
    return json.dumps({"run": run, "broker_counter": counter}).encode()


def test_nothing_published_is_unknown_and_not_0() -> None:
    drops = BrokerDrops("thisrun")
    drops.connected(session_present=False)
    assert (drops.count, drops.counter, drops.due(0.0)) == (None, None, None)


def test_a_broker_that_has_lost_our_session_counts_from_0() -> None:
    drops = BrokerDrops("thisrun")
    drops.update(b"0")
    drops.update(b"5")
    drops.connected(session_present=True)
    drops.update(b"5")
    drops.connected(session_present=False)
    drops.update(b"7")
    assert drops.count == 12


@pytest.mark.parametrize("record_first", [True, False])
def test_a_run_goes_on_where_the_one_before_left_off(record_first: bool) -> None:
    drops = BrokerDrops("thisrun")
    if record_first:
        drops.inherit(record("earlier", 4))
    drops.update(b"7")
    if not record_first:
        drops.inherit(record("earlier", 4))
    drops.update(b"12")
    # Its own record comes at each further connect, and never counts.
    drops.inherit(record("thisrun", 2))
    drops.inherit(record("earlier", 1))
    assert drops.count == 8


@pytest.mark.parametrize(
    "payload",
    [
        b"", b"x", b"[]", b"{}", b"[" * 100_000, record("earlier", None), record("earlier", -1),
        record("earlier", True), record("earlier", "3"), record("thisrun", 3),
    ],
)  # fmt: skip
def test_a_record_without_a_counter_changes_nothing(payload: bytes) -> None:
    drops = BrokerDrops("thisrun")
    drops.inherit(payload)
    drops.update(b"7")
    assert drops.count == 0


@pytest.mark.parametrize("payload", [b"", b"-1", b"1.5", b"seven", b"\xff", "٣".encode(), b"9" * 19])
def test_what_is_no_counter_is_not_believed(payload: bytes) -> None:
    drops = BrokerDrops("thisrun")
    drops.update(payload)
    assert drops.count is None


def test_growth_is_announced_at_once_and_then_once_a_minute() -> None:
    drops = BrokerDrops("thisrun")
    drops.update(b"0")
    assert drops.due(0.0) is None
    drops.update(b"3")
    assert drops.due(1.0) == 3
    drops.update(b"5")
    assert drops.due(60.9) is None
    drops.update(b"6")
    assert drops.due(61.0) == 3
    assert drops.due(200.0) is None
    drops.update(b"7")
    assert drops.due(201.0) == 1
    drops.update(b"8")
    assert drops.due(202.0, at_once=True) == 1


@given(
    st.lists(st.tuples(st.sampled_from(["drop", "publish", "reconnect", "restart"]), st.integers(0, 9))),
    st.booleans(),
)
def test_over_reconnects_and_restarts_all_that_was_published_is_counted(
    steps: list[tuple[str, int]], keeps_the_session: bool
) -> None:
    """A broker that restarts without publishing its last count takes that with it; all else is counted.

    One that keeps the session over a restart hides it until its counter is below the last one seen.
    """
    drops = BrokerDrops("thisrun")
    drops.connected(session_present=False)
    drops.update(b"0")
    counter = published = total = 0
    for step, number in steps:
        if step == "drop":
            counter += number
        elif step == "restart":
            counter = 0
            drops.connected(session_present=keeps_the_session)
            published = published if keeps_the_session else 0
        else:
            if step == "reconnect":
                drops.connected(session_present=True)
            drops.update(b"%d" % counter)
            total += counter - published if counter >= published else counter
            published = counter
    assert drops.count == total
