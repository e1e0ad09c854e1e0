"""What a mast's channels give together: the formulas written out again in numpy, and worked cases."""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st

from spark_jobs.transforms.mast_values import (
    ASSUMED_HUMIDITY,
    MastValues,
    MountedChannel,
    air_density_kgm3,
    mast_values,
    power_law_exponent,
    shortest_angle_deg,
    veer_deg_per_m,
)
from tests.support.servers import shared_data

RECORDED = shared_data("mast_10min_3months.csv.gz")
HEIGHTS = {"80": 80.0, "60": 60.0, "40": 40.0}
VANES = (78.0, 58.0, 38.0)

A50, B50, C30, C20 = (f"{name}.wind_speed" for name in ("cup-50m-a", "cup-50m-b", "cup-30m", "cup-20m"))


def cup(channel: str, avg: float | None, height_m: float | None, twin: str | None = None) -> MountedChannel:
    sd, cube = (None, None) if avg is None else (0.1 * avg, avg**3)
    return MountedChannel(channel, "wind_speed", avg, sd, cube, 1.0, height_m, twin)


def other(channel: str, avg: float | None, height_m: float | None = None) -> MountedChannel:
    return MountedChannel(channel, channel.partition(".")[2], avg, recovery=1.0, height_m=height_m)


# Twins name each other, as `fieldgate check` wants it.
WHOLE = (
    cup(A50, 8.0, 50.0, B50),
    cup(B50, 7.9, 50.0, A50),
    cup(C30, 7.0, 30.0),
    cup(C20, 6.5, 20.0),
    other("dht.temperature", 15.0, 2.0),
    other("dht.humidity", 60.0, 2.0),
    other("baro.pressure", 80.0),
    replace(other("sun.irradiance", 600.0), twin="sun-b.irradiance"),
    other("sun-b.irradiance", 590.0),
)
RHO = 0.962656
"""15 °C, 80 kPa, 60 %RH: (80,000 / 287.05 − 0.6 · 1,659.9 · 0.00131684) / 288.15."""


def values(**changes: object) -> MastValues:
    """Of the whole mast with some averages changed; ... takes a channel away."""
    found = []
    for each in WHOLE:
        avg = changes.get(each.channel.replace("-", "_").replace(".", "__"), each.avg)
        if avg is not ...:
            assert avg is None or isinstance(avg, float)
            found.append(
                cup(each.channel, avg, each.height_m, each.twin) if each.sd else replace(each, avg=avg)
            )
    return mast_values(found, 600)


def test_a_worked_interval() -> None:
    row = values()
    assert row.air_density == pytest.approx(RHO, abs=5e-7)
    assert row.turbulence_intensity == pytest.approx(dict.fromkeys((A50, B50, C30, C20), 0.1))
    assert row.wind_power_density == pytest.approx(
        {A50: RHO * 256, B50: RHO * 246.5195, C30: RHO * 171.5, C20: RHO * 137.3125}, rel=1e-6
    )
    assert row.pair_difference == pytest.approx({A50: 0.1, "sun.irradiance": 10.0})
    # numpy.polyfit of ln v over ln z.
    assert row.shear_alpha == pytest.approx(0.228089, abs=5e-7)
    assert row.insolation == 100.0
    assert row.inputs == {
        "air_density.temperature": "dht.temperature",
        "air_density.pressure": "baro.pressure",
        "air_density.humidity": "dht.humidity",
        "insolation": "sun.irradiance",
        "shear_alpha.20m": C20,
        "shear_alpha.30m": C30,
        "shear_alpha.50m": A50,
        "pair_difference." + A50: B50,
        "pair_difference.sun.irradiance": "sun-b.irradiance",
    }


def test_the_redundant_twin_stands_in() -> None:
    row = values(cup_50m_a__wind_speed=None, sun__irradiance=None)
    assert row.shear_alpha == power_law_exponent({50.0: 7.9, 30.0: 7.0, 20.0: 6.5})
    assert row.inputs["shear_alpha.50m"] == B50
    assert (row.insolation, row.inputs["insolation"]) == (590.0 / 6, "sun-b.irradiance")
    assert row.pair_difference == {}
    assert set(row.turbulence_intensity) == {B50, C30, C20}
    # At another height than its primary's, too: either is used, never both.
    low = [cup(A50, 8.0, 50.0, B50), cup(B50, 7.9, 49.0), cup(C20, 6.5, 20.0)]
    assert mast_values(low, 600).shear_alpha == power_law_exponent({50.0: 8.0, 20.0: 6.5})
    low[0] = replace(low[0], avg=None)
    assert mast_values(low, 600).shear_alpha == power_law_exponent({49.0: 7.9, 20.0: 6.5})


