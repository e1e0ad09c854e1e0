"""Datasheet figures, exactly."""

from __future__ import annotations

import pytest

from drivers.bp20 import Bp20Options, pressure_kpa
from drivers.gpsd import distance_m
from drivers.hall_anemometer import HallAnemometerOptions, wind_speed_mps
from drivers.pyranometer import PyranometerOptions, irradiance_wm2
from drivers.scd4x import co2_ppm

NRG = HallAnemometerOptions(17, 0.765, 0.35, "offset")


@pytest.mark.parametrize(
    ("value", "expected", "within"),
    [
        (wind_speed_mps(9.0, NRG), 7.235, 1e-12),
        (wind_speed_mps(98.0, NRG), 75.32, 1e-12),
        (wind_speed_mps(0.0, NRG), 0.35, 0),
        # At rest it reads 0 unless configured otherwise.
        (wind_speed_mps(0.0, HallAnemometerOptions(17, 0.765, 0.35)), 0.0, 0),
        (wind_speed_mps(1082.0, HallAnemometerOptions(17, 0.0462, 0.21)), 50.1984, 1e-9),
        (pressure_kpa(0.0, Bp20Options()), 10.55, 0),
        (pressure_kpa(0.20422211, Bp20Options()), 15.0, 1e-6),
        (pressure_kpa(4.79348325, Bp20Options()), 115.0, 1e-6),
        # Beyond the range it is not clamped.
        (pressure_kpa(5.0, Bp20Options()), 119.5, 1e-12),
        (irradiance_wm2(0.020, PyranometerOptions()), 2000.0, 1e-9),
        (irradiance_wm2(-0.00002, PyranometerOptions()), -2.0, 1e-12),
        # The datasheet's example of an SCD4x: 0x01F4 is 500 ppm.
        (co2_ppm(0x01F4), 500.0, 0),
        (distance_m(27.7, 85.5, 27.7, 85.5), 0.0, 0),
        # A degree of latitude, and half the circumference, on the sphere of the mean radius.
        (distance_m(0, 0, 1, 0), 111_195.08, 0.01),
        (distance_m(0, 0, 0, 180), 20_015_114.4, 0.1),
        # Across the date line it is the short way round.
        (distance_m(0, 179.5, 0, -179.5), 111_195.08, 0.01),
    ],
)
def test_figures(value: float, expected: float, within: float) -> None:
    assert value == pytest.approx(expected, rel=0, abs=within)
