"""Thousands of open alerts of one gateway are one; each alert is published whole or not at all."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, strategies as st
from msgspec.structs import replace

from cloud.wire.alert_records import AlertRecord
from spark_jobs.alerting.engine import Engine
from spark_jobs.alerting.gateway_state import Sample
from spark_jobs.alerting.notifications import CROWD, FLEET, FLEET_PER_HOUR, MOST, PER_HOUR, Crowds, Notifier
from tests.support.rules import rules_of as rules

S = 1_000_000
T0 = 1_780_000_020 * S
SILENT = """
[[rule]]
name = "silent"
kind = "silent"
periods = 10
severity = "critical"
"""


def record(
    number: int, state: Any = "raised", gateway: str = "mast-07", severity: str = "warning"
) -> AlertRecord:
    at = "2026-11-28T10:00:00.000Z"
    return AlertRecord(
        id=f"mast-07-{number}", rule="hot", rule_version="1", severity="warning", gateway="mast-07",
        channel=f"box{number}.temperature", state=state, raised_at=at, reported_at=at, historical=False,
        cleared_at=None if state == "raised" else at,
    )  # fmt: skip


def again(crowds: Crowds) -> Crowds:
    """As after a restart."""
    found = Crowds()
    found.restore(msgspec.json.decode(msgspec.json.encode(crowds.to_state())))
    return found


def test_five_thousand_invented_channels_are_some_tens_of_alerts_and_one_more() -> None:
    engine, crowds, notifier = Engine(rules(SILENT)), Crowds(), Notifier()

    def sample(channel: str, second: int, gateway: str = "mast-07") -> Sample:
        return Sample(gateway, channel, T0 + second * S, S, 1.0, 1, False, T0 + second * S)

    published: list[AlertRecord] = []
    named = [sample(f"x{number}.temperature", 0) for number in range(5000)]
    assert not engine.observe([*named, sample("b.temperature", 0, "m2")], T0 + S)
    ours = [("box.temperature", "mast-07"), ("a.temperature", "m2")]
    later = [sample(channel, second, of) for second in range(100) for channel, of in ours]
    events = engine.observe(later, T0 + 100 * S)
    for second in (101, 107):
        events += engine.evaluate_silence(T0 + second * S)
    assert len(events) == 5001
    published += crowds.pass_on(notifier.records(events, T0)[0], T0 + 110 * S)
    assert len(published) == MOST + 2
    (crowd,) = (each for each in published if each.rule == CROWD[0])
    assert (crowd.gateway, crowd.channel, crowd.severity, crowd.value) == ("mast-07", None, "critical", 4960)
    assert "4960 alerts" in crowd.detail
    assert [each.channel for each in published if each.gateway == "m2"] == ["b.temperature"]


def test_what_was_withheld_ends_without_a_word_and_the_crowd_with_the_last() -> None:
    crowds = Crowds()
    many = range(MOST + 10)
    first = crowds.pass_on([record(number) for number in many], T0)
    assert [each.id for each in first[:-1]] == [f"mast-07-{number}" for number in range(MOST)]
    # More are said again once they have doubled, under the same id.
    assert not again(crowds).pass_on([record(number + 100) for number in range(9)], T0)
    doubled = again(crowds).pass_on([record(number + 100) for number in range(10)], T0 + S)
    assert [(each.id, each.value) for each in doubled] == [(first[-1].id, 20.0)]
    crowds = again(crowds)
    ended = crowds.pass_on([record(number, "cleared") for number in many], T0 + 9 * S)
    assert [each.id for each in ended] == [each.id for each in first]
    assert {each.state for each in ended} == {"cleared"}
    assert not crowds.pass_on([], T0 + 3601 * S)
    assert not crowds.to_state()
    assert [each.rule for each in crowds.pass_on([record(1)], T0)] == ["hot"]


def test_rules_that_are_gone_take_their_withheld_alerts_along_and_a_lost_state_its_crowd() -> None:
    crowds = Crowds()
    first = crowds.pass_on([record(number) for number in range(MOST + 1)], T0)
    assert not again(crowds).forget_rules([("hot", "1")], T0)
    (ended,) = crowds.forget_rules([("hot", "2")], T0 + S)
    assert (ended.id, ended.state) == (first[-1].id, "cleared")
    lost = Crowds()
    lost.adopt("mast-07", "mast-07-0", "critical")
    (ended,) = lost.ended("mast-07", T0, T0 + S)
    assert (ended.id, ended.state) == (first[-1].id, "cleared")


@given(st.lists(st.tuples(st.integers(0, 60), st.booleans(), st.booleans()), max_size=300))
def test_each_alert_that_is_published_ends_and_no_other_does(steps: list[tuple[int, bool, bool]]) -> None:
    crowds = Crowds()
    stands: set[int] = set()
    shown: set[str] = set()
    for number, raises, restarts in [*steps, *((each, False, False) for each in range(61))]:
        if raises == (number in stands):
            continue
        (stands.add if raises else stands.remove)(number)
        crowds = again(crowds) if restarts else crowds
        for each in crowds.pass_on([record(number, "raised" if raises else "cleared")], T0):
            if each.state == "raised":
                shown.add(each.id)
            else:
                shown.remove(each.id)
        assert len(shown) <= MOST + 1
    assert not shown


def test_a_critical_alert_never_waits_behind_notes() -> None:
    crowds = Crowds()
    notes = [replace(record(number), severity="info") for number in range(MOST + 10)]
    *shown, crowd = crowds.pass_on(notes, T0)
    assert (len(shown), crowd.severity) == (MOST, "info")
    critical = replace(record(1000), severity="critical")
    assert crowds.pass_on([critical], T0) == [critical]
    # Of more critical ones than are shown the one for all says it at once.
    many = [replace(record(2000 + number), severity="critical") for number in range(MOST)]
    *passed, crowd = again(crowds).pass_on(many, T0)
    assert (len(passed), crowd.rule, crowd.severity) == (MOST - 1, CROWD[0], "critical")


def test_what_was_withheld_is_published_when_there_is_a_place_again() -> None:
    crowds = Crowds()
    crowds.pass_on([record(number) for number in range(MOST + 5)], T0)
    assert not crowds.pass_on([], T0 + S)
    (raised,) = again(crowds).pass_on([record(0, "cleared")], T0 + S)[1:]
    assert raised == record(MOST)
    *cleared, last = crowds.pass_on([record(number, "cleared") for number in range(5)], T0 + S)
    assert [each.id for each in cleared[5:]] == [f"mast-07-{MOST + number}" for number in range(5)]
    assert (last.rule, last.state) == (CROWD[0], "cleared")


def test_an_alert_that_comes_and_goes_is_so_many_an_hour() -> None:
    crowds, published = Crowds(), 0
    for number in range(1000):
        for state in ("raised", "cleared"):
            found = crowds.pass_on([record(number, state)], T0 + number * S)
            published += sum(each.rule == "hot" and each.state == "raised" for each in found)
    assert published == PER_HOUR
    assert record(7777) in crowds.pass_on([record(7777)], T0 + 3601 * S)


def test_of_a_whole_fleet_so_many_are_raised_an_hour_and_one_says_how_many_wait() -> None:
    crowds = Crowds()
    masts = [
        replace(record(number), id=f"m-{number}", gateway=f"mast-{number}")
        for number in range(FLEET_PER_HOUR + 30)
    ]
    *shown, crowd = crowds.pass_on(masts, T0)
    assert shown == masts[:FLEET_PER_HOUR]
    assert (crowd.gateway, crowd.value, crowd.detail) == (
        FLEET, 30.0, "the fleet: 30 alerts or more beyond the 1200 of an hour"
    )  # fmt: skip
    # Of another severity there are places, and with the hour's end for these too.
    critical = replace(masts[0], id="critical", severity="critical")
    assert again(crowds).pass_on([critical], T0 + S) == [critical]
    assert not crowds.pass_on([], T0 + 3599 * S)
    *later, over = crowds.pass_on([], T0 + 3600 * S)
    assert later == masts[FLEET_PER_HOUR:]
    assert (over.gateway, over.state) == (FLEET, "cleared")