def test_who_is_the_primary() -> None:
    """Who names a twin; of two that name each other the first by name; none is a twin of itself."""
    x, y = "x.wind_speed", "y.wind_speed"
    assert mast_values([cup(y, 8.0, 9.0, x), cup(x, 7.0, 9.0)], 600).pair_difference == {y: 1.0}
    assert mast_values([cup(y, 8.0, 9.0, x), cup(x, 7.0, 9.0, y)], 600).pair_difference == {x: -1.0}
    assert mast_values([cup(x, 8.0, 9.0, x), cup(y, 7.0, 9.0, "gone.wind_speed")], 600).pair_difference == {}


def test_not_above_3_mps_there_is_neither_intensity_nor_shear() -> None:
    calm = values(cup_20m__wind_speed=3.0)
    assert set(calm.turbulence_intensity) == {A50, B50, C30}
    assert (calm.shear_alpha, [name for name in calm.inputs if name.startswith("shear")]) == (None, [])
    # The power is there all the same: calms count.
    assert set(calm.wind_power_density) == {A50, B50, C30, C20}
    assert values(cup_20m__wind_speed=3.001).shear_alpha is not None
    # A height without a value is left out; one is no profile, nor is one without a height.
    assert values(cup_20m__wind_speed=None).shear_alpha == power_law_exponent({50.0: 8.0, 30.0: 7.0})
    assert values(cup_20m__wind_speed=..., cup_30m__wind_speed=None).shear_alpha is None
    for height in (None, 0.0, 50.0):
        assert mast_values([cup(A50, 8.0, 50.0), cup(C30, 7.0, height)], 600).shear_alpha is None


def test_density_by_what_there_is() -> None:
    dry, half, damp = (air_density_kgm3(15.0, 80.0, percent) for percent in (0.0, 50.0, 100.0))
    assert dry is not None
    assert half is not None
    assert damp is not None
    assert dry > half > damp
    row = values(dht__humidity=None)
    assert (row.air_density, row.inputs["air_density.humidity"]) == (half, ASSUMED_HUMIDITY)
    for missing in ("dht__temperature", "baro__pressure"):
        row = values(**{missing: None})
        assert (row.air_density, row.wind_power_density) == (None, {})
        assert not [name for name in row.inputs if name.startswith("air_density")]
    # Of several thermometers the highest.
    top = mast_values([*WHOLE, other("top.temperature", 10.0, 48.0), other("box.temperature", 30.0)], 600)
    assert top.inputs["air_density.temperature"] == "top.temperature"
    assert top.air_density == air_density_kgm3(10.0, 80.0, 60.0)
    for nonsense in (-300.0, 1e300, -1e300):
        assert air_density_kgm3(nonsense, 80.0, 60.0) is None
    assert air_density_kgm3(15.0, -1.0, 60.0) is None


def test_insolation_is_each_pyranometers_and_the_masts_is_the_horizontal_ones() -> None:
    tilted = replace(other("a-module.irradiance", 800.0), tilt_deg=40.0)
    down = replace(other("b-ground.irradiance", 120.0), tilt_deg=180.0)
    level, unknown = other("sun.irradiance", 600.0), other("c.irradiance", 590.0)
    row = mast_values([tilted, down, replace(level, tilt_deg=0.0), unknown], 600)
    assert (row.insolation, row.inputs["insolation"]) == (100.0, "sun.irradiance")
    of_each = {"a-module": 800, "b-ground": 120, "c": 590, "sun": 600}
    assert row.insolation_by_channel == {f"{name}.irradiance": avg / 6 for name, avg in of_each.items()}
    # A record that says nothing of it is a horizontal one's; of tilted ones alone the mast has none.
    assert mast_values([tilted, level], 600).insolation == 100.0
    alone = mast_values([tilted, down], 600)
    assert (alone.insolation, "insolation" in alone.inputs, len(alone.insolation_by_channel)) == (
        None,
        False,
        2,
    )


