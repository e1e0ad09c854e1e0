"""The simulated mast: reproducible, plausible, endless."""

from __future__ import annotations

import statistics
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from cloud.wire.quantities import QUANTITIES, Quantity
from drivers.boards.registry import BOARDS, open_board
from drivers.emulation.environment import Site
from drivers.emulation.weather import SimulatedEnvironment, Weather, cos_zenith, noise
from drivers.interface import Channel, FittedSensor, ReadError
from tests.support.masts import ALL_KINDS, SECOND_NS, fitted, sample, simulated
from tests.support.nrg_csv import HEADER, write_nrg_csv

HILL = Site(27.7, 85.5, 2100.0)
NOON_S = datetime(2026, 3, 20, 6, 25, tzinfo=UTC).timestamp()
"""Solar noon at 85.5° E near the equinox."""
MIDNIGHT_S = NOON_S + 43_200


@given(st.integers(0, 2**31), st.floats(0, 4e9), st.sampled_from([3.0, 60.0, 21_600.0]))
def test_noise_stays_within_bounds(seed: int, time_s: float, period_s: float) -> None:
    assert -1.0 <= noise(seed, "wind", time_s, period_s) <= 1.0


@given(st.floats(0, 4e9))
def test_noise_has_no_jumps(time_s: float) -> None:
    assert abs(noise(1, "wind", time_s, 60.0) - noise(1, "wind", time_s + 0.5, 60.0)) < 0.03


def test_the_same_seed_gives_the_same_series_and_another_seed_another() -> None:
    until_ns = 1_772_337_600 * SECOND_NS + 30 * SECOND_NS
    periods = {"dht": 2.0, "air": 5.0}

    def series(seed: int) -> dict[str, list[object]]:
        taken = sample(simulated(ALL_KINDS, seed=seed), ALL_KINDS, periods, until_ns)
        return {name: [(one.time_ns, one.got) for one in samples] for name, samples in taken.items()}

    first = series(1)
    assert [len(samples) for samples in first.values()] == [30, 15, 30, 30, *[30] * 4, 6, 30, 30, 30]
    assert series(1) == first
    assert series(2) != first


def test_weather_doesnt_depend_on_where_the_series_starts() -> None:
    early = SimulatedEnvironment(Weather(1, HILL), 0, ALL_KINDS)
    late = SimulatedEnvironment(Weather(1, HILL), 500 * SECOND_NS, ALL_KINDS)
    for channel in ("cup.wind_speed", "baro.pressure", "sun.irradiance"):
        assert early.value(channel, 777 * SECOND_NS) == late.value(channel, 777 * SECOND_NS)


def test_sun_stands_where_it_should() -> None:
    # At the equinox the noon sun stands at 90° less the latitude; at midnight below the horizon.
    assert cos_zenith(HILL, NOON_S) == pytest.approx(0.885, abs=0.01)
    assert cos_zenith(HILL, MIDNIGHT_S) == pytest.approx(-0.885, abs=0.01)
    # Polar night and polar day at 80° N.
    north = Site(80.0, 0.0, 0.0)
    june, december = (datetime(2026, month, 21, tzinfo=UTC).timestamp() for month in (6, 12))
    assert all(cos_zenith(north, june + 3600 * hour) > 0 for hour in range(24))
    assert all(cos_zenith(north, december + 3600 * hour) < 0 for hour in range(24))


def test_days_and_nights() -> None:
    weather = Weather(1, HILL)
    days = [NOON_S + 86_400 * day for day in range(60)]
    nights = [one + 43_200 for one in days]
    noon = [weather.irradiance_wm2(one) for one in days]
    assert 900 < max(noon) < 1100
    assert min(noon) < 0.6 * max(noon)
    assert all(-3.0 < weather.irradiance_wm2(one) <= 0.0 for one in nights)
    warm, cold = (statistics.mean(map(weather.temperature_c, times)) for times in (days, nights))
    assert 3 < warm - cold < 12
    dry, damp = (statistics.mean(map(weather.humidity_pct, times)) for times in (days, nights))
    assert damp > dry + 10
    # 78.5 kPa is the standard atmosphere's at 2,100 m.
    assert all(77.8 < weather.pressure_kpa(one) < 79.2 for one in days)
    assert all(400 < weather.co2_ppm(one) < 460 for one in days + nights)


