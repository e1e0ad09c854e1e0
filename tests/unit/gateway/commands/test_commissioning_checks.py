"""What must be seen of a sensor, on made-up readings: each result, and its limit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from gateway.commands.commissioning.checks import (
    Result,
    aimed,
    at_rest,
    check_breath,
    check_cover,
    check_cup,
    check_location,
    check_pressure,
    check_twins,
    check_values,
    check_vane,
    pressure_band_kpa,
)
from gateway.commands.commissioning.steps import steps_of
from gateway.commands.reading_rows import Row
from gateway.config import load
from gateway.config.quality import standard_pressure_kpa


def row(
    channel: str,
    value: float | None,
    *,
    raw: float | None = None,
    quality: int = 1,
    reasons: tuple[str, ...] = (),
    second: int = 0,
    trouble: str | None = None,
) -> Row:
    sensor = channel.rpartition(".")[0]
    time = f"2026-11-21T12:00:{second:02}.000Z"
    return Row(sensor, channel, time, value, "unit", raw, "V", quality, reasons, second, trouble)


def hz(channel: str, *counts: float) -> list[Row]:
    return [row(channel, 0.765 * count, raw=count, second=at) for at, count in enumerate(counts)]


def series(channel: str, *values: float | None, **more: object) -> list[Row]:
    return [row(channel, value, second=at, **more) for at, value in enumerate(values)]  # type: ignore[arg-type]


A, B, C = "a.wind_speed", "b.wind_speed", "c.wind_speed"
EVERY_S = {A: 1.0, B: 1.0, C: 1.0}


def cup(held: dict[str, Sequence[float]], spun: dict[str, Sequence[float]]) -> Result:
    return check_cup(
        A,
        EVERY_S,
        {name: hz(name, *counts) for name, counts in held.items()},
        {name: hz(name, *counts) for name, counts in spun.items()},
    )


STILL, WIND = (0.0, 0.0), (9.0, 10.0)


@pytest.mark.parametrize(
    ("held", "spun", "outcome", "words"),
    [
        # In a calm nothing else moves; in a wind everything else does, all the time.
        ({A: STILL, B: STILL, C: STILL}, {A: (0, 3), B: STILL, C: STILL}, "passed", "3.0 Hz while spun"),
        ({A: (8, 0, 0), B: WIND, C: WIND}, {A: (0, 1, 2), B: WIND, C: WIND}, "passed", "no other"),
        # Two cups swapped, in a calm and in a wind.
        ({A: STILL, B: STILL, C: STILL}, {A: STILL, B: (0, 5), C: STILL}, "fault", "b moved instead"),
        ({A: WIND, B: STILL, C: WIND}, {A: WIND, B: (0, 5), C: WIND}, "fault", "b moved instead"),
        # Wires that touch.
        ({A: STILL, B: STILL, C: STILL}, {A: (0, 5), B: (0, 5), C: STILL}, "fault", "b turned too"),
        # A touch is no turn.
        ({A: STILL, B: WIND, C: WIND}, {A: (0, 2), B: WIND, C: WIND}, "fault", "no pulse came"),
        ({A: STILL, B: STILL, C: STILL}, {A: STILL, B: (0, 2), C: STILL}, "fault", "no pulse came"),
        ({A: (1.0, 0.0, 1.0), B: WIND, C: WIND}, {A: WIND, B: WIND, C: WIND}, "fault", "turned while held"),
        ({A: (0.0,), B: WIND, C: WIND}, {A: WIND, B: WIND, C: WIND}, "fault", "turned while held"),
        ({}, {}, "fault", "no reading came"),
    ],
)
def test_cups(
    held: dict[str, Sequence[float]], spun: dict[str, Sequence[float]], outcome: str, words: str
) -> None:
    result = cup(held, spun)
    assert result.outcome == outcome
    assert words in result.words


def test_pulses_count_by_the_interval() -> None:
    """0.5 Hz over four seconds are two pulses, over ten seconds five."""
    held, spun = {A: hz(A, 0, 0)}, {A: hz(A, 0, 0.5)}
    assert check_cup(A, {A: 4.0}, held, spun).outcome == "fault"
    result = check_cup(A, {A: 10.0}, held, spun)
    assert result == Result("passed", "stood while held, up to 0.5 Hz while spun, and no other")


def test_a_cup_with_noise_or_without_an_answer() -> None:
    noisy = [row(A, 70.0, raw=90.0, quality=4, reasons=("NOISY",), second=at) for at in range(2)]
    result = check_cup(A, {A: 1.0}, {A: hz(A, 0, 0)}, {A: noisy})
    assert result.words == "the electrical signal can't be trusted: check plugs, pull-up and supply"
    gone = series(A, None, None, quality=9, reasons=("READ_ERROR",), trouble="the pin is in use")
    result = check_cup(A, {A: 1.0}, {A: gone}, {})
    assert result.words == "the sensor does not answer: check plug, wiring and supply; the pin is in use"
    # A spike, a step, a twin that differs are what a hand makes of a cup.
    odd = [
        row(A, 3.0, raw=4.0, quality=3, reasons=("SPIKE", "STEP_TOO_HIGH", "PAIR_DISAGREES"), second=at)
        for at in range(2)
    ]
    assert check_cup(A, {A: 1.0}, {A: hz(A, 0, 0)}, {A: odd}).outcome == "passed"


@given(
    st.lists(st.floats(0, 50), max_size=5),
    st.lists(st.floats(0, 50), max_size=5),
    st.lists(st.floats(0, 50), max_size=5),
    st.lists(st.floats(0, 50), max_size=5),
)
def test_a_cup_passes_only_if_it_stood_and_turned_alone(
    mine_held: list[float], mine_spun: list[float], held: list[float], spun: list[float]
) -> None:
    result = cup({A: mine_held, B: held}, {A: mine_spun, B: spun})
    other_did = at_rest(hz(B, *held)) and sum(spun) >= 3
    wanted = at_rest(hz(A, *mine_held)) and sum(mine_spun) >= 3 and not other_did
    assert (result.outcome == "passed") is wanted


def test_a_breath() -> None:
    names = ("dht.temperature", "dht.humidity")
    flat = series(names[0], 21.0, 21.0)
    assert check_breath(names, {names[0]: flat, names[1]: series(names[1], 55.0, 58.0)}).outcome == "passed"
    result = check_breath(names, {names[0]: flat, names[1]: series(names[1], 55.0, 57.9)})
    assert (result.outcome, "humidity by 2.9" in result.words) == ("fault", True)
    assert (
        check_breath(names, {names[0]: series(names[0], 21, 22), names[1]: series(names[1], 5, 1)}).outcome
        == "passed"
    )
    # Breath is wetter than a DHT11 can measure: that is no fault of its wiring.
    wet = [*series(names[1], 85.0), *series(names[1], 95.0, quality=4, reasons=("OVER_RANGE",))]
    assert check_breath(names, {names[0]: flat, names[1]: wet}).outcome == "passed"
    # One of three that fails is a DHT11's everyday; two are not.
    damaged = row(names[1], None, quality=9, reasons=("CHECKSUM",))
    good = series(names[1], 55.0, 60.0)
    assert check_breath(names, {names[0]: flat, names[1]: [*good, damaged]}).outcome == "passed"
    result = check_breath(names, {names[0]: flat, names[1]: [*good, damaged, damaged]})
    assert result.words == "humidity: the answer was damaged on the wire: check the cable and its length"
    assert check_breath(names, {names[0]: flat}).words == "humidity: no reading came"
    co2 = series("co2.co2", 480.0, 579.9)
    assert check_breath(("co2.co2",), {"co2.co2": co2}).outcome == "fault"


@pytest.mark.parametrize(
    ("light", "under", "outcome"),
    [
        ((800.0,), (800.0, 240.0), "passed"),
        ((800.0,), (800.0, 241.0), "fault"),
        ((50.0,), (40.0, 14.9), "passed"),
        # By night a lamp does it.
        ((0.0,), (0.0, 9.9), "open"),
        ((0.0,), (0.0, 10.0), "passed"),
        ((), (1.0,), "fault"),
        ((800.0,), (), "fault"),
    ],
)
def test_a_hand_over_the_pyranometer(
    light: tuple[float, ...], under: tuple[float, ...], outcome: str
) -> None:
    name = "sun.irradiance"
    result = check_cover(name, {name: series(name, *light)}, {name: series(name, *under)})
    assert result.outcome == outcome


@pytest.mark.parametrize(
    # ISO 2533's table: 1013.25, 898.74, 794.95, 540.19 hPa.
    ("elevation_m", "kpa"), [(0, 101.325), (1000, 89.874), (2000, 79.495), (5000, 54.02)],
)  # fmt: skip
def test_the_standard_atmosphere(elevation_m: float, kpa: float) -> None:
    assert standard_pressure_kpa(elevation_m) == pytest.approx(kpa, abs=0.01)


def test_a_barometer_against_its_elevation() -> None:
    name = "baro.pressure"
    band = pressure_band_kpa(2100, 1.5)
    assert band == pytest.approx(3.5 * 78.51 / 101.325 + 0.07 * (101.325 - 78.51) + 1.5, abs=0.01)
    edge = standard_pressure_kpa(2100) + band
    assert check_pressure(name, {name: series(name, edge - 0.01)}, 2100, 1.5).outcome == "passed"
    assert check_pressure(name, {name: series(name, edge + 0.01)}, 2100, 1.5).outcome == "fault"
    # Someone typed feet, or nothing.
    assert check_pressure(name, {name: series(name, 78.5)}, 6890, 1.5).outcome == "fault"
    assert check_pressure(name, {name: series(name, 78.5)}, None, 1.5).outcome == "open"
    assert check_pressure(name, {}, 2100, 1.5).words == "no reading came"
    loose = series(name, 20.0, quality=4, reasons=("UNDER_RANGE",))
    assert check_pressure(name, {name: loose}, 2100, 1.5).words == "below the range"


def test_a_position() -> None:
    name = "gps.location"
    assert check_location(name, {name: series(name, 100.0)}).outcome == "passed"
    assert check_location(name, {name: series(name, 100.1)}).outcome == "fault"
    none = series(name, None, quality=9, reasons=("READ_ERROR",), trouble="the receiver has no fix")
    assert check_location(name, {name: none}).words.endswith("the receiver has no fix")


def test_twins() -> None:
    def wind(mine: float, theirs: float) -> Result:
        return check_twins("wind_speed", series(A, mine, mine), series(B, theirs, theirs))

    assert wind(5.0, 5.5).outcome == "passed"
    assert wind(5.0, 5.6).outcome == "fault"
    assert wind(10.0, 11.0).outcome == "passed"
    assert wind(10.0, 11.2).outcome == "fault"
    assert wind(0.9, 0.0).outcome == "open"
    # Readings of other moments don't count.
    other = [row(B, 5.0, second=30)]
    assert check_twins("wind_speed", series(A, 5.0), other).outcome == "open"
    # The means of the same moments, not of all.
    mine, theirs = series(A, 5.0, 5.0, 50.0), series(B, 5.0, 5.0)
    assert "5.00 and 5.00 unit (means of 2)" in check_twins("wind_speed", mine, theirs).words
    # Two barometers of ±1.5 kPa may be 3 kPa apart.
    p, q = series("p.pressure", 78.0), series("q.pressure", 80.9)
    assert check_twins("pressure", p, q, (1.5, 1.5)).outcome == "passed"
    assert check_twins("pressure", p, q).outcome == "fault"


def test_a_sensor_that_nothing_can_move_is_decided_by_a_person() -> None:
    result = check_values(("x.rain",), {"x.rain": series("x.rain", 0.25)})
    assert (result.outcome, result.words) == ("open", "rain 0.25 unit: can that be?")
    assert check_values(("x.rain",), {}).outcome == "fault"


V = "vane.wind_direction"


@pytest.mark.parametrize("aim", [0.0, 240.0])
@pytest.mark.parametrize(
    ("off", "turn", "outcome", "words"),
    [
        (8.0, range(0, 361, 12), "passed", "then turned by 360°"),
        (-9.0, range(0, 361, 12), "passed", "then turned by 360°"),
        (12.0, range(0, 361, 12), "fault", "+12° off; is north_offset_deg right?"),
        (180.0, range(0, 361, 12), "fault", "180° off; is north_offset_deg right?"),
        (0.0, range(0, -361, -12), "fault", "turned by -360°: the ends of its resistance are swapped"),
        (0.0, range(0, 181, 12), "fault", "sectors unseen: turn it slowly, all the way round"),
        (0.0, [at % 40 for at in range(0, 720, 13)], "fault", "sectors unseen"),
    ],
)
def test_a_vane_is_pointed_and_turned(
    aim: float, off: float, turn: Sequence[int], outcome: str, words: str
) -> None:
    held = {V: series(V, (aim + off) % 360)}
    found = check_vane(V, aim, held, {V: series(V, *((aim + off + each) % 360 for each in turn))})
    assert found.outcome == outcome
    assert words in found.words


def test_a_vane_without_readings_is_a_fault_and_its_dead_band_is_none() -> None:
    assert check_vane(V, 0.0, {}, {V: series(V, 1.0)}) == Result("fault", "no reading came")
    open_wiper = {V: series(V, 0.0, reasons=("DEAD_BAND",), quality=3)}
    assert "is north_offset_deg right" in check_vane(V, 90.0, open_wiper, open_wiper).words


def test_twin_vanes_are_compared_on_the_circle() -> None:
    def outcome(*theirs: float) -> str:
        other = series("other.wind_direction", *theirs)
        return check_twins("wind_direction", series(V, 359.0, 1.0), other).outcome

    assert outcome(4.0, 8.0) == "passed"
    assert outcome(14.0, 18.0) == "fault"


def test_a_vane_is_aimed_by_its_last_two_readings() -> None:
    cases = ((90.0, 358.0, 1.0), (5.0,), (5.0, 90.0), (5.0, None))
    assert [aimed(series(V, *each), 5.0) for each in cases] == [True, False, False, False]


def test_what_is_done_with_each_sensor_of_a_river_station() -> None:
    config = load(Path(__file__).parents[4] / "docs" / "examples" / "river.toml", {})
    steps = {sensor.name: steps_of(config, sensor) for sensor in config.sensors}
    assert {name: [step.check for step in found] for name, found in steps.items()} == {
        "rain": ["values"], "level": ["values"], "water": ["values"], "wind": ["direction"],
        "battery": ["values"],
    }  # fmt: skip
    (vane,) = steps["wind"]
    aim, turn = vane.phases
    assert aim.instruction == "Point wind along its boom, away from the tower, and hold it."
    wind = "wind.wind_direction"
    held = {wind: series(wind, 178.0, 181.0)}
    turned = {wind: series(wind, *(at % 360 for at in range(180, 560, 15)))}
    assert (aim.enough([{wind: series(wind, 90.0, 178.0)}]), aim.enough([held])) == (False, True)
    assert (turn.enough([held, held]), turn.enough([held, turned])) == (False, True)
    assert vane.evaluate([held, turned]).outcome == "passed"