def test_insolation_is_scaled_from_half_of_the_samples_on() -> None:
    sun = other("sun.irradiance", -3.0)
    assert mast_values([replace(sun, recovery=0.5)], 600).insolation == -0.5
    assert mast_values([replace(sun, recovery=0.499)], 600).insolation is None
    assert (
        mast_values([replace(sun, recovery=0.499), replace(sun, channel="b.irradiance")], 60).insolation
        == -0.05
    )


def test_a_silent_mast_has_no_values() -> None:
    silent = mast_values(
        [replace(each, avg=None, sd=None, cube_mean=None, recovery=0.0) for each in WHOLE], 600
    )
    assert silent == MastValues({}, {}, {}, None, None, None, None, {}, {})


V48, V20, V48B = (f"{name}.wind_direction" for name in ("vane-48m", "vane-20m", "vane-48m-b"))


def test_veer_is_the_turning_with_height_the_short_way_round() -> None:
    for low, high, veer in ((10.0, 24.0, 0.5), (352.0, 6.0, 0.5), (6.0, 352.0, -0.5), (90.0, 90.0, 0.0)):
        row = mast_values([*WHOLE, other(V48, high, 48.0), other(V20, low, 20.0)], 600)
        assert row.veer == pytest.approx(veer, abs=1e-12)
        assert {name: channel for name, channel in row.inputs.items() if name.startswith("veer")} == {
            "veer.20m": V20, "veer.48m": V48,
        }  # fmt: skip
    # The least-squares line of three, over north.
    assert veer_deg_per_m({80.0: 14.0, 20.0: 350.0, 50.0: 358.0}) == pytest.approx(0.4)
    # One vane, or none with a height of its own, has no veer.
    for vanes in ([], [other(V48, 24.0, 48.0)], [other(V48, 24.0, 48.0), other(V20, 10.0)]):
        row = mast_values([*WHOLE, *vanes], 600)
        assert (row.veer, [name for name in row.inputs if name.startswith("veer")]) == (None, [])


def test_which_vanes_veer_is_made_of() -> None:
    low, high = other(V20, 10.0, 20.0), replace(other(V48, 24.0, 48.0), twin=V48B)
    spare = other(V48B, 31.0, 48.0)
    row = mast_values([*WHOLE, low, high, spare], 600)
    assert (row.veer, row.inputs["veer.48m"]) == (0.5, V48)
    row = mast_values([*WHOLE, low, replace(high, avg=None), spare], 600)
    assert (row.veer, row.inputs["veer.48m"]) == (0.75, V48B)
    # In its dead band a vane has few samples left: its twin is there.
    row = mast_values([*WHOLE, low, replace(high, recovery=0.49), spare], 600)
    assert (row.veer, row.inputs["veer.48m"]) == (0.75, V48B)
    # A vane in a calm points anywhere; without a cup nobody can say whether it was one.
    for speed in (3.0, None):
        assert mast_values([cup(A50, speed, 50.0), low, high], 600).veer is None
    assert mast_values([cup(A50, 3.001, 50.0), low, high], 600).veer == 0.5
    assert mast_values([cup(A50, 8.0, 50.0), cup(C20, 3.0, 20.0), low, high], 600).veer is None


def test_heights_and_values_beyond_all_numbers_take_nothing_but_their_own_value() -> None:
    vanes = [
        other(f"vane-{name}.wind_direction", 200.0, height) for name, height in (("a", 58.0), ("b", 1e200))
    ]
    cups = [cup(A50, 8.0, 1e308), cup(B50, 7.0, 1.5e308), cup(C30, 6.0, 1.7e308)]
    row = mast_values([*vanes, *cups, *WHOLE[4:]], 600)
    assert row.veer is None
    assert row.air_density == pytest.approx(RHO, abs=5e-7)
    twins = [replace(other("a.wind_direction", 1.7e308), twin="b.wind_direction")]
    assert mast_values([*twins, other("b.wind_direction", -1.7e308)], 600).pair_difference == {}
    hot = [other("dht.temperature", 900.0), other("dht.humidity", -1.7e308), other("baro.pressure", 80.0)]
    assert mast_values([*hot, cup(C30, 5.0, 30.0)], 600).wind_power_density == {}


def test_vanes_that_are_twins_differ_by_the_angle_between_them() -> None:
    vanes = [replace(other(V48, 2.0, 48.0), twin=V48B), other(V48B, 359.0, 48.0)]
    assert mast_values(vanes, 600).pair_difference == {V48: 3.0}
    vanes[0], vanes[1] = replace(vanes[0], avg=359.0), replace(vanes[1], avg=2.0)
    assert mast_values(vanes, 600).pair_difference == {V48: -3.0}


