"""The simulated mast: reproducible, plausible, endless."""

from __future__ import annotations

import statistics
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cloud.wire.quantities import QUANTITIES, Quantity
from drivers.boards.registry import BOARDS, open_board
from drivers.emulation.environment import Site
from drivers.emulation.weather import SimulatedEnvironment, Weather, cos_zenith
from drivers.interface import Channel, FittedSensor
from tests.support.masts import ALL_KINDS, SECOND_NS, sample, simulated

HILL = Site(27.7, 85.5, 2100.0)
NOON_S = datetime(2026, 3, 20, 6, 25, tzinfo=UTC).timestamp()
"""Solar noon at 85.5° E near the equinox."""
MIDNIGHT_S = NOON_S + 43_200


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


@pytest.mark.parametrize("quantity", QUANTITIES.values(), ids=lambda quantity: quantity.name)
def test_every_quantity_has_a_value_in_its_range_that_changes(quantity: Quantity) -> None:
    sensor = FittedSensor("one", "analog", None, (Channel.of(quantity, "V"),))
    board = SimulatedEnvironment(Weather(1, HILL), 0, [sensor])
    times = range(int(NOON_S) * SECOND_NS, int(NOON_S + 30 * 86_400) * SECOND_NS, 1800 * SECOND_NS)
    values = [board.value(f"one.{quantity.name}", time_ns) for time_ns in times]
    assert all(value is not None and quantity.lower <= value <= quantity.upper for value in values)
    assert len(set(values)) > 1
