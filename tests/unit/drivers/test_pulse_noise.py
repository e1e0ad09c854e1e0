"""What whole pulses add to the spread of a cup's readings."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from drivers.hall_anemometer import HallAnemometerOptions, wind_speed_mps


def counted(speeds_mps: Any, cup: HallAnemometerOptions, steps: int) -> Any:
    """What a cup reports of a wind given ``steps`` times a second: whole pulses of each second."""
    turns = np.concatenate(([0.37], 0.37 + np.cumsum((speeds_mps - cup.offset) / cup.slope / steps)))
    pulses = np.diff(np.floor(turns[::steps]))
    return np.array([wind_speed_mps(hz, cup) for hz in pulses])


def test_whole_pulses_add_noise_to_sd() -> None:
    rng = np.random.default_rng(40)
    cup = HallAnemometerOptions(pin=4, slope=0.765, offset=0.35)
    steps, seconds = 10, 200_000
    # A gusty wind of 8 m/s: the mean speed of each second is that of an ideal counter.
    gusts = rng.normal(0, 0.8, seconds)
    speeds = np.repeat(8.0 + gusts, steps)
    ideal = speeds.reshape(seconds, steps).mean(axis=1)
    noise = counted(speeds, cup, steps) - ideal
    # Each end of a second lies somewhere between two pulses: slope/sqrt(12) an end, sqrt(2) of it for both.
    one_end = cup.slope / math.sqrt(12)
    assert one_end == pytest.approx(0.2208, abs=1e-4)
    assert np.std(noise) == pytest.approx(math.sqrt(2) * one_end, rel=0.01)
    # It adds to sd in squares, and takes nothing from the mean.
    measured = counted(speeds, cup, steps)
    assert np.var(measured) == pytest.approx(np.var(ideal) + 2 * one_end**2, rel=0.01)
    assert abs(noise.mean()) <= cup.slope / seconds

    # A count that begins with a pulse has but one such end; it is low by half a pulse.
    fresh = cup.slope * np.floor((ideal - cup.offset) / cup.slope) + cup.offset - ideal
    assert np.std(fresh) == pytest.approx(one_end, rel=0.01)
    assert fresh.mean() == pytest.approx(-cup.slope / 2, rel=0.01)


def test_in_a_steady_wind_the_noise_depends_on_the_fraction_of_a_pulse() -> None:
    cup = HallAnemometerOptions(pin=4, slope=0.765, offset=0.35)
    for fraction in (0.0, 0.1, 0.5, 0.8):
        speed_mps = cup.offset + cup.slope * (10 + fraction)
        measured = counted(np.full(20_000, speed_mps), cup, 1)
        expected = cup.slope * math.sqrt(fraction * (1 - fraction))
        assert np.std(measured) == pytest.approx(expected, rel=0.01, abs=1e-9)