@given(st.floats(0, 360), st.floats(0, 360))
def test_the_shortest_angle_turns_one_direction_into_the_other(one: float, two: float) -> None:
    angle = shortest_angle_deg(one, two)
    assert -180.0 <= angle <= 180.0
    assert abs(np.exp(1j * np.radians(one + angle)) - np.exp(1j * np.radians(two))) < 1e-12
    assert shortest_angle_deg(two, one) == -angle or abs(angle) == 180.0


@given(
    st.lists(st.tuples(st.integers(1, 200), st.floats(-50, 50)), min_size=2, unique_by=lambda each: each[0]),
    st.floats(0, 360, exclude_max=True),
)
def test_veer_is_the_same_wherever_north_is(points: list[tuple[int, float]], north: float) -> None:
    """Against numpy's line through the directions before they were wrapped; no step reaches 180 degrees."""
    heights, turns = np.array(sorted(points)).T
    wrapped = dict(zip(map(float, heights), map(float, (turns + north) % 360.0), strict=True))
    assert veer_deg_per_m(wrapped) == pytest.approx(np.polyfit(heights, turns, 1)[0], rel=1e-6, abs=1e-9)


_SPEED = st.none() | st.floats(0, 60)
_MAST = st.lists(
    st.builds(
        MountedChannel,
        st.sampled_from([f"{name}.wind_speed" for name in "abcdef"]),
        st.just("wind_speed"),
        _SPEED,
        _SPEED,
        _SPEED,
        st.none() | st.floats(0, 1),
        st.none() | st.floats(-1, 200),
        st.none() | st.sampled_from([f"{name}.wind_speed" for name in "abcdefg"]),
    )
    | st.builds(
        MountedChannel,
        st.sampled_from(["t.temperature", "u.temperature", "p.pressure", "h.humidity", "i.irradiance"]),
        st.sampled_from(["temperature", "pressure", "humidity", "irradiance"]),
        st.none() | st.floats(-1e6, 1e6),
    )
    | st.builds(
        MountedChannel,
        st.sampled_from([f"vane-{name}.wind_direction" for name in "abc"]),
        st.just("wind_direction"),
        st.none() | st.floats(0, 360),
        recovery=st.floats(0, 1),
        height_m=st.none() | st.floats(1, 200),
        twin=st.none() | st.sampled_from([f"vane-{name}.wind_direction" for name in "abc"]),
    ),
    unique_by=lambda each: each.channel,
)


@given(_MAST, st.randoms())
def test_order_changes_no_digit_and_nothing_raises(channels: list[MountedChannel], random: object) -> None:
    before = mast_values(channels, 600)
    random.shuffle(channels)  # type: ignore[attr-defined]
    assert mast_values(channels, 600) == before


# Against the formulas in numpy, over months.

Columns = Mapping[str, np.ndarray]


def recorded() -> Columns:
    if RECORDED is None:
        pytest.skip("no shared data: mast_10min_3months.csv.gz")
    with gzip.open(RECORDED, "rt", encoding="utf-8-sig") as file:
        table = pd.read_csv(file)
    return {str(name): table[name].to_numpy(dtype=float) for name in table.columns if name != "Timestamp"}


def generated() -> Columns:
    """A month with what the recorded set hasn't: whole channels missing, calms, heat."""
    rng = np.random.default_rng(6)
    count = 5_000
    base = rng.weibull(2.0, count) * 7
    columns = {}
    for height, z in HEIGHTS.items():
        for side in "NS":
            speed = base * (z / 80) ** rng.normal(0.2, 0.1, count) * rng.normal(1, 0.01, count)
            columns[f"Spd{height}m{side}"] = np.where(rng.random(count) < 0.05, np.nan, speed)
            columns[f"Spd{height}m{side}Std"] = columns[f"Spd{height}m{side}"] * rng.uniform(0.05, 0.3, count)
    vanes = dict.fromkeys((f"Dir{z:g}mS" for z in VANES), (0, 360))
    others = {"T2m": (-25, 45), "RH2m": (5, 100), "P2m": (600, 1050)} | vanes
    for name, (low, high) in others.items():
        columns[name] = np.where(rng.random(count) < 0.05, np.nan, rng.uniform(low, high, count))
    return columns


