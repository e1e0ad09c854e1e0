"""Warnings about a cup's transfer function and interval, from the configuration alone."""

from __future__ import annotations

import pytest

from drivers.driver_type import Nameplate
from drivers.hall_anemometer import MODELS, TYPE, CupModel, HallAnemometerOptions, cup_model, doubts


@pytest.mark.parametrize(
    ("spelled", "name"),
    [
        ("NRG #40", "NRG #40"),
        ("nrg 40C", "NRG #40"),
        ("Thies First Class Advanced", "Thies First Class"),
        ("Thies 4.3351", "Thies First Class"),
        ("Vector Instruments A100L2", "Vector A100LK"),
        ("R. M. Young 05103", "RM Young 05103"),
        ("Young Wind Sentry", "RM Young Wind Sentry"),
    ],
)
def test_models_are_known_however_they_are_spelled(spelled: str, name: str) -> None:
    found = cup_model(spelled)
    assert found is not None
    assert found.name == name


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_a_makers_own_figures_raise_no_doubt(model: CupModel) -> None:
    assert list(doubts(model.name, model.slope, model.offset)) == []
    # Nor does a good specimen: 2 % and 0.1 m/s away.
    assert list(doubts(model.name, model.slope * 1.02, model.offset + 0.1)) == []


@pytest.mark.parametrize(
    ("model", "slope", "why"),
    [
        ("NRG #40H", 0.0765, "check the certificate"),
        ("NRG #40H", 0.8109, "check the certificate"),
        ("NRG #40H", 1.711, "it looks like mph per Hz"),
        ("NRG S1", 0.18175, "it looks like knots per Hz"),
        ("NRG S1", 0.3366, "it looks like km/h per Hz"),
        ("NRG S1", 0.188, "it fits half as many pulses a turn"),
        ("NRG S1", 0.0468, "it fits a count of both edges; here the falling ones count"),
    ],
)
def test_a_slope_far_from_the_models(model: str, slope: float, why: str) -> None:
    known = cup_model(model)
    assert known is not None
    found = list(doubts(model, slope, known.offset))
    assert found == [("slope", f"{slope:g} m/s per Hz is far from {model}'s {known.slope:g}: {why}")]


def test_5_percent_and_20_cm_a_second_are_the_bounds() -> None:
    assert list(doubts("NRG 40H", 0.765 * 1.049, 0.549)) == []
    assert [key for key, _ in doubts("NRG 40H", 0.765 * 1.051, 0.551)] == ["slope", "offset"]
    assert [key for key, _ in doubts("NRG 40H", 0.765 * 0.949, 0.149)] == ["slope", "offset"]
    (found,) = doubts("Thies First Class", 0.0462, 0.42)
    assert found == ("offset", "0.42 m/s is far from Thies First Class's 0.21: check the certificate")


@pytest.mark.parametrize(
    ("model", "slope", "offset", "found"),
    [
        ("Vector A100LKK", 0.0499, 0.24, [("model", 'is no model known here (is it the "Vector A100LK"?)')]),
        ("Ammonit", 0.05, 0.2, []),
        (None, 0.765, 0.35, []),
        (None, 0.02, 0.0, [("slope", "0.02 m/s per Hz would be 3750 Hz at 75 m/s, more than any cup gives")]),
        ("home-made", 0.71, 0.44, []),
        (
            "Home made",
            0.765,
            0.35,
            [
                (
                    "slope",
                    "0.765 m/s per Hz and 0.35 m/s are the NRG #40's: a home-made cup needs its own, "
                    "from a wind tunnel or from weeks beside a calibrated one",
                )
            ],
        ),
        ("DIY", 0.71, 0.44, []),
        # Otech's certificates of 29 March 2010, NRG #40 serials 179500149067 and 179500149082.
        ("NRG #40", 0.755, 0.41, []),
        ("NRG #40", 0.756, 0.39, []),
    ],
)
def test_other_doubts(model: str | None, slope: float, offset: float, found: list[tuple[str, str]]) -> None:
    assert list(doubts(model, slope, offset)) == found


@pytest.mark.parametrize(("interval_s", "warned"), [(0.5, False), (1.0, False), (1.001, True), (2.0, True)])
def test_intervals_that_give_no_gusts_are_warned_of(interval_s: float, warned: bool) -> None:
    options = HallAnemometerOptions(17, 0.765, 0.35)
    found = list(TYPE.concerns(options, Nameplate("NRG 40H", "1", interval_s)))
    assert [concern.key for concern in found] == ([("interval_s",)] if warned else [])
    if warned:
        assert found[0].message.startswith(f"{interval_s:g} s is too long for gusts, means over 3 s")
