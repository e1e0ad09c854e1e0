"""Wind vanes: their angles, wires and faults."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from drivers.ads1115 import FULL_SCALE_V, AdcOptions
from drivers.driver_type import Nameplate, OptionError
from drivers.emulation.environment import Fault
from drivers.interface import Measurement, ReadError
from drivers.wind_vane import (
    TYPE,
    VaneAdcOptions,
    WindVane,
    WindVaneOptions,
    circle,
    gray_code,
    gray_number,
    loaded,
    off_steps,
    pot_angle,
    ratio_at,
    step_angle,
    unloaded,
)
from tests.support.masts import fitted, replayed, sample, simulated
from tests.unit.drivers.emulation.test_faults import run
from tests.unit.drivers.test_adc_faults import Station, only

# A vane of eight reeds and resistors, 10 kOhm to its supply.
STEPS = tuple(
    (ohm / (ohm + 10_000), deg)
    for ohm, deg in (
        (33_000, 0.0), (8_200, 45.0), (1_000, 90.0), (2_200, 135.0),
        (3_900, 180.0), (16_000, 225.0), (120_000, 270.0), (64_900, 315.0),
    )
)  # fmt: skip


def apart(one: float, other: float) -> float:
    """Degrees between two directions, on the circle."""
    return abs((one - other + 180) % 360 - 180)


def vane(station: Station, **options: Any) -> WindVane:
    sensor = WindVane(station.board, WindVaneOptions(options.pop("north_offset_deg", 0.0), **options))
    sensor.start()
    return sensor


# Conversions.


@example(-1e-20)
@example(360.0)
@given(st.floats(-1e6, 1e6))
def test_a_circle_has_no_360(degrees: float) -> None:
    assert 0 <= circle(degrees) < 360
    assert apart(circle(degrees), degrees) < 1e-6


@given(st.floats(0, 1), st.floats(0, 5))
def test_a_pull_downs_load_is_allowed_for(place: float, load: float) -> None:
    assert unloaded(loaded(place, load), load) == pytest.approx(place, abs=1e-9)


def test_the_load_is_ohms_law() -> None:
    # 10 kOhm, half way: 5 kOhm above, below them 5 kOhm beside 100 kOhm.
    below = 1 / (1 / 5_000 + 1 / 100_000)
    assert loaded(0.5, 0.1) == pytest.approx(below / (below + 5_000), rel=1e-12)
    # Unheeded it would be 4.4 degrees, at most 5.2.
    assert (0.5 - loaded(0.5, 0.1)) * 360 == pytest.approx(4.39, abs=0.01)


@given(st.floats(0, 359.999), st.floats(0, 90), st.floats(-180, 360))
def test_an_angle_comes_back_or_is_in_the_dead_band(degrees: float, band: float, middle: float) -> None:
    options = WindVaneOptions(0.0, dead_band_deg=band, dead_band_at_deg=middle)
    ratio = ratio_at(degrees, options)
    assert (ratio is None) <= (apart(degrees, middle) <= band / 2 + 1e-9)
    angle, reasons = pot_angle(0.0 if ratio is None else ratio, options)
    if reasons:
        assert band > 0
        assert (angle, reasons) == (middle, ("DEAD_BAND",))
        # The band, and the share of the resistance that can't be told from it.
        assert apart(degrees, middle) <= band / 2 + 0.006 * 360
    else:
        assert apart(angle, degrees) < 1e-6


def test_the_makers_figures() -> None:
    nrg = WindVaneOptions(0.0, dead_band_deg=8.0, resistance_ohm=1.0)
    assert pot_angle(0.5, nrg)[0] == pytest.approx(180.0, abs=1e-2)
    assert pot_angle(1.0, nrg)[0] == pytest.approx(356.0, abs=1e-9)
    # R. M. Young: 0 to 355 degrees, then 5 open.
    young = WindVaneOptions(0.0, dead_band_deg=5.0, dead_band_at_deg=357.5)
    assert circle(pot_angle(1.0, young)[0]) == pytest.approx(355.0, abs=1e-9)
    assert circle(pot_angle(0.01, young)[0]) == pytest.approx(3.55, abs=0.05)


@given(st.integers(2, 12).flatmap(lambda width: st.tuples(st.just(width), st.integers(0, (1 << width) - 1))))
def test_gray_codes_come_back_and_neighbours_differ_by_one_bit(case: tuple[int, int]) -> None:
    width, number = case
    code, following = gray_code(number, width), gray_code((number + 1) % (1 << width), width)
    assert gray_number(code) == number
    assert sum(one != other for one, other in zip(code, following, strict=True)) == 1


def test_a_gray_code_is_the_textbooks() -> None:
    assert ["".join(str(int(bit)) for bit in gray_code(number, 3)) for number in range(8)] == [
        "000", "001", "011", "010", "110", "111", "101", "100",
    ]  # fmt: skip


@given(st.sampled_from(STEPS), st.floats(-0.3, 0.3))
def test_a_step_is_the_nearest(step: tuple[float, float], off: float) -> None:
    gap = min(abs(step[0] - other) for other, _ in STEPS if other != step[0])
    assert step_angle(step[0] + off * gap, STEPS) == (step[1], ())
    assert not off_steps(step[0] + off * gap, STEPS)


def test_half_way_between_two_steps_is_noisy() -> None:
    low, high = sorted(ratio for ratio, _ in STEPS)[:2]
    assert step_angle((low + high) / 2 - 0.001, STEPS) == (90.0, ("NOISY",))
    assert off_steps(0.0, STEPS)
    assert off_steps(1.0, STEPS)


# The driver, over the registers of a converter.


def test_a_pot_reads_its_direction_whatever_its_supply() -> None:
    station = Station()
    sensor = vane(station, north_offset_deg=30.0, supply_input=1)
    for supply_v in (3.3, 3.0, 2.5):
        station.volts[1] = supply_v
        station.volts[0] = loaded(0.5, 0.1) * supply_v
        found = only(sensor.read())
        assert found.value == pytest.approx(210.0, abs=0.03)
        assert found.reasons == ()
        assert found.raw == pytest.approx(loaded(0.5, 0.1), abs=1e-4)
    assert sensor.diagnose() == ()


def test_a_given_supply_is_taken_as_it_is() -> None:
    station = Station()
    station.volts[0] = loaded(0.25, 0.1) * 5.0
    sensor = vane(station, supply_v=5.0, dead_band_deg=0.0, adc=VaneAdcOptions(gain="6.144V", vdd_v=5.0))
    assert only(sensor.read()).value == pytest.approx(90.0, abs=0.03)


def test_the_dead_band_is_its_middle_with_a_reason() -> None:
    station = Station()
    station.volts[0] = 0.009
    sensor = vane(station, north_offset_deg=90.0)
    found = only(sensor.read())
    assert (found.value, found.reasons) == (90.0, ("DEAD_BAND",))
    assert found.raw == pytest.approx(0.0027, abs=1e-4)
    station.volts[0] = 0.02
    assert only(sensor.read()).reasons == ()
    # A vane without a dead band points there.
    station.volts[0] = 0.0
    assert only(vane(station, dead_band_deg=0.0).read()) == Measurement("wind_direction", 0.0, 0.0)


@pytest.mark.parametrize(
    ("volts", "words"),
    [
        (
            {0: 1.0, 1: 0.02},
            r"supply is 0.02 V \(input 1\): its wire is broken, or the potentiometer is shorted",
        ),
        (
            {0: 3.3, 1: 2.5},
            r"input 0 of the converter at 0x48 has 1.32 of the vane's supply: the wiper is sh",
        ),
    ],
)
def test_what_no_vane_can_give_is_no_direction(volts: dict[int | str, float | None], words: str) -> None:
    station = Station()
    station.volts |= volts
    sensor = vane(station, supply_input=1)
    with pytest.raises(ReadError, match=words):
        sensor.read()
    assert len(sensor.diagnose()) == 1
    station.volts |= {0: 1.0, 1: 3.3}
    sensor.read()
    assert sensor.diagnose() == ()


@pytest.mark.parametrize(
    ("volts", "words"),
    [
        (
            0.0,
            "no voltage: the vane points into its dead band, or the wire of the wiper or of its supply is br",
        ),
        (
            3.3,
            "the vane's whole supply: it points to the end of its resistance, or the ground wire is broken",
        ),
    ],
)
def test_at_the_ends_of_the_resistance_the_wires_are_doubted(volts: float, words: str) -> None:
    station = Station()
    station.volts[0] = volts
    sensor = vane(station)
    sensor.read()
    (sentence,) = sensor.diagnose()
    assert sentence.startswith(f"input 0 of the converter at 0x48 has {words}")
    assert sentence.endswith("(turn it a little).")
    station.volts[0] = 1.0
    sensor.read()
    assert sensor.diagnose() == ()


def test_a_vane_of_steps_and_its_open_wire() -> None:
    station = Station()
    sensor = vane(station, steps=STEPS, north_offset_deg=10.0)
    for ratio, degrees in STEPS:
        station.volts[0] = 3.3 * ratio
        assert only(sensor.read()).value == circle(degrees + 10)
    station.volts[0] = 3.3
    with pytest.raises(ReadError, match=r"1\.000 of the vane's supply, none of its steps: open or shorted"):
        sensor.read()


# On an emulated board.


@pytest.mark.parametrize(
    ("options", "most"),
    [({"gray_pins": (5, 6, 13, 19, 26, 21)}, 360 / 64 / 2 + 1e-9), ({"steps": STEPS}, 22.5)],
)
def test_a_vane_of_steps_in_the_weather(options: dict[str, Any], most: float) -> None:
    sensor = fitted("vane", "wind-vane", north_offset_deg=12.0, **options)
    board = simulated([sensor])
    start_ns = board.now_ns()
    truth = [board.value("vane.wind_direction", start_ns + at * 10**9) or 0.0 for at in range(60)]
    taken = [one.value for one in sample(board, [sensor], until_ns=start_ns + 60 * 10**9)["vane"]]
    assert max(apart(one, true) for one, true in zip(taken, truth, strict=True)) <= most
    assert len(set(taken)) > 1


def test_a_gray_vane_that_is_unplugged_is_doubted_and_its_pins_are_released() -> None:
    sensor = fitted("vane", "wind-vane", north_offset_deg=0.0, gray_pins=(5, 6, 13))
    board = simulated([])
    driver = TYPE.make(board, sensor.options)
    driver.start()
    driver.read()
    assert isinstance(driver, WindVane)
    assert "all lines of the vane are high: it is unplugged" in driver.diagnose()[0]
    driver.stop()
    for pin in (5, 6, 13):
        board.count_edges(pin).close()


def test_a_wiper_that_comes_loose_reads_the_dead_band() -> None:
    sensor = fitted("vane", "wind-vane", north_offset_deg=240.0, supply_input=1)
    taken = run([sensor], [Fault("vane", "open-input", 3, 3)], 9)["vane"]
    reasons = [one.got[0].reasons for one in taken if isinstance(one.got, tuple)]
    assert reasons == [()] * 3 + [("DEAD_BAND",)] * 3 + [()] * 3


# A step of the converter at 4.096 V, of a supply of 3.3 V, over 352 degrees; the pull-down stretches it by a
# tenth at most.
STEP_DEG = FULL_SCALE_V["4.096V"] / 32768 / 3.3 * 352 * 1.1


def test_directions_come_back_within_the_quantisation(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    truth = [at / 10 for at in range(3600)]
    rows = [
        f"2026-03-01T{at // 3600:02}:{at // 60 % 60:02}:{at % 60:02}Z,{true}" for at, true in enumerate(truth)
    ]
    path = tmp_path / "dir.csv"
    path.write_text("\n".join(["time,dir", *rows, ""]))
    sensor = fitted("vane", "wind-vane", north_offset_deg=203.5, supply_input=1)
    board = replayed(path, [sensor], {"vane": "dir"}, utc_offset_h=0.0)
    worst = dead = 0.0
    for one, true in zip(sample(board, [sensor])["vane"], truth, strict=True):
        assert isinstance(one.got, tuple)
        off = apart(one.value, true)
        if one.got[0].reasons:
            assert apart(true, 203.5) <= 4.0 + 0.006 * 352
            dead = max(dead, off)
        else:
            worst = max(worst, off)
    assert 0 < dead <= 6.2
    # Two conversions, of wiper and supply, each within half a step.
    assert worst <= STEP_DEG
    record_property("direction", f"{worst:.3g}")
    print(f"{path.name}: {worst:.4f} deg of {STEP_DEG:.4f}, dead band {dead:.2f}")  # noqa: T201


# The config.


@pytest.mark.parametrize(
    ("options", "key", "words"),
    [
        ({"gray_pins": (5,)}, ("gray_pins",), "two or more pins, each once"),
        ({"gray_pins": (5, 5)}, ("gray_pins",), "two or more pins, each once"),
        ({"gray_pins": (5, 6), "steps": STEPS}, ("steps",), "not both"),
        ({"steps": ((0.1, 0.0),)}, ("steps",), "two or more"),
        ({"steps": ((0.1, 0.0), (0.1, 90.0))}, ("steps",), "each share once"),
        ({"supply_input": 0}, ("supply_input",), "input 0 is the wiper's"),
    ],
)
def test_options_that_dont_fit_are_refused(options: dict[str, Any], key: tuple[str], words: str) -> None:
    with pytest.raises(OptionError, match=words) as caught:
        TYPE.settle(WindVaneOptions(0.0, **options), None)
    assert caught.value.key == key


@pytest.mark.parametrize(
    ("boom", "askew"), [(None, False), (240, False), (60, False), (244, False), (250, True), (150, True)]
)
def test_a_mark_askew_of_its_boom_is_a_concern(boom: float | None, askew: bool) -> None:
    found = list(TYPE.concerns(WindVaneOptions(240.0, supply_input=1), Nameplate(boom_deg=boom)))
    assert [each.key for each in found] == [("north_offset_deg",)] * askew


def test_concerns_of_the_wires() -> None:
    def keys(**options: Any) -> list[str]:
        return [each.key[0] for each in TYPE.concerns(WindVaneOptions(0.0, **options), Nameplate())]

    assert keys(supply_input=1) == []
    assert keys() == ["supply_v"]
    assert keys(supply_input=1, pull_down_ohm=1e6) == ["pull_down_ohm"]
    assert keys(supply_input=1, pull_down_ohm=1e6, dead_band_deg=0.0) == []
    assert keys(supply_input=1, supply_v=5.0) == ["adc", "adc"]
    assert keys(steps=STEPS) == []
    assert keys(gray_pins=(5, 6)) == []


def test_claims_are_the_inputs_or_the_pins() -> None:
    pot = list(TYPE.claims(WindVaneOptions(0.0, AdcOptions(0x49, 2), 3)))  # type: ignore[arg-type] # any converter
    assert [(each.part, each.key) for each in pot] == [
        ("input 2 of converter 0x49", ("adc",)),
        ("I2C address 0x49", ("adc",)),
        ("input 3 of converter 0x49", ("supply_input",)),
    ]
    gray = list(TYPE.claims(WindVaneOptions(0.0, gray_pins=(5, 6))))
    assert [each.part for each in gray] == ["BCM pin 5", "BCM pin 6"]