def mounted(columns: Columns, at: int) -> list[MountedChannel]:
    """One row of the columns; the boom in the north is the primary."""

    def number(name: str) -> float | None:
        value = float(columns[name][at])
        return None if np.isnan(value) else value

    found = []
    for height, z in HEIGHTS.items():
        for side in "NS":
            name = f"Spd{height}m{side}"
            avg = number(name)
            cube = None if avg is None else avg**3 * 1.1
            twin = f"spd{height}mS.wind_speed" if side == "N" else None
            channel = f"spd{height}m{side}.wind_speed"
            found.append(MountedChannel(channel, "wind_speed", avg, number(name + "Std"), cube, 1.0, z, twin))
    pressure = number("P2m")
    return [
        *found,
        *(other(f"dir{z:g}m.wind_direction", number(f"Dir{z:g}mS"), z) for z in VANES),
        other("dht.temperature", number("T2m")),
        other("dht.humidity", number("RH2m")),
        other("baro.pressure", None if pressure is None else pressure / 10),
    ]


def numpy_veer(directions: Sequence[np.ndarray], speeds: Sequence[np.ndarray]) -> np.ndarray:
    """numpy.unwrap from the lowest up, numpy.polyfit row by row, where no cup with a value shows a calm."""
    out = np.full(len(directions[0]), np.nan)
    windy = [np.all(row[~np.isnan(row)] > 3) and not np.isnan(row).all() for row in np.column_stack(speeds)]
    for at, row in enumerate(np.column_stack(directions)):
        there = ~np.isnan(row)
        if windy[at] and there.sum() >= 2:
            upwards = np.unwrap(row[there][::-1], period=360)
            out[at] = np.polyfit(np.array(VANES)[there][::-1], upwards, 1)[0]
    return out


def numpy_shear(speeds: Sequence[np.ndarray], heights: Sequence[float]) -> np.ndarray:
    """numpy.polyfit row by row, over the heights that have a value."""
    out = np.full(len(speeds[0]), np.nan)
    for at, row in enumerate(np.column_stack(speeds)):
        there = ~np.isnan(row)
        if there.sum() >= 2 and (row[there] > 3).all():
            out[at] = np.polyfit(np.log(np.array(heights)[there]), np.log(row[there]), 1)[0]
    return out


@pytest.mark.parametrize("columns", ["recorded", "generated"])
def test_months_equal_numpy(columns: str) -> None:
    data = recorded() if columns == "recorded" else generated()
    rows = [mast_values(mounted(data, at), 600) for at in range(len(data["T2m"]))]

    def compare(ours: list[float | None], numpy: np.ndarray, rel: float) -> None:
        got = np.array([np.nan if value is None else value for value in ours])
        np.testing.assert_array_equal(np.isnan(got), np.isnan(numpy))
        np.testing.assert_allclose(got, numpy, rtol=rel, atol=1e-12)
        assert (~np.isnan(numpy)).sum() > 3_000

    kelvin = data["T2m"] + 273.15
    vapour = 0.0000205 * np.exp(0.0631846 * kelvin)
    phi = np.where(np.isnan(data["RH2m"]), 0.5, data["RH2m"] / 100)
    rho = (data["P2m"] * 100 / 287.05 - phi * vapour * (1 / 287.05 - 1 / 461.5)) / kelvin
    compare([row.air_density for row in rows], rho, 1e-12)

    used = []
    for height in HEIGHTS:
        north, south = data[f"Spd{height}mN"], data[f"Spd{height}mS"]
        used.append(np.where(np.isnan(north), south, north))
        for side, speed in (("N", north), ("S", south)):
            channel = f"spd{height}m{side}.wind_speed"
            with np.errstate(invalid="ignore", divide="ignore"):
                intensity = np.where(speed > 3, data[f"Spd{height}m{side}Std"] / speed, np.nan)
            compare([row.turbulence_intensity.get(channel) for row in rows], intensity, 1e-12)
            compare([row.wind_power_density.get(channel) for row in rows], rho * speed**3 * 0.55, 1e-12)
        compare([row.pair_difference.get(f"spd{height}mN.wind_speed") for row in rows], north - south, 1e-12)
    compare([row.shear_alpha for row in rows], numpy_shear(used, list(HEIGHTS.values())), 1e-9)
    compare([row.veer for row in rows], numpy_veer([data[f"Dir{z:g}mS"] for z in VANES], used), 1e-9)
