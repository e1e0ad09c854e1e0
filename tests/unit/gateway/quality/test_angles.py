"""Directions in the quality tests: north is a direction like any other."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from drivers.wind_vane import CHANNEL
from gateway.config import QualityRules, SensorConfig
from gateway.config.quality import DEFAULTS
from gateway.quality.qartod import Flagged, MinuteMeans, QartodTests, near, turned

S = 1_000_000_000
RULES = QualityRules(
    max_step=60.0,
    flat_s=30.0,
    flat_within=0.5,
    pair_absolute=30.0,
    pair_window_s=180.0,
    site_range=(0.0, 360.0),
)


class Vanes:
    """Twins, read each second."""

    def __init__(self, rules: QualityRules = RULES) -> None:
        means = MinuteMeans()
        self.vanes = [
            QartodTests(
                SensorConfig(name, "wind-vane", pair=twin, quality={"wind_direction": rules}),
                CHANNEL,
                means,
                accumulates=False,
            )
            for name, twin in (("a", "b"), ("b", "a"))
        ]
        self.at_s = 0

    def read(self, one: float, other: float, *reasons: str) -> tuple[Flagged, Flagged]:
        """The flags of both vanes a second later."""
        self.at_s += 1
        mine, theirs = (
            vane.test(self.at_s * S, value, reasons)
            for vane, value in zip(self.vanes, (one, other), strict=True)
        )
        return mine, theirs

    def run(self, pairs: list[tuple[float, float]]) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
        """The reasons of both vanes' readings."""
        flagged = [self.read(*each) for each in pairs]
        return [(mine.reasons, theirs.reasons) for mine, theirs in flagged]


@given(st.floats(-1e4, 1e4))
def test_a_turn_is_the_shorter_way(degrees: float) -> None:
    assert -180 <= turned(degrees) < 180
    assert (turned(degrees) - degrees) % 360 == pytest.approx(0, abs=1e-6) or (
        turned(degrees) - degrees
    ) % 360 == pytest.approx(360, abs=1e-6)


@given(st.floats(0, 360), st.floats(-1e4, 1e4))
def test_near_another_a_direction_is_the_same_one(direction: float, other: float) -> None:
    assert abs(near(direction, other) - other) <= 180 + 1e-9
    assert turned(near(direction, other) - direction) == pytest.approx(0, abs=1e-6)


@given(
    st.lists(st.tuples(st.floats(-90, 90), st.floats(-90, 90)), min_size=2, max_size=40),
    st.integers(0, 359),
    st.integers(1, 20),
)
def test_where_north_is_changes_no_flag(turns: list[tuple[float, float]], north: int, repeats: int) -> None:
    courses, at = [], (0.0, 0.0)
    for turn in turns:
        at = at[0] + round(turn[0]), at[1] + round(turn[1])
        courses += [at] * repeats
    here = [(one % 360.0, other % 360.0) for one, other in courses]
    there = [((one + north) % 360.0, (other + north) % 360.0) for one, other in courses]
    assert Vanes().run(here) == Vanes().run(there)


def test_a_turn_over_north_is_no_step_and_one_of_61_degrees_is() -> None:
    vanes = Vanes()
    assert vanes.read(355.0, 5.0) == vanes.read(5.0, 355.0)
    assert vanes.read(325.0, 355.0) == (Flagged(1, ()), Flagged(1, ()))
    assert vanes.read(26.1, 355.0)[0] == Flagged(3, ("STEP_TOO_HIGH",))


def test_a_vane_that_stands_at_north_is_stuck() -> None:
    found = Vanes().run([((359.8, 0.1)[at % 2], 10.0 + at) for at in range(40)])
    assert ["STUCK_VALUE" in mine for mine, _ in found] == [False] * 30 + [True] * 10
    assert not any("STUCK_VALUE" in theirs for _, theirs in found)


def test_twins_about_north_agree_and_those_apart_dont() -> None:
    rules = QualityRules(pair_absolute=30.0, pair_window_s=180.0)
    swaying = [((at % 20 - 10) % 360.0, (10 - at % 20) % 360.0) for at in range(600)]
    assert {reasons for both in Vanes(rules).run(swaying) for reasons in both} == {()}
    apart = Vanes(rules).run([(340.0, 15.0)] * 600)
    assert apart[-1] == (("PAIR_DISAGREES",), ("PAIR_DISAGREES",))
    # One with its mark the wrong way round, now a little more than half a turn off and now a little less.
    reversed_ = Vanes(rules).run([(178.0 + at // 60 % 2 * 4, 0.0) for at in range(900)])
    assert reversed_[-1] == (("PAIR_DISAGREES",), ("PAIR_DISAGREES",))
    # One that turned round in a calm within the window, minute by minute, and agrees since.
    calm = [(max(0, min(360, (at - 300) / 2)) % 360.0, 0.0) for at in range(1800)]
    longer = replace(rules, pair_window_s=1800.0)
    assert Vanes(longer).run(calm)[-1] == ((), ())
    # However often one of them has turned round.
    vanes = Vanes(rules)
    for at in range(0, 720, 40):
        vanes.read(at % 360.0, 0.0)
    assert vanes.run([(0.0, 10.0)] * 600)[-1] == ((), ())


def test_the_dead_band_is_suspect_and_keeps_its_reason() -> None:
    assert Vanes().read(4.0, 4.0, "DEAD_BAND")[0] == Flagged(3, ("DEAD_BAND",))


def test_the_defaults_flag_no_turning_vane() -> None:
    turning = [(at * 7 % 360.0, at * 7 % 360.0) for at in range(2000)]
    found = Vanes(DEFAULTS["wind_direction"]).run(turning)
    assert {reasons for both in found for reasons in both} == {()}
