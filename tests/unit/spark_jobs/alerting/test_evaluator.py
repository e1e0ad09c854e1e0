"""Rules on readings: when alerts are raised, by what, and that nothing late is acted upon."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from cloud.wire.fields import parse_time
from spark_jobs.alerting.alarm import OpenAlert, Transition
from spark_jobs.alerting.engine import PARTS, Engine, IntervalRow
from spark_jobs.alerting.evaluator import AlertEvent
from spark_jobs.alerting.gateway_state import GatewayState, Sample
from spark_jobs.alerting.notifications import Notifier, closing, command_id, merged_row
from spark_jobs.alerting.rules import Anomaly, Calibration, Event, Health, Recovery, Wear, alert_id
from spark_jobs.platform.errors import SettingsError
from tests.support.rules import rules_of as rules

S = 1_000_000
T0 = 1_780_000_020 * S
HOT = """
[[rule]]
name = "hot"
kind = "threshold"
quantity = "temperature"
above = 60.0
clear = 55.0
"""


def sample(
    second: float,
    value: float | None,
    *,
    channel: str = "box.temperature",
    gateway: str = "mast-07",
    quality: int = 1,
    replayed: bool = False,
    period_s: float = 1.0,
) -> Sample:
    time_us = T0 + round(second * S)
    return Sample(gateway, channel, time_us, round(period_s * S), value, quality, replayed, time_us + S)


def run(engine: Engine, samples: Iterable[Sample]) -> list[AlertEvent]:
    """Each sample judged a second after its time, as a live stream would."""
    return [events for item in samples for events in engine.observe([item], item.time_us + S)]


def short(events: Iterable[AlertEvent]) -> list[tuple[str, float, float, bool]]:
    return [(t.transition.name, (t.since_us - T0) / S, (t.time_us - T0) / S, t.live) for t in events]


def stored(engine: Engine) -> Any:
    """Its state as a file has it."""
    return msgspec.json.decode(msgspec.json.encode(engine.to_state()))


def raised(events: Iterable[AlertEvent]) -> list[OpenAlert]:
    """The alerts that stand after these events, as the table has them."""
    found: dict[Any, OpenAlert] = {}
    for event in events:
        key = (event.rule.id, event.gateway, event.channel, event.since_us)
        if event.transition is Transition.CLEARED:
            found.pop(key, None)
        else:
            found[key] = OpenAlert(*key, event.since_us, event.live)
    return list(found.values())


def ids(events: Iterable[AlertEvent]) -> list[str]:
    return [record.id for record in Notifier().records(events, T0)[0]]


# Thresholds ----------------------------------------------------------------------------------------------


def test_below_a_limit() -> None:
    engine = Engine(rules('[[rule]]\nname = "low"\nkind = "threshold"\nbelow = 11.0\nclear = 12.0\n'))
    events = run(engine, [sample(at, value) for at, value in enumerate([11, 10.9, 11.5, 12])])
    assert short(events) == [("RAISED", 1, 1, True), ("CLEARED", 1, 3, True)]
    assert [t.value for t in events] == [10.9, 12]


@given(st.lists(st.sampled_from([50.0, 57.0, 61.0]), max_size=60), st.integers(0, 5))
def test_as_a_regular_expression_over_the_levels_finds(values: list[float], hold_s: int) -> None:
    engine = Engine(rules(f'{HOT}for = "{hold_s}s"\n'))
    events = run(engine, [sample(at, value) for at, value in enumerate(values)])
    levels = "".join({50.0: "W", 57.0: "B", 61.0: "V"}[value] for value in values)
    expected = []
    for found in re.finditer(f"V{{{hold_s + 1}}}[VB]*(W?)", levels):
        expected.append(("RAISED", found.start(), found.start() + hold_s, True))
        if found[1]:
            expected.append(("CLEARED", found.start(), found.end() - 1, True))
    assert short(events) == expected


def test_only_good_and_unevaluated_values_are_judged() -> None:
    engine = Engine(rules(HOT + 'for = "2s"\n'))
    samples = [sample(at, None if q == 9 else 70, quality=q) for at, q in enumerate([3, 4, 9, 3, 4])]
    assert run(engine, samples) == []
    # Nor do they end or interrupt what is violated.
    later = [sample(10, 70, quality=2), sample(11, 20, quality=4), sample(12, 70), sample(13, 20, quality=3)]
    assert short(run(engine, later)) == [("RAISED", 10, 12, True)]


def test_a_gap_begins_the_hold_off_again() -> None:
    engine = Engine(rules(HOT + 'for = "30s"\n'))
    assert run(engine, [sample(0, 70), sample(1, 70), sample(100, 70)]) == []
    assert short(run(engine, [sample(at, 70) for at in range(101, 132)])) == [("RAISED", 100, 130, True)]


# Late data -----------------------------------------------------------------------------------------------

_LIVE = st.lists(st.sampled_from([50.0, 57.0, 61.0]), min_size=5, max_size=40)


@given(_LIVE, st.data())
def test_late_and_repeated_data_neither_raise_live_alerts_nor_change_them(
    values: list[float], data: st.DataObject
) -> None:
    text = HOT + 'for = "2s"\n'
    samples = [sample(at, value) for at, value in enumerate(values)]
    expected = run(Engine(rules(text)), samples)
    engine, events = Engine(rules(text)), []
    for at, item in enumerate(samples):
        events += run(engine, [item])
        if data.draw(st.booleans()):
            again = sample(data.draw(st.integers(-20, at)), data.draw(st.sampled_from([50.0, 61.0])))
            late = again._replace(replayed=data.draw(st.booleans()))
            events += engine.observe([late], item.time_us + S)
    assert [t for t in events if t.live] == expected
    assert all(not t.live for t in events if t not in expected)


@given(_LIVE, st.integers(0, 1))
def test_replayed_or_old_data_give_historical_alerts_with_the_same_ids(values: list[float], old: int) -> None:
    samples = [sample(at, value) for at, value in enumerate(values)]
    live = run(Engine(rules(HOT)), samples)
    engine = Engine(rules(HOT))
    if old:
        events = [t for s in samples for t in engine.observe([s], s.time_us + 301 * S)]
    else:
        events = run(engine, [s._replace(replayed=True) for s in samples])
    assert ids(events) == ids(live)
    assert not any(t.live for t in events)
    assert not Notifier().records(events, T0)[1]


def test_an_outage_is_judged_when_it_is_delivered_after_newer_data() -> None:
    engine = Engine(rules(HOT))
    events = run(engine, [sample(0, 50), sample(1000, 50), sample(1001, 61)])
    backlog = [sample(at, 70 if 200 <= at < 300 else 50, replayed=True) for at in range(1, 1000)]
    late = engine.observe(backlog, T0 + 1002 * S)
    assert short(events) == [("RAISED", 1001, 1001, True)]
    assert short(late) == [("RAISED", 200, 200, False), ("CLEARED", 200, 300, False)]
    # Once more changes nothing, and the live alert goes on.
    assert engine.observe(backlog, T0 + 1003 * S) == []
    assert short(run(engine, [sample(1003, 50)])) == [("CLEARED", 1001, 1003, True)]


def test_late_data_of_the_time_of_a_known_alert_change_nothing() -> None:
    engine = Engine(rules(HOT))
    run(engine, [sample(10, 70), sample(20, 50), sample(30, 70)])
    # Within 10..20, and after 30: known. Between: well.
    assert engine.observe([sample(at, 70, replayed=True) for at in (12, 15)], T0 + 31 * S) == []
    assert short(engine.observe([sample(25, 70, replayed=True)], T0 + 31 * S)) == [("RAISED", 25, 25, False)]
    # Nothing late comes any more: it ends with its last reading.
    assert engine.end_late_passes(T0 + 600 * S) == []
    assert short(engine.end_late_passes(T0 + 632 * S)) == [("CLEARED", 25, 25, False)]


def test_an_alert_of_late_data_becomes_live_with_the_first_live_value_that_still_violates() -> None:
    engine = Engine(rules(HOT))
    events = run(engine, [sample(0, 70, replayed=True), sample(1, 70, replayed=True), sample(2, 57)])
    assert short(events) == [("RAISED", 0, 0, False)]
    events = run(engine, [sample(3, 70), sample(4, 70), sample(5, 50)])
    assert short(events) == [("PROMOTED", 0, 3, True), ("CLEARED", 0, 5, True)]


@given(_LIVE, st.integers(0, 40), st.data())
def test_batches_and_restarts_change_nothing(values: list[float], hold_s: int, data: st.DataObject) -> None:
    text = (
        f'{HOT}for = "{hold_s % 4}s"\n[[rule]]\nname = "still"\nkind = "stuck"\nfor = "3s"\n'
        '[[rule]]\nname = "two"\nkind = "pair"\ndifference = 5\nwindow = "4s"\n'
        'pairs = [["box.temperature", "lid.temperature"]]\n'
    )
    samples = [
        sample(at, value, channel=channel, replayed=at % 7 == 3)
        for at, value in enumerate(values)
        for channel in ("box.temperature", "lid.temperature")
    ]
    samples = [s for s in samples if s.channel == "box.temperature" or s.value != 57.0]
    # Some come again, late.
    samples += samples[: data.draw(st.integers(0, len(samples)))]
    now_us = T0 + 100 * S
    whole = Engine(rules(text)).observe(samples, now_us)
    engine, events = Engine(rules(text)), []
    while samples:
        size = data.draw(st.integers(1, len(samples)))
        events += engine.observe(samples[:size], now_us)
        samples = samples[size:]
        if data.draw(st.booleans()):
            state = stored(engine)
            engine = Engine(rules(text))
            engine.restore(state)
            # By what is open as by the state: nothing to take over, nothing left over.
            assert engine.adopt(raised(events)) == []
    # Rules are values: those of another engine are equal.
    assert events == whole


def test_parts_together_are_the_whole_state_and_what_rests_costs_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = f'{HOT}for = "2s"\n[[rule]]\nname = "still"\nkind = "stuck"\nfor = "3s"\n{SILENT}'
    engine, files = Engine(rules(text)), []
    for second in range(200):
        # Each gateway pauses now and then, one of its channels ends, and some readings come late.
        names = [f"mast-{each:02d}" for each in range(20) if (second // 40 + each) % 3]
        channels = ("box.temperature", "cup.wind_speed") if second < 150 else ("cup.wind_speed",)
        at, value = second - 9 * (second % 13 == 5), 50 + second // 5 % 4 * 5
        both = [(name, channel) for name in names for channel in channels]
        samples = [sample(at, value, gateway=name, channel=channel) for name, channel in both]
        engine.observe(samples, T0 + second * S)
        engine.evaluate_silence(T0 + second * S)
        if second % 9 == 0:
            engine.end_late_passes(T0 + second * S, 20 * S)
        files.append(engine.to_state(second))
    assert len(engine.evaluate_silence(T0 + 400 * S)) == 20
    files.append(engine.to_state(200))
    kept = {name: state for file in files[-PARTS:] for name, state in file.items()}
    assert {name: bytes(state) for name, state in kept.items()} == {
        name: msgspec.json.encode(gateway.to_state()) for name, gateway in engine._gateways.items()
    }

    def looked_at(*_: object) -> Any:
        raise AssertionError("nothing has changed")

    monkeypatch.setattr(GatewayState, "to_state", looked_at)
    monkeypatch.setattr(GatewayState, "_evaluate_channel", looked_at)
    engine.evaluate_silence(T0 + 500 * S)
    engine.end_late_passes(T0 + 500 * S)
    assert len(engine.to_state()) == 20


def test_a_violation_that_began_before_a_restart_began_then() -> None:
    text = HOT + 'for = "3s"\n'
    engine = Engine(rules(text))
    assert run(engine, [sample(0, 50), sample(1, 70), sample(2, 70)]) == []
    restarted = Engine(rules(text))
    restarted.restore(stored(engine))
    assert short(run(restarted, [sample(3, 70), sample(4, 70)])) == [("RAISED", 1, 4, True)]


# Standing still, silence, twins, tables --------------------------------------------------------------------

STUCK = '[[rule]]\nname = "stuck"\nkind = "stuck"\nfor = "5s"\ntolerance = 0.1\nmoving_above = 1.5\n'


def test_stuck_since_the_value_stands() -> None:
    engine = Engine(rules(STUCK))
    values = [3.0, 4.0, 4.05, 4.1, 4.0, 4.0, 4.0, 4.0, 5.0]
    # The daemon's own test has flagged it suspect for the same reason.
    events = run(engine, [sample(at, v, quality=3 if at > 4 else 1) for at, v in enumerate(values)])
    assert short(events) == [("RAISED", 1, 6, True), ("CLEARED", 1, 8, True)]
    assert events[0].value == 5.0


def test_a_vane_that_trembles_about_north_is_stuck_and_one_that_turns_is_not() -> None:
    rule = STUCK.replace("0.1", "2").replace("moving_above = 1.5\n", "")

    def vane(directions: Sequence[float]) -> list[AlertEvent]:
        samples = (sample(at, each, channel="v.wind_direction") for at, each in enumerate(directions))
        return run(Engine(rules(rule)), samples)

    assert short(vane([359.5, 0.5, 359.0, 1.0, 0.0, 359.5, 0.5])) == [("RAISED", 0, 5, True)]
    assert vane([359.0, 2.0, 359.0, 2.0, 359.0, 2.0, 359.0]) == []


def test_two_readings_of_a_slow_channel_that_are_alike_are_not_stuck() -> None:
    engine = Engine(rules(STUCK))
    slow = [sample(300 * at, value, period_s=300) for at, value in ((0, 7.0), (2, 7.0), (3, 8.0))]
    assert run(engine, slow) == []
    stands = [sample(300 * at, 9.0, period_s=300) for at in range(4, 10)]
    assert short(run(engine, stands)) == [("RAISED", 1200, 2700, True)]


def test_a_calm_is_not_stuck() -> None:
    engine = Engine(rules(STUCK))
    assert run(engine, [sample(at, 1.5) for at in range(30)]) == []


SILENT = '[[rule]]\nname = "silent"\nkind = "silent"\nperiods = 10\ngateway_after = "2m"\n'


def silence(engine: Engine, seconds: Iterable[int]) -> list[AlertEvent]:
    return [t for at in seconds for t in engine.evaluate_silence(T0 + at * S)]


def test_a_channel_is_silent_while_its_gateway_goes_on() -> None:
    engine = Engine(rules(SILENT))
    run(engine, [sample(at, 20) for at in range(5)])
    others = [sample(at, 5, channel="cup.wind_speed") for at in range(40)]
    # A missing value is no reading; but it shows that the gateway lives.
    others += [sample(at, None, quality=9) for at in range(5, 40)]
    run(engine, others)
    assert silence(engine, [40, 44]) == []
    events = silence(engine, [45, 46, 60])
    assert [(t.channel, *short([t])[0]) for t in events] == [("box.temperature", "RAISED", 14, 39, True)]
    assert events[0].value == 35
    events = run(engine, [sample(50, 20)])
    assert [(t.channel, *short([t])[0]) for t in events] == [("box.temperature", "CLEARED", 14, 50, True)]
    # Its end doesn't say that nothing has come for 0 s.
    assert Notifier().records(events, T0)[0][0].detail == "over: mast-07: silent box.temperature"


def test_an_outage_of_the_gateway_is_no_silence_of_its_channels() -> None:
    engine = Engine(rules(SILENT))
    run(
        engine,
        [sample(at, 20, channel=name) for at in range(5) for name in ("a.temperature", "b.temperature")],
    )
    # Back again, first with one channel.
    run(engine, [sample(at, 20, channel="a.temperature") for at in range(1000, 1006)])
    assert silence(engine, [1007, 1013]) == []
    # The other one doesn't come.
    run(engine, [sample(at, 20, channel="a.temperature") for at in range(1006, 1020)])
    assert [t.channel for t in silence(engine, [1020, 1026])] == ["b.temperature"]


@pytest.mark.parametrize("ahead_s", [50, 100, 570])
def test_a_device_whose_clock_is_ahead_makes_no_other_channel_silent(ahead_s: int) -> None:
    engine = Engine(rules(SILENT))
    events = []
    for at in range(1000):
        # The device's clock steps ahead at 100 s, and back at 700 s.
        time_s = at + ahead_s if 100 <= at < 700 else at
        device = sample(time_s, 20, channel="device.temperature")._replace(kafka_us=T0 + (at + 1) * S)
        slow = [sample(at, 20, period_s=4)] if at % 8 == 0 else []
        events += engine.observe([*slow, device], T0 + (at + 1) * S)
        events += silence(engine, [at + 1])
    assert events == []
    # A channel that sends no more is silent all the same.
    run(engine, [sample(at, 20, channel="device.temperature") for at in range(1000, 1040)])
    assert [t.channel for t in silence(engine, [1041, 1047])] == ["box.temperature"]


def test_a_whole_gateway_is_silent_by_the_clock_once_the_backlog_is_read() -> None:
    engine = Engine(rules(SILENT))
    run(engine, [sample(at, 20) for at in range(5)])
    engine.caught_up = False
    assert silence(engine, [500]) == []
    engine.caught_up = True
    # The last record arrived at 5 s.
    assert silence(engine, [125]) == []
    events = silence(engine, [126, 127])
    assert [(t.channel, *short([t])[0]) for t in events] == [(None, "RAISED", 125, 125, True)]
    assert short(run(engine, [sample(300, 20)])) == [("CLEARED", 125, 300, True)]


def test_a_backlog_is_no_time_to_evaluate_silence() -> None:
    engine = Engine(rules(SILENT))
    engine.observe([sample(0, 20)], T0 + 9 * S)
    assert engine.caught_up
    engine.observe([sample(1, 20)], T0 + 13 * S)
    assert not engine.caught_up


PAIR = """
[[rule]]
name = "twins"
kind = "pair"
difference = 0.5
clear = 0.2
window = "10s"
"""


def twins(differences: Sequence[float | None]) -> list[Sample]:
    samples = []
    for at in range(len(differences) * 10):
        if (difference := differences[at // 10]) is not None:
            samples.append(sample(at, 8.0 + difference, channel="b.wind_speed"))
        samples.append(sample(at, 8.0 + (at % 10 - 4.5) * 0, channel="a.wind_speed"))
    return samples


def test_twins_disagree_by_their_means_over_the_same_windows() -> None:
    engine = Engine(rules(PAIR + 'pairs = [["a.wind_speed", "b.wind_speed"]]\n'))
    events = run(engine, twins([0.0, -0.6, 0.4, None, 0.1, 0.1]))
    assert short(events) == [("RAISED", 10, 20, True), ("CLEARED", 10, 50, True)]
    assert events[0].value == pytest.approx(0.6)
    assert {t.channel for t in events} == {"a.wind_speed"}
    assert events[0].detail == "8.00 beside 7.40 at b.wind_speed"


def test_twins_about_north_agree_and_those_apart_dont() -> None:
    pair = (
        PAIR.replace("0.5", "30").replace("0.2", "25")
        + 'pairs = [["a.wind_direction", "b.wind_direction"]]\n'
    )

    def vanes(apart: float) -> list[AlertEvent]:
        samples = [
            sample(at, (at % 5 * 4.0 - 8.0 + off) % 360.0, channel=f"{name}.wind_direction")
            for at in range(60)
            for name, off in (("a", 0.0), ("b", apart))
        ]
        return run(Engine(rules(pair)), samples)

    assert vanes(-10.0) == vanes(10.0) == []
    assert vanes(-40.0)[0].value == pytest.approx(40.0)


A, B, C = (("mast-07", f"{name}.wind_speed") for name in "abc")


@pytest.mark.parametrize(
    "named", [{A[1]: B[1]}, {B[1]: A[1]}, {A[1]: B[1], B[1]: A[1]}], ids=["a", "b", "both"]
)
@pytest.mark.parametrize("first", ["a", "b"])
def test_it_suffices_that_one_twin_names_the_other(named: dict[str, str], first: str) -> None:
    """Whichever comes first, be that known before its twin has come or after, and through restarts."""
    samples = sorted(twins([0.0, 0.7, 0.7, 0.0, 0.0]), key=lambda s: (s.time_us, s.channel[0] != first))
    for before in (0, 1, 2):
        engine = Engine(rules(PAIR))
        events = engine.observe(samples[:before], T0 + 60 * S)
        assert engine.set_twins({A[0]: named}) == []
        for begin, end in ((before, 50), (50, len(samples))):
            again = Engine(rules(PAIR))
            again.restore(stored(engine))
            events += again.observe(samples[begin:end], T0 + 60 * S)
            engine = again
        assert short(events) == [("RAISED", 10, 20, True), ("CLEARED", 10, 40, True)]


def test_twins_that_are_parted_are_compared_no_more() -> None:
    engine = Engine(rules(PAIR))
    engine.set_twins({A[0]: {A[1]: B[1], B[1]: A[1]}})
    samples = twins([0.0, 0.7, 0.7, 0.7])
    assert short(engine.observe(samples[:60], T0 + 60 * S)) == [("RAISED", 10, 20, True)]
    (parted,) = engine.set_twins({A[0]: {A[1]: C[1]}})
    assert (parted.gateway, parted.channel, parted.since_us) == (*A, T0 + 10 * S)
    assert "its twin is another one now" in closing(parted, rules(PAIR).rules[0]).detail
    assert engine.observe(samples[60:], T0 + 60 * S) == []
    assert engine.set_twins({A[0]: {A[1]: B[1]}}) == []


def test_twins_are_not_compared_in_the_shadow_of_the_tower() -> None:
    """The booms point north and south; the vane's windows come late, and through a restart."""
    winds = [175.0, 200.0, 355.0, 90.0, 90.0, 0.0, 90.0, 90.0]
    samples = twins([0.7, -0.7, 0.7, 0.7, 0.7, 0.0, 0.0, 0.0])
    vane = [sample(at, winds[at // 10], channel="v.wind_direction") for at in range(80)]
    twin, booms = {A[0]: {A[1]: B[1]}}, {A[0]: ("v.wind_direction", {A[1]: 0.0, B[1]: 180.0})}
    expected = [("RAISED", 30, 40, True), ("CLEARED", 30, 70, True)]
    for order in (samples + vane, sorted(samples + vane, key=lambda each: each.time_us)):
        engine = Engine(rules(PAIR + "shadow = 30\n"))
        engine.set_twins(twin, booms)
        events = engine.observe(order[:100], T0 + 90 * S)
        again = Engine(rules(PAIR + "shadow = 30\n"))
        again.restore(stored(engine))
        again.set_twins(twin, booms)
        assert short(events + again.observe(order[100:], T0 + 90 * S)) == expected
    # A vane that has died mutes nothing once it is further behind than windows are kept.
    engine = Engine(rules(PAIR + "shadow = 30\n"))
    engine.set_twins(twin, booms)
    dead = twins([0.0] * 5 + [0.7] * 70)
    events = engine.observe(vane[:20] + dead, T0 + 760 * S)
    assert short(events) == [("RAISED", 630, 640, True)]
    # Nor does one that isn't fitted any more.
    engine = Engine(rules(PAIR + "shadow = 30\n"))
    engine.set_twins(twin, booms)
    engine.set_twins(twin)
    assert short(engine.observe(samples, T0 + 90 * S))[0] == ("RAISED", 0, 10, True)
    # Where the booms are not known, all windows count.
    engine = Engine(rules(PAIR + "shadow = 30\n"))
    engine.set_twins(twin)
    assert short(engine.observe(samples, T0 + 90 * S)) == [("RAISED", 0, 10, True), ("CLEARED", 0, 60, True)]


def test_what_stands_for_long_stands_through_short_gaps() -> None:
    stuck = '[[rule]]\nname = "stuck"\nkind = "stuck"\nquantity = "temperature"\nfor = "1h"\n'
    times = [*range(0, 1800, 60), *range(2100, 4000, 60)]
    alike = [sample(at, 20.0, period_s=20.0) for at in times]
    assert short(run(Engine(rules(stuck)), alike)) == [("RAISED", 0, 3600, True)]
    late = [sample(at + 100 * (at > 2000), 20.0, period_s=20.0) for at in times]
    assert run(Engine(rules(stuck)), late) == []


def test_recovery_of_closed_intervals_and_its_correction() -> None:
    engine = Engine(
        rules('[[rule]]\nname = "rec"\nkind = "recovery"\nbelow = 0.9\nclear = 0.95\nfor = "10m"\n')
    )
    length = 600 * S

    def events(at: int, recovery: float, version: int = 1) -> list[tuple[str, float, float, bool]]:
        row = IntervalRow("mast-07", "a.wind_speed", T0 + at * length, length, recovery, version)
        return short(engine.observe_intervals(Recovery, [row], row.start_us + length + 60 * S))

    assert events(0, 0.5) == []
    assert events(1, 0.89) == [("RAISED", 0, 600, True)]
    assert events(2, 0.92) == []
    # What is older than the last interval changes nothing; the last one is judged again when it is corrected.
    assert events(1, 1.0, 2) == []
    assert events(2, 0.95, 2) == [("CLEARED", 0, 1200, True)]
    assert events(3, 0.1, 2) == []
    assert events(4, 0.1, 2) == [("RAISED", 1800, 2400, False)]


def test_anomalies_above_the_models_threshold() -> None:
    engine = Engine(
        rules('[[rule]]\nname = "odd"\nkind = "anomaly"\nfactor = 1.5\nmessage = "{channel} {value:.1f}"\n')
    )
    rows = [
        IntervalRow("mast-07", None, T0 + at * 600 * S, 600 * S, measure, 1, "a.wind_speed")
        for at, measure in enumerate([1.5, 1.6, 1.0])
    ]
    events = engine.observe_intervals(Anomaly, reversed(rows), T0 + 1500 * S)
    assert short(events) == [("RAISED", 600, 600, True), ("CLEARED", 600, 1200, True)]
    assert Notifier().records(events, T0)[0][0].detail == "a.wind_speed 1.6"
    # A day later it is history.
    engine = Engine(rules('[[rule]]\nname = "odd"\nkind = "anomaly"\n'))
    assert short(engine.observe_intervals(Anomaly, rows, T0 + 86_400 * S))[0] == ("RAISED", 0, 0, False)


@pytest.mark.parametrize("more", ["", "clear = 0.9\n"])
def test_a_score_that_wanders_about_its_threshold_is_one_alert(more: str) -> None:
    engine = Engine(rules('[[rule]]\nname = "odd"\nkind = "anomaly"\n' + more))
    rows = [
        IntervalRow("mast-07", None, T0 + at * 600 * S, 600 * S, measure, 1)
        for at, measure in enumerate([1.1, 0.95, 1.05, 0.91, 1.2, 0.79])
    ]
    events = engine.observe_intervals(Anomaly, rows, T0 + 3700 * S)
    assert [(name, at, by) for name, at, by, _ in short(events)] == [("RAISED", 0, 0), ("CLEARED", 0, 3000)]


# What masts report ------------------------------------------------------------------------------------------

DAY = 86_400


def event_row(at: float, name: str, detail: str = "") -> IntervalRow:
    return IntervalRow("mast-07", None, T0 + round(at * S), DAY * S, 1.0, 1, name=name, detail=detail)


def test_an_event_raises_and_another_clears() -> None:
    engine = Engine(
        rules('[[rule]]\nname = "moved"\nkind = "event"\nevents = "site-moved"\ncleared_by = "site-back"\n')
    )

    def take(*rows: IntervalRow, now_s: float = 100.0) -> list[AlertEvent]:
        return engine.observe_intervals(Event, rows, T0 + round(now_s * S))

    moved = event_row(10, "site-moved", "site-moved: distance_m 900")
    events = take(event_row(5, "reloaded"), moved)
    assert short(events) == [("RAISED", 10, 10, True)]
    assert Notifier().records(events, T0)[0][0].detail == "mast-07: site-moved: distance_m 900"
    # It is announced again, moves further, and comes back.
    assert take(moved) == []
    assert take(event_row(20, "site-moved")) == []
    assert short(take(event_row(30, "site-back"))) == [("CLEARED", 10, 30, True)]
    assert take(moved, event_row(20, "site-moved"), event_row(30, "site-back")) == []
    # What is read again after two days is history; what comes only then, for want of an uplink, is not.
    assert short(take(event_row(40, "site-moved"), now_s=2 * DAY)) == [("RAISED", 40, 40, False)]
    assert take(event_row(45, "site-back"), now_s=2 * DAY)
    late = event_row(50, "site-moved")._replace(arrived_us=T0 + 2 * DAY * S)
    assert short(take(late, now_s=2 * DAY + 60)) == [("RAISED", 50, 50, True)]


def test_a_pattern_of_what_clears_an_event() -> None:
    text = '[[rule]]\nname = "weak"\nkind = "event"\nevents = "under-voltage"\n'
    text += 'cleared_by = ["under-voltage-*", "run-*"]\n'
    engine = Engine(rules(text))

    def take(at: float, name: str) -> list[str]:
        return [
            each[0] for each in short(engine.observe_intervals(Event, [event_row(at, name)], T0 + 60 * S))
        ]

    assert take(1, "under-voltage-over") == []
    assert take(2, "under-voltage") == ["RAISED"]
    assert take(3, "under-voltage-over") == ["CLEARED"]
    assert take(4, "under-voltage") == ["RAISED"]
    assert take(5, "run-started") == ["CLEARED"]


@pytest.mark.parametrize("kind", ["event", "health", "calibration"])
def test_what_gateways_report_sends_no_command(kind: str) -> None:
    more = {"event": 'events = "x"', "health": 'field = "load"\nabove = 1.0', "calibration": "days = 3"}[kind]
    text = (
        f'[[rule]]\nname = "r"\nkind = "{kind}"\n{more}\n[rule.command]\naction = "stop"\ntarget = "heater"\n'
    )
    with pytest.raises(SettingsError, match="command: can't be given: what it is about may be days old"):
        rules(text)


def test_an_event_that_nothing_clears_is_an_alert_of_its_own_each_time() -> None:
    text = '[[rule]]\nname = "lost"\nkind = "event"\nevents = ["dropped", "broker-*"]\n'
    engine = Engine(rules(text))
    rows = [event_row(1, "dropped"), event_row(2, "broker-dropped"), event_row(2, "released")]
    events = engine.observe_intervals(Event, rows, T0 + 3 * S)
    both = [("RAISED", 1, 1, True), ("CLEARED", 1, 1, True), ("RAISED", 2, 2, True), ("CLEARED", 2, 2, True)]
    assert short(events) == both
    kept = Engine(rules(text))
    kept.restore(stored(engine))
    assert engine.observe_intervals(Event, rows, T0 + 3 * S) == []
    assert kept.observe_intervals(Event, rows, T0 + 3 * S) == []
    # The backlog of an outage comes beside what is new.
    late = [event_row(0.5, "dropped"), event_row(1.5, "dropped"), event_row(4, "dropped")]
    for each in (engine, kept):
        found = short(each.observe_intervals(Event, late, T0 + 5 * S))
        assert [(name, at) for name, at, _, _ in found] == [
            (name, at) for at in (0.5, 1.5, 4) for name in ("RAISED", "CLEARED")
        ]


def figure(
    day: float, name: str, measure: float, slope: float | None = None, channel: str | None = None
) -> IntervalRow:
    at_us = T0 + round(day * DAY) * S
    return IntervalRow("mast-07", channel, at_us, DAY * S, measure, 1, name=name, slope=slope)


def test_a_figure_of_the_daily_reports() -> None:
    engine = Engine(
        rules(
            '[[rule]]\nname = "hot"\nkind="health"\nfield="cpu_celsius"\nabove = 80.0\nclear = 75.0\n'
            'for = "1d"\n'
        )
    )
    days = [(0, 81.0), (1, 82.0), (2, 78.0), (3, 75.0), (4, 90.0)]
    rows = [figure(day, "cpu_celsius", value) for day, value in days] + [figure(1, "load", 99.0)]
    events = [each for row in rows for each in engine.observe_intervals(Health, [row], row.start_us + S)]
    assert short(events) == [("RAISED", 0, DAY, True), ("CLEARED", 0, 3 * DAY, True)]


def test_a_figure_that_gets_to_its_limit() -> None:
    engine = Engine(
        rules(
            '[[rule]]\nname = "full"\nkind = "health"\nfield = "outbox_share"\nabove = 0.9\nwithin = "14d"\n'
            '[[rule]]\nname = "disk"\nkind="health"\nfield="disk_free_bytes"\nbelow = 100.0\nwithin = "10d"\n'
            'message = "{value:.0f} days"\n'
        )
    )

    def take(*rows: IntervalRow) -> list[tuple[str, float, bool]]:
        found = engine.observe_intervals(Health, rows, rows[-1].start_us + S)
        return [
            (each.rule.name, round(each.value, 6), each.transition is Transition.RAISED) for each in found
        ]

    assert take(figure(0, "outbox_share", 0.1, None), figure(0, "disk_free_bytes", 1000.0, 50.0)) == []
    # 0.1 a day: eight days are left; 20 bytes a day: 45 are.
    assert take(figure(1, "outbox_share", 0.1, 0.1), figure(1, "disk_free_bytes", 1000.0, -20.0)) == [
        ("full", 8.0, True)
    ]
    assert take(figure(2, "disk_free_bytes", 1000.0, -100.0)) == [("disk", 9.0, True)]
    assert take(figure(2, "outbox_share", 0.95, 0.0)) == []
    assert take(figure(3, "outbox_share", 0.2, -0.1)) == [("full", 0.2, False)]
    # Beyond it already, with no trend, and still while it falls.
    assert take(figure(4, "outbox_share", 0.95)) == [("full", 0.0, True)]
    assert take(figure(5, "outbox_share", 0.91, -0.1)) == []
    rows = [figure(6, "outbox_share", 0.1)]
    [cleared], _ = Notifier().records(engine.observe_intervals(Health, rows, rows[0].start_us + S), T0)
    assert cleared.detail == "over: mast-07: full"


def test_recovery_of_a_day_by_channel() -> None:
    engine = Engine(
        rules('[[rule]]\nname = "day"\nkind = "health"\nchannel = "cup-*"\nfield = "recovery"\nbelow = 0.9\n')
    )
    rows = [figure(0, "recovery", 0.5, channel=name) for name in ("cup-a.wind_speed", "vane.wind_direction")]
    assert [each.channel for each in engine.observe_intervals(Health, rows, T0 + S)] == ["cup-a.wind_speed"]


def test_a_trend_that_gets_to_its_limit() -> None:
    engine = Engine(
        rules('[[rule]]\nname = "wears"\nkind = "wear"\ntrends = ["twins", "sup*"]\nwithin = "60d"\n')
    )
    left = [(0, "twins", 61.0), (1, "twins", 59.0), (1, "outbox", 1.0), (2, "supply", 0.0),
            (3, "twins", float("inf"))]  # fmt: skip
    rows = [
        figure(day, name, value, channel=f"{name}.x")._replace(detail="-2 %") for day, name, value in left
    ]
    events = [each for row in rows for each in engine.observe_intervals(Wear, [row], row.start_us + S)]
    assert [(each.channel, each.transition.name, each.live) for each in events] == [
        ("twins.x", "RAISED", True), ("supply.x", "RAISED", True), ("twins.x", "CLEARED", True),
    ]  # fmt: skip
    first, _, last = Notifier().records(events, T0)[0]
    assert (first.detail, first.value) == ("mast-07: twins.x: -2 %", 59.0)
    assert (last.detail, last.value) == ("over: mast-07: wears twins.x", None)
    # Of one channel's trends of a day the worst counts, whichever comes first.
    both = [figure(9, name, value, channel="y") for name, value in (("supply", 900.0), ("twins", 5.0))]
    for rows in (both, both[::-1]):
        raised = engine.observe_intervals(Wear, rows, rows[0].start_us + S)
        assert [each.transition.name for each in raised] == ["RAISED"] * (rows is both)


def test_a_calibration_before_and_after_its_end() -> None:
    text = "".join(
        f'[[rule]]\nname = "cal-{days}"\nkind = "calibration"\ndays = {days}\n' for days in (90, 30, 0)
    )
    engine = Engine(rules(text))
    midnight_us = T0 // (DAY * S) * DAY * S

    def on(day: int, left: float) -> list[tuple[str, str, int]]:
        row = IntervalRow("mast-07", "a.wind_speed", midnight_us + day * DAY * S + 7 * S, DAY * S, left, 1)
        events = engine.observe_intervals(Calibration, [row], row.start_us)
        assert all(each.live for each in events)
        return [(e.rule.name, e.transition.name, (e.since_us - midnight_us) // S) for e in events]

    assert on(0, 90) == []
    assert on(1, 89) == [("cal-90", "RAISED", 1 * DAY)]
    # Nothing ran for some days: the alert is of the day on which it was due, whenever that is noticed.
    assert on(63, 27) == [("cal-30", "RAISED", 61 * DAY)]
    assert on(90, 0) == []
    assert on(91, -1) == [("cal-0", "RAISED", 91 * DAY)]
    assert sorted(on(92, 700)) == [
        ("cal-0", "CLEARED", 91 * DAY), ("cal-30", "CLEARED", 61 * DAY), ("cal-90", "CLEARED", DAY)
    ]  # fmt: skip
    assert on(93, float("inf")) == []
    # What is well takes no place in the state, nor does it change it.
    engine.to_state()
    rows = [IntervalRow("mast-07", f"c{n}.wind_speed", T0, DAY * S, 500, 1) for n in range(9)]
    assert engine.observe_intervals(Calibration, rows, T0) == []
    assert engine.to_state(0).keys() <= {"mast-07"}
    assert len(json.loads(json.dumps(stored(engine)))["mast-07"][6]) == 3


# Open alerts and a state that is lost ----------------------------------------------------------------------

KINDS = HOT + STUCK + PAIR + SILENT + '[[rule]]\nname = "rec"\nkind = "recovery"\nbelow = 0.9\n'


def test_open_alerts_go_on_under_their_ids_without_a_state() -> None:
    """Kafka no longer has what raised them: only the table knows when they began."""
    engine = Engine(rules(KINDS))
    engine.set_twins({"mast-07": {"a.wind_speed": "b.wind_speed"}})

    def readings(seconds: range) -> list[Sample]:
        return [
            sample(at, value, channel=channel)
            for at in seconds
            for channel, value in (
                ("box.temperature", 70.0), ("a.wind_speed", 6.0 + at % 2), ("b.wind_speed", 5.0),
                *([("gone.temperature", 20.0)] if at < 3 else []),
            )
        ]  # fmt: skip

    def low(at: int) -> list[IntervalRow]:
        return [IntervalRow("mast-07", "a.wind_speed", T0 + at * S, 10 * S, 0.5, 1)]

    events = run(engine, readings(range(40)))
    events += silence(engine, [41, 47])
    events += engine.observe_intervals(Recovery, low(10), T0 + 50 * S)
    events += silence(engine, [170])
    before = raised(events)
    assert sorted({alert.rule[0] for alert in before}) == ["hot", "rec", "silent", "stuck", "twins"]
    # Both b and the box stand still; one channel is silent, and then the whole mast.
    assert len(before) == 7

    again = Engine(rules(KINDS))
    assert again.adopt(before) == []
    again.set_twins({"mast-07": {"a.wind_speed": "b.wind_speed"}})
    # Kafka begins in the midst of it; all of that is old by now.
    events = again.observe(readings(range(30, 40)), T0 + 1000 * S)
    events += again.observe_intervals(Recovery, low(20), T0 + 1000 * S)
    assert events == []
    # The mast is back, and all is well again.
    end = readings(range(1001, 1021))
    well = [s._replace(value=7.0 + s.time_us // S % 9) for s in end]
    events = run(again, [*well, sample(1021, 20, channel="gone.temperature")])
    row = low(1010)[0]._replace(measure=1.0)
    events += again.observe_intervals(Recovery, [row], T0 + 1030 * S)
    assert {t.transition for t in events} == {Transition.CLEARED}
    assert sorted(ids(events)) == sorted(ids_of(before))


def ids_of(alerts: Iterable[OpenAlert]) -> list[str]:
    return [alert_id(alert.rule, alert.gateway, alert.channel, alert.since_us) for alert in alerts]


def test_of_two_open_alerts_of_one_rule_the_newest_goes_on() -> None:
    first, second = (
        OpenAlert(("hot", "1"), "mast-07", "box.temperature", T0 + at, T0 + at, True) for at in (0, 9)
    )
    engine = Engine(rules(HOT))
    assert engine.adopt([first, second]) == [first]
    (rule,) = rules(HOT).rules
    assert closing(first, rule).detail == "over: another alert of the rule stands in its place"
    assert ids(run(engine, [sample(10, 50)])) == ids_of([second])


def test_any_arrival_ends_the_silence_of_a_gateway() -> None:
    """What comes first is a backlog; a mast whose clock is not set has nothing else."""
    engine = Engine(rules(SILENT))
    run(engine, [sample(at, 20) for at in range(5)])
    (event,) = silence(engine, [126])
    late = sample(6, 21, replayed=True)._replace(kafka_us=T0 + 400 * S)
    events = engine.observe([late], T0 + 401 * S)
    assert short(events) == [("CLEARED", 125, 400, True)]
    # Silent again: another alert.
    (again,) = silence(engine, [521])
    assert (again.since_us - T0) // S == 520
    assert event.since_us != again.since_us


# Rules that change -----------------------------------------------------------------------------------------


def test_alerts_of_rules_that_are_gone_or_have_another_version_end() -> None:
    text = HOT + SILENT + '[[rule]]\nname = "stays"\nkind = "threshold"\nabove = 60\n'
    engine = Engine(rules(text))
    events = run(
        engine,
        [sample(at, 70, channel=name) for at in range(3) for name in ("a.temperature", "b.temperature")],
    )
    events += run(engine, [sample(at, 70, channel="a.temperature") for at in range(3, 30)])
    events += silence(engine, [31, 37])
    changed = Engine(rules(HOT + 'version = 2\n[[rule]]\nname = "stays"\nkind = "threshold"\nabove = 60\n'))
    changed.restore(stored(engine))
    assert sorted(changed.adopt(raised(events))) == [
        OpenAlert(("hot", "1"), "mast-07", "a.temperature", T0, T0 + 29 * S, True),
        OpenAlert(("hot", "1"), "mast-07", "b.temperature", T0, T0 + 2 * S, True),
        OpenAlert(("silent", "1"), "mast-07", "b.temperature", T0 + 12 * S, T0 + 12 * S, True),
    ]
    # The one that stayed doesn't raise again, the new version does.
    assert [(t.rule.id, t.transition) for t in run(changed, [sample(30, 70, channel="a.temperature")])] == [
        (("hot", "2"), Transition.RAISED)
    ]


# Records and commands --------------------------------------------------------------------------------------

STOP = (
    HOT
    + """
severity = "critical"
message = "{channel} at {value:.1f}"
[rule.command]
action = "stop"
target = "heater"
args = { reason = "hot" }
expires_after = "10m"
min_interval = "15m"
per_hour = 2
"""
)


def test_records_of_one_alert_have_one_id() -> None:
    events = run(Engine(rules(STOP)), [sample(0, 70), sample(1, 50)])
    (raised, cleared), (command,) = Notifier().records(events, T0 + 5 * S)
    assert json.loads(raised.to_json()) == json.loads(
        '{"v":1,"id":"ceedfa2915824c70d207883008ce2ed3","rule":"hot","rule_version":"1","kind":"threshold",'
        '"severity":"critical","gateway":"mast-07","channel":"box.temperature","state":"raised",'
        '"raised_at":"2026-05-28T20:27:00.000Z","cleared_at":null,"reported_at":"2026-05-28T20:27:00.000Z",'
        f'"value":70.0,"historical":false,"detail":"box.temperature at 70.0","command_id":"{command.id}"}}'
    )
    assert raised.key == b"mast-07/hot"
    assert (cleared.id, cleared.state, cleared.cleared_us) == (raised.id, "cleared", T0 + S)
    assert json.loads(command.to_json()) == json.loads(
        f'{{"id":"{command_id(raised.id)}","gateway":"mast-07","target":"heater","action":"stop",'
        '"args":{"reason":"hot"},"issued_at":"2026-05-28T20:27:05.000Z",'
        '"expires_at":"2026-05-28T20:37:05.000Z"}'
    )


@given(st.lists(st.tuples(st.integers(0, 900), st.integers(0, 3)), max_size=60))
def test_commands_keep_their_interval_and_their_hourly_cap(steps: list[tuple[int, int]]) -> None:
    rule = rules(STOP).rules[0]
    notifier, now_us, sent = Notifier(), T0, []
    for wait_s, gateway in steps:
        now_us += wait_s * S
        events = AlertEvent(
            rule, f"mast-{gateway}", "box.temperature", Transition.RAISED, now_us, now_us, 70.0, True
        )
        records, commands = notifier.records([events], now_us)
        assert [record.command_id for record in records] == [c.id for c in commands] or not commands
        sent += commands
        # The limits survive a restart.
        notifier = Notifier({name: [(at, to) for at, to in kept] for name, kept in notifier.issued.items()})
    for command in sent:
        issued_us = parse_time(command.issued_at)
        hour = [c for c in sent if 0 <= parse_time(c.issued_at) - issued_us < 3600 * S]
        assert len(hour) <= 2
        assert not [
            c
            for c in hour
            if c is not command
            and c.gateway == command.gateway
            and parse_time(c.issued_at) - issued_us < 900 * S
        ]
    if steps:
        assert sent


def test_a_row_of_the_table_takes_every_record_and_loses_nothing() -> None:
    (raised, cleared), _ = Notifier().records(run(Engine(rules(STOP)), [sample(0, 70), sample(1, 50)]), T0)
    row = merged_row(merged_row(None, raised), cleared)
    assert (row["raised_at"], row["cleared_at"], row["value"]) == (T0, T0 + S, 70.0)
    assert (row["detail"], row["command_id"]) == ("box.temperature at 70.0", raised.command_id)
    late = merged_row(row, msgspec.structs.replace(raised, historical=True))
    assert (late["historical"], late["cleared_at"]) == (False, T0 + S)
    end = closing(OpenAlert(("hot", "1"), "mast-07", "box.temperature", T0, T0 + S, True), None)
    assert (end.id, end.state, end.detail) == (raised.id, "cleared", "over: the rule was removed")
