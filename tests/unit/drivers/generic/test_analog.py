"""Any sensor on the converter: its transfer function, its current loop, its wires."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from cloud.wire.quantities import QUANTITIES, Quantity
from drivers.ads1115 import FULL_SCALE_V, AdcOptions
from drivers.driver_type import Nameplate, OptionError
from drivers.emulation.environment import Fault
from drivers.generic.analog import (
    TYPE,
    Analog,
    AnalogOptions,
    interpolate,
    invert,
    signal_of,
    table_problem,
    value_of,
)
from drivers.interface import Channel, Measurement, ReadError
from tests.support.masts import fitted, replayed, sample, ten_minute_values
from tests.unit.drivers.emulation.test_faults import run
from tests.unit.drivers.test_adc_faults import Station, only

LEVEL = Quantity("water_level", "m", "linear", 0.0, 12.0)
# 0 to 10 m over 150 Ohm: 0.6 to 3 V.
LOOP: dict[str, Any] = {
    "table": ((4.0, 0.0), (20.0, 10.0)),
    "shunt_ohm": 150.0,
    "adc": AdcOptions(gain="4.096V"),
}
# A tank that narrows: a table with a kink.
TANK = ((0.5, 0.0), (2.0, 100.0), (4.5, 180.0))


def opened(station: Station, **options: Any) -> Analog:
    sensor = Analog(station.board, AnalogOptions(LEVEL, **options))
    sensor.start()
    return sensor


def _table(steps: list[tuple[float, float]]) -> list[tuple[float, float]]:
    points = [(0.0, 0.0)]
    for signal, value in steps:
        points.append((points[-1][0] + signal, points[-1][1] + value))
    return points


tables = st.lists(st.tuples(st.floats(0.01, 5), st.floats(0.01, 100)), min_size=1, max_size=8).map(_table)


@given(tables, st.floats(-2, 3), st.booleans())
def test_a_table_that_rises_or_falls_throughout_comes_back(
    points: list[tuple[float, float]], share: float, falls: bool
) -> None:
    if falls:
        points = [(signal, -value) for signal, value in points]
    assert table_problem(points) is None
    value = share * points[-1][1]
    assert interpolate(points, invert(points, value)) == pytest.approx(value, rel=1e-6, abs=1e-6)
    for signal, value in points:
        assert interpolate(points, signal) == pytest.approx(value, rel=1e-9)


def test_between_points_and_beyond_them_the_lines_go_on() -> None:
    found = [interpolate(TANK, signal) for signal in (0.5, 1.25, 2.0, 3.25, 4.5, 0.2, 5.0)]
    assert found == pytest.approx([0, 50, 100, 140, 180, -20, 196])


@pytest.mark.parametrize("value", [-5.0, 0.0, 5.0, 7.0])
def test_flat_lines_have_their_first_signal(value: float) -> None:
    flat = ((0.0, 0.0), (1.0, 0.0), (2.0, 5.0), (3.0, 5.0))
    assert invert(flat, value) == (0.0 if value <= 0 else {5.0: 2.0}.get(value, 3.0))


@given(st.floats(-1e3, 1e3), st.floats(0.01, 1e3), st.floats(-1e3, 1e3), st.booleans())
def test_slope_and_offset_come_back(value: float, slope: float, offset: float, falls: bool) -> None:
    options = AnalogOptions(LEVEL, slope=-slope if falls else slope, offset=offset)
    assert value_of(signal_of(value, options), options) == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize(("milliamps", "metres"), [(4.0, 0.0), (12.0, 5.0), (20.0, 10.0), (19.2, 9.5)])
def test_a_loops_current_is_measured_over_its_shunt(milliamps: float, metres: float) -> None:
    station = Station()
    station.volts[0] = milliamps * 0.15
    sensor = opened(station, **LOOP)
    found = only(sensor.read())
    step = FULL_SCALE_V["4.096V"] / 32768 / 150 * 1000
    assert found.raw == pytest.approx(milliamps, abs=step)
    assert found.value == pytest.approx(metres, abs=step * 10 / 16)
    assert (found.quantity, found.reasons, sensor.diagnose()) == ("water_level", (), ())
    assert sensor.channels == (Channel("water_level", "m", "mA", 0.0, 12.0),)


@pytest.mark.parametrize(
    ("milliamps", "words"),
    [
        (0.0, r"0 mA is less than 3\.6: the loop is broken or has no supply, or the transmitter reports"),
        (3.59, r"3\.59 mA is less than 3\.6: the loop is broken"),
        (21.02, r"21 mA is more than 21: the transmitter reports a failure, or the loop's supply is sh"),
    ],
)
def test_a_current_that_is_no_measurement_is_no_value(milliamps: float, words: str) -> None:
    station = Station()
    station.volts[0] = milliamps * 0.15
    sensor = opened(station, **LOOP)
    with pytest.raises(ReadError, match=rf"input 0 of the converter at 0x48: {words}"):
        sensor.read()
    assert len(sensor.diagnose()) == 1
    station.volts[0] = 12 * 0.15
    assert only(sensor.read()).reasons == ()
    assert sensor.diagnose() == ()


@pytest.mark.parametrize(
    ("milliamps", "reasons"),
    [(3.61, ("UNDER_RANGE",)), (3.79, ("UNDER_RANGE",)), (3.81, ()), (20.49, ()), (20.51, ("OVER_RANGE",)),
     (20.99, ("OVER_RANGE",))],
)  # fmt: skip
def test_a_transmitter_at_the_end_of_its_range_measures_no_more(
    milliamps: float, reasons: tuple[str, ...]
) -> None:
    station = Station()
    station.volts[0] = milliamps * 0.15
    assert only(opened(station, **LOOP).read()).reasons == reasons


def test_a_loop_of_0_to_20_milliamps_has_its_own_limits() -> None:
    station = Station()
    sensor = opened(station, slope=0.5, shunt_ohm=100.0, signal_range=(0.0, 20.5))
    assert only(sensor.read()) == Measurement("water_level", 0.0, 0.0)
    station.volts[0] = 2.1
    with pytest.raises(ReadError, match=r"21 mA is more than 20\.5"):
        sensor.read()


def test_a_voltage_beyond_what_the_sensor_gives_is_no_value() -> None:
    station = Station()
    sensor = opened(station, table=TANK, divider=2.0, signal_range=(0.4, 4.6))
    for volts, words in (
        (0.1, "a wire or the supply is broken, or the output is shorted to ground"),
        (2.4, "the ground wire is broken, or the output is shorted to the supply"),
    ):
        station.volts[0] = volts
        with pytest.raises(ReadError, match=words):
            sensor.read()
    station.volts[0] = 1.0
    assert only(sensor.read()).value == pytest.approx(100.0, abs=0.02)


def test_any_signal_counts_where_none_is_excluded_and_the_converters_end_is_named() -> None:
    station = Station()
    sensor = opened(station, slope=10.0, divider=11.0)
    assert only(sensor.read()) == Measurement("water_level", 0.0, 0.0)
    station.volts[0] = 7.0
    assert only(sensor.read()).reasons == ("OVER_RANGE",)
    assert "67.6 V is all it can see: a larger gain or a divider" in sensor.diagnose()[0]


def test_a_loop_that_breaks_has_no_current_and_an_open_voltage_input_floats() -> None:
    loop = fitted("loop", "analog", quantity=LEVEL, **LOOP)
    open_input = fitted("open", "analog", quantity=LEVEL, adc=AdcOptions(0x49), slope=10.0)
    faults = [Fault("loop", "open-input", 2), Fault("open", "open-input", 2)]
    taken = run([loop, open_input], faults, 4)
    broken = [one.got for one in taken["loop"]]
    assert [isinstance(each, ReadError) for each in broken] == [False, False, True, True]
    assert "0 mA is less than 3.6" in str(broken[2])
    assert [round(one.value, 1) for one in taken["open"]][2:] == [5.7, 5.7]


@pytest.mark.parametrize(
    ("options", "key", "words"),
    [
        ({}, ("slope",), "is required, or a table: m for one V"),
        ({"shunt_ohm": 100.0}, ("slope",), "m for one mA"),
        ({"slope": 0.0}, ("slope",), "must not be 0"),
        ({"slope": 1.0, "table": TANK}, ("slope",), "there is a table already"),
        ({"offset": 1.0, "table": TANK}, ("offset",), "there is a table already"),
        ({"table": ((0.0, 0.0),)}, ("table",), "two points at least"),
        ({"table": ((1.0, 0.0), (1.0, 5.0))}, ("table",), "must rise in its signals: 1 comes after 1"),
        ({"slope": 1.0, "signal_range": (2.0, 1.0)}, ("signal_range",), r"must be \[lower, higher\], not"),
    ],
)
def test_options_that_are_no_transfer_function_are_refused(
    options: dict[str, Any], key: tuple[str], words: str
) -> None:
    with pytest.raises(OptionError, match=words) as caught:
        TYPE.settle(AnalogOptions(LEVEL, **options), None)
    assert caught.value.key == key


def test_a_signal_is_no_part_of_a_sum() -> None:
    with pytest.raises(OptionError, match="precipitation is summed up") as caught:
        TYPE.settle(AnalogOptions(QUANTITIES["precipitation"], slope=25.0), None)
    assert caught.value.key == ("quantity",)


def test_signals_the_converter_cant_see_are_concerns() -> None:
    def found(**options: Any) -> list[str]:
        chosen = AnalogOptions(QUANTITIES["voltage"], **options)
        return [each.message for each in TYPE.concerns(chosen, Nameplate())]

    assert found(**LOOP) == []
    assert found(slope=1.0) == []
    assert found(**{**LOOP, "shunt_ohm": 250.0, "adc": AdcOptions(vdd_v=3.3)}) != []
    assert found(table=((0.0, 0.0), (10.0, 1.0))) != []
    assert found(table=((0.0, 0.0), (10.0, 1.0)), divider=3.0) == []


def test_recorded_values_come_back_within_half_a_step(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    path = tmp_path / "mast.csv"
    truth = ten_minute_values(path, BattMin=lambda at: at / 29 + 11, Spd40mN=lambda at: at / 16)
    battery = fitted(
        "battery", "analog", quantity=QUANTITIES["voltage"], divider=11.0, adc=AdcOptions(0x48, 3, "2.048V")
    )
    wind = fitted(
        "wind", "analog", quantity=QUANTITIES["wind_speed"], **{**LOOP, "table": ((4.0, 0.0), (20.0, 50.0))}
    )
    board = replayed(path, [battery, wind], {"battery": "BattMin", "wind": "Spd40mN"}, utc_offset_h=0.0)
    taken = sample(board, [battery, wind], {"battery": 600.0, "wind": 600.0})
    steps = {
        "battery": FULL_SCALE_V["2.048V"] / 32768 * 11,
        "wind": FULL_SCALE_V["4.096V"] / 32768 / 0.15 * 50 / 16,
    }
    for name, column in (("battery", "BattMin"), ("wind", "Spd40mN")):
        pairs = zip(taken[name], truth, strict=True)
        worst = max(abs(one.value - float(row[column])) for one, row in pairs)
        assert worst <= steps[name] / 2 * (1 + 1e-6)
        record_property(name, f"{worst:.3g}")
        print(f"{name}: {worst:.5f} of {steps[name]:.5f}")  # noqa: T201