def test_wind_grows_with_height_and_twins_agree() -> None:
    weather = Weather(1, HILL)
    seconds = [NOON_S + 60.0 * minute for minute in range(3000)]
    means = [
        statistics.mean(weather.wind_mps(one, height, "a") for one in seconds) for height in (20, 30, 50)
    ]
    assert means == sorted(means)
    assert 6 < means[2] < 9
    twin_a, twin_b = ([weather.wind_mps(one, 50.0, cup) for one in seconds] for cup in ("a", "b"))
    assert twin_a != twin_b
    assert all(abs(a / b - 1) < 0.03 for a, b in zip(twin_a, twin_b, strict=True))
    ten_minutes = [weather.wind_mps(NOON_S + second, 50.0, "a") for second in range(600)]
    assert 0.03 < statistics.stdev(ten_minutes) / statistics.mean(ten_minutes) < 0.25


def test_an_hour_of_a_cup_is_the_weathers_run_of_wind() -> None:
    cup = fitted("cup", "hall-anemometer", 50.0, pin=17, slope=0.765, offset=0.35)
    board = simulated([cup])
    start_ns = board.clock.now_ns()
    counted = 0.0
    for one in sample(board, [cup], until_ns=start_ns + 3600 * SECOND_NS)["cup"]:
        assert not isinstance(one.got, ReadError)
        counted += one.got[0].raw
    weather = Weather(1, Site())
    turned = sum(
        (weather.wind_mps(start_ns // SECOND_NS + second, 50.0, "cup") - 0.35) / 0.765
        for second in range(3600)
    )
    # Half a pulse, and a thousandth for each second near a whole number.
    assert abs(counted - turned) < 0.5 + 3.6


def test_without_a_start_event_time_is_now_and_never_ahead_of_it() -> None:
    board = open_board(BOARDS["simulated"](speed=1000.0), [], Path())
    clock = board.clock
    assert clock is not None
    assert clock.synced
    assert 0 <= time.time_ns() - clock.now_ns() < 2 * SECOND_NS
    assert clock.now_ns() % SECOND_NS == 0
    clock.join()
    for _ in range(2):
        assert clock.wait_until(clock.now_ns() + SECOND_NS // 2)
        assert clock.now_ns() <= time.time_ns()
    board.close()
    assert not clock.wait_until(clock.now_ns() + SECOND_NS)


def test_a_configured_place_makes_the_weather() -> None:
    class Place:
        latitude: float | None = 60.0
        longitude: float | None = 10.0
        elevation_m: float | None = None

    assert Site.of(Place()) == Site(60.0, 10.0, 0.0)
    assert Site.of(None) == Site()
    Place.latitude = None
    assert Site.of(Place()) == Site()


def test_an_nrg_file_has_the_shape_of_the_real_one(tmp_path: Path) -> None:
    first, second = tmp_path / "a.csv", tmp_path / "b.csv"
    for path in (first, second):
        write_nrg_csv(path, datetime(2024, 1, 11, 13, tzinfo=UTC), 240, seed=7)
    assert first.read_bytes() == second.read_bytes()
    lines = first.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 241
    assert lines[0] == ",".join(HEADER)
    assert lines[1].startswith("2024-01-11T13:00:00Z,")
    cells = [line.split(",") for line in lines[1:]]
    assert all(len(cell.rpartition(".")[2]) == 4 for row in cells for cell in row[1:])
    for column, slope, offset in ((5, 0.765, 0.35), (6, 0.765, 0.35), (7, 0.0935, 0.139)):
        for row in cells:
            pulses = (float(row[column]) - offset) / slope
            assert pulses == pytest.approx(round(pulses), abs=1e-3)
    assert [row[5] for row in cells[130:222]] == ["0.3500"] * 92
    assert [row[7] for row in cells[130:222]] == ["0.1390"] * 92
    write_nrg_csv(second, datetime(2024, 1, 11, 13, tzinfo=UTC), 240, seed=8)
    assert first.read_bytes() != second.read_bytes()


@pytest.mark.parametrize("quantity", QUANTITIES.values(), ids=lambda quantity: quantity.name)
def test_every_quantity_has_a_value_in_its_range_that_changes(quantity: Quantity) -> None:
    sensor = FittedSensor("one", "analog", None, (Channel.of(quantity, "V"),))
    board = SimulatedEnvironment(Weather(1, HILL), 0, [sensor])
    times = range(int(NOON_S) * SECOND_NS, int(NOON_S + 30 * 86_400) * SECOND_NS, 1800 * SECOND_NS)
    values = [board.value(f"one.{quantity.name}", time_ns) for time_ns in times]
    assert all(value is not None and quantity.lower <= value <= quantity.upper for value in values)
    assert len(set(values)) > 1
