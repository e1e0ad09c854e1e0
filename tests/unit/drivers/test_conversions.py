"""Datasheet figures, exactly."""

from __future__ import annotations

import pytest

from drivers.bp20 import Bp20Options, pressure_kpa
from drivers.dht11 import frame_values
from drivers.gpsd import distance_m
from drivers.hall_anemometer import HallAnemometerOptions, wind_speed_mps
from drivers.interface import ReadError
from drivers.pyranometer import PyranometerOptions, irradiance_wm2
from drivers.scd4x import co2_ppm


def test_nrg_cup() -> None:
    cup = HallAnemometerOptions(17, 0.765, 0.35, "offset")
    assert wind_speed_mps(9.0, cup) == pytest.approx(7.235, abs=1e-12)
    assert wind_speed_mps(98.0, cup) == pytest.approx(75.32, abs=1e-12)
    assert wind_speed_mps(0.0, cup) == 0.35


def test_a_cup_at_rest_reads_zero_unless_configured_otherwise() -> None:
    assert wind_speed_mps(0.0, HallAnemometerOptions(17, 0.765, 0.35)) == 0.0


def test_thies_cup() -> None:
    assert wind_speed_mps(1082.0, HallAnemometerOptions(17, 0.0462, 0.21)) == pytest.approx(50.1984, abs=1e-9)


def test_bp20() -> None:
    assert pressure_kpa(0.0, Bp20Options()) == 10.55
    assert pressure_kpa(0.20422211, Bp20Options()) == pytest.approx(15.0, abs=1e-6)
    assert pressure_kpa(4.79348325, Bp20Options()) == pytest.approx(115.0, abs=1e-6)
    # Beyond the range it is not clamped.
    assert pressure_kpa(5.0, Bp20Options()) == pytest.approx(119.5, abs=1e-12)


def test_pyranometer() -> None:
    assert irradiance_wm2(0.020, PyranometerOptions()) == pytest.approx(2000.0, abs=1e-9)
    assert irradiance_wm2(-0.00002, PyranometerOptions()) == pytest.approx(-2.0, abs=1e-12)


def test_scd4x_word_is_ppm() -> None:
    # The datasheet's example: 0x01F4 is 500 ppm.
    assert co2_ppm(0x01F4) == 500.0


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        # The datasheet's example: 00110101 00000000 00011000 00000100 is 53 %RH, 24.4 °C.
        ((0b00110101, 0, 0b00011000, 0b00000100), (24.4, 53.0)),
        ((72, 8, 6, 0x80 | 3), (-6.3, 72.8)),
        ((20, 0, 0, 0x80 | 1), (-0.1, 20.0)),
        ((99, 9, 50, 9), (50.9, 99.9)),
    ],
)
def test_dht11_frames(frame: tuple[int, int, int, int], expected: tuple[float, float]) -> None:
    assert frame_values(bytes([*frame, sum(frame) & 0xFF])) == expected


def test_a_dht22s_frame_is_recognised() -> None:
    # 65.2 %RH and 35.1 °C as a DHT22 sends them.
    with pytest.raises(ReadError, match="DHT22"):
        frame_values(bytes([0x02, 0x8C, 0x01, 0x5F, 0xEE]))


def test_haversine() -> None:
    assert distance_m(27.7, 85.5, 27.7, 85.5) == 0.0
    # A degree of latitude, and half the circumference, on the sphere of the mean radius.
    assert distance_m(0, 0, 1, 0) == pytest.approx(111_195.08, abs=0.01)
    assert distance_m(0, 0, 0, 180) == pytest.approx(20_015_114.4, abs=0.1)
    # Across the date line it is the short way round.
    assert distance_m(0, 179.5, 0, -179.5) == pytest.approx(111_195.08, abs=0.01)
