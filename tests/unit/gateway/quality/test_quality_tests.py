"""Each quality test by itself: what it flags, what it leaves alone, and what gaps and set clocks do to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from gateway.config import QualityRules
from gateway.quality.qartod import Bin, FlatLineTest, MinuteMeans, PairTest, SpikeTest

S = 1_000_000_000
STEP = QualityRules(max_step=10.0)
SPIKE = QualityRules(spike=3.0, spike_factor=6.0)


def jumped(values: list[float], rules: QualityRules, every_s: float = 1.0, scale: float = 1.0) -> list[int]:
    """Positions of the flagged values."""
    jumps = SpikeTest(scale)
    return [at for at, value in enumerate(values) if jumps.test(round(at * every_s * S), value, rules)]


def test_a_step_beyond_the_limit_is_flagged_and_one_at_it_is_not() -> None:
    jumps = SpikeTest()
    assert jumps.test(0, 5.0, STEP) == ()
    assert jumps.test(S, 15.0, STEP) == ()
    assert jumps.test(2 * S, 25.5, STEP) == ("STEP_TOO_HIGH",)


@pytest.mark.parametrize("values", [[5, 5, 40, 5, 5], [5, 5, 40, -40, 5]])
def test_the_reading_after_a_spike_is_held_against_what_was_believed_before_it(values: list[float]) -> None:
    assert jumped(values, STEP) == [at for at, value in enumerate(values) if value != 5]


CALM = [8 + 0.2 * (-1) ** n for n in range(60)]
GUSTY = [8 + 2.0 * (-1) ** n for n in range(60)]
JUMPS: Mapping[str, tuple[list[float], QualityRules, float, float, list[int]]] = {
    "a new level is believed as soon as a second reading agrees": (
        [5, 5, 40, 41, 42, 5, 5.5], STEP, 1.0, 1.0, [2, 5]
    ),
    "a minute apart": ([5, 40, 5], STEP, 60.0, 1.0, [1]),
    "more than a minute apart nothing is compared": ([5, 40, 5], STEP, 60.001, 1.0, []),
    "a coarse reading has wider limits": ([0.0, 76.5, 0.0], STEP, 0.1, 10.0, []),
    "beyond the wider limits": ([0.0, 105.0, 0.0], STEP, 0.1, 10.0, [1]),
    "a spike stands out from the scatter before": ([*CALM, 12.0, 8.0], SPIKE, 1.0, 1.0, [60]),
    "in gusts it does not": ([*GUSTY, 12.0, 8.0], SPIKE, 1.0, 1.0, []),
    "but for a larger one": ([*GUSTY, 40.0, 8.0], SPIKE, 1.0, 1.0, [60]),
    "too few readings for a scatter": ([8.0] * 19 + [50.0, 8.0], SPIKE, 1.0, 1.0, []),
    "enough": ([8.0] * 20 + [50.0, 8.0], SPIKE, 1.0, 1.0, [20]),
    "a gust front costs one flag": ([*[4.0] * 60, *[14.0] * 60], SPIKE, 1.0, 1.0, [60]),
    "a test that is off": ([8.0] * 30 + [5000.0, 8.0], QualityRules(), 1.0, 1.0, []),
}  # fmt: skip


@pytest.mark.parametrize(("values", "rules", "every_s", "scale", "flagged"), JUMPS.values(), ids=JUMPS)
def test_which_readings_jump(
    values: list[float], rules: QualityRules, every_s: float, scale: float, flagged: list[int]
) -> None:
    assert jumped(values, rules, every_s, scale) == flagged


def test_time_that_does_not_grow_begins_again() -> None:
    jumps = SpikeTest()
    assert jumps.test(5 * S, 5.0, STEP) == ()
    assert jumps.test(5 * S, 50.0, STEP) == ()
    assert jumps.test(2 * S, 5.0, STEP) == ()
    assert jumps.test(3 * S, 50.0, STEP) == ("STEP_TOO_HIGH",)


@given(st.lists(st.floats(-1000, 1000), min_size=2, max_size=60))
def test_no_two_neighbours_within_the_step_are_both_flagged(values: list[float]) -> None:
    flagged = set(jumped(values, STEP))
    assert 0 not in flagged
    for before, at in pairwise(range(len(values))):
        if abs(values[at] - values[before]) <= 5:
            assert not {before, at} <= flagged


FLAT = QualityRules(flat_s=60.0, flat_within=0.0)


def stuck(values: list[float], rules: QualityRules, every_s: float = 1.0) -> list[int]:
    stillness = FlatLineTest(round(every_s * S))
    return [at for at, value in enumerate(values) if stillness.test(round(at * every_s * S), value, rules)]


BAND = replace(FLAT, flat_within=0.2)


@pytest.mark.parametrize(
    ("values", "rules", "every_s", "flagged"),
    [
        ([7.0] * 63 + [7.1] + [7.0] * 5, FLAT, 1.0, [60, 61, 62]),
        # What counts as the same is a band, not a step.
        ([7.0, 7.2] * 40, BAND, 1.0, list(range(60, 80))),
        ([7.0 + 0.1 * n for n in range(80)], BAND, 1.0, []),
        # Few readings are no line, however long they took.
        ([7.0] * 7, FLAT, 600.0, [5, 6]),
    ],
)
def test_a_constant_is_stuck_once_it_has_lasted(
    values: list[float], rules: QualityRules, every_s: float, flagged: list[int]
) -> None:
    assert stuck(values, rules, every_s) == flagged


def test_a_cup_at_rest_is_not_stuck_but_for_the_longest_calm() -> None:
    rules = replace(FLAT, rest_below=0.5, rest_s=3600.0)
    assert stuck([0.35] * 3600, rules) == []
    assert stuck([0.35] * 3603, rules) == [3600, 3601, 3602]
    assert stuck([0.35] * 3599 + [0.6] + [0.35] * 3000, rules) == []
    assert stuck([0.51] * 62, rules) == [60, 61]


def test_a_gap_ends_a_line() -> None:
    stillness = FlatLineTest(S)
    times = [*range(50), *range(50 + 601, 50 + 601 + 59)]
    assert not any(stillness.test(at * S, 7.0, FLAT) for at in times)


WIND = QualityRules(
    rest_below=0.5, stopped_s=300.0, twin_above=2.0, mast_above=6.0,
    pair_absolute=1.0, pair_relative=0.3, pair_window_s=600.0, pair_above=3.0,
    drift_absolute=0.2, drift_relative=0.05, drift_window_s=7200.0,
)  # fmt: skip


class TwoCups:
    """Twins, and a third cup at another height, read each second (or each ``every_s``)."""

    def __init__(self, rules: QualityRules = WIND, every_s: int = 1, third: bool = False) -> None:
        self.rules, self.every_s = rules, every_s
        minute_means, interval_ns = MinuteMeans(), every_s * S
        self.cups = [
            PairTest("a", "wind_speed", "b", interval_ns, minute_means),
            PairTest("b", "wind_speed", "a", interval_ns, minute_means),
            *([PairTest("c", "wind_speed", None, interval_ns, minute_means)] if third else []),
        ]
        self.at_s = 0

    def run(self, seconds: int, *speeds: float | None) -> list[list[tuple[str, ...]]]:
        """The reasons of each cup's readings at constant speeds."""
        found: list[list[tuple[str, ...]]] = [[] for _ in speeds]
        for _ in range(seconds // self.every_s):
            for cup, speed, reasons in zip(self.cups, speeds, found, strict=True):
                reasons.append(cup.test(self.at_s * S, speed, self.rules))
            self.at_s += self.every_s
        return found


def test_a_cup_at_rest_beside_a_turning_twin_is_stuck() -> None:
    cups = TwoCups()
    assert not any(map(any, cups.run(600, 8.0, 8.0)))
    a, b = cups.run(900, 0.0, 8.0)
    # Five minutes at rest, flagged two minutes later: by then every sampler has added its minute.
    assert [bool(reasons) for reasons in a] == [False] * 360 + [True] * 540
    assert set(a[360:]) == {("STUCK_VALUE",)}
    assert set(b) == {()}
    a, b = cups.run(5, 8.0, 8.0)
    assert set(a) == {()}


def test_calm_is_calm_for_both() -> None:
    cups = TwoCups(third=True)
    assert not any(map(any, cups.run(3600, 0.0, 0.0, 0.0)))
    assert not any(map(any, cups.run(1200, 0.0, 1.9, 5.9)))


def test_two_iced_twins_differ_from_another_height() -> None:
    cups = TwoCups(third=True)
    cups.run(600, 8.0, 8.0, 9.0)
    a, b, c = cups.run(900, 0.0, 0.35, 9.0)
    assert (a[-1], b[-1], c[-1]) == (("STUCK_VALUE",), ("STUCK_VALUE",), ())


def test_twins_far_apart_are_both_flagged_until_they_agree_again() -> None:
    cups = TwoCups()
    cups.run(1200, 8.0, 8.0)
    a, b = cups.run(1200, 5.0, 8.0)
    assert set(a) == set(b) == {(), ("PAIR_DISAGREES",)}
    # The median of ten minutes turns after more than five.
    assert a.index(("PAIR_DISAGREES",)) == b.index(("PAIR_DISAGREES",)) == 420
    a, b = cups.run(1200, 8.0, 8.0)
    assert (a[0], a[-1], b[-1]) == (("PAIR_DISAGREES",), (), ())


@pytest.mark.parametrize("speeds", [(8.0, 6.0), (2.9, 0.6), (3.0, 3.9)])
def test_a_wakes_deficit_light_winds_and_small_differences_are_no_disagreement(
    speeds: tuple[float, float],
) -> None:
    cups = TwoCups(replace(WIND, drift_absolute=None))
    assert not any(map(any, cups.run(3600, *speeds)))


def test_ten_per_cent_for_long_are_a_drift() -> None:
    cups = TwoCups(every_s=5)
    assert not any(map(any, cups.run(7200, 8.0, 8.1)))
    a, b = cups.run(7200, 8.0, 8.9)
    first = a.index(("PAIR_DISAGREES",)) * 5
    assert a.index(("PAIR_DISAGREES",)) == b.index(("PAIR_DISAGREES",))
    # Three quarters of the window: until then the middle half of its means is not of one mind.
    assert 5400 < first < 6300
    assert a[-1] == b[-1] == ("PAIR_DISAGREES",)


def test_a_wake_that_comes_and_goes_is_no_drift() -> None:
    cups = TwoCups(every_s=5)
    cups.run(7200, 8.0, 8.0)
    for _ in range(12):
        for deficit in (0.97, 0.88, 0.80, 0.93):
            assert not any(map(any, cups.run(600, 8.0 * deficit, 8.0)))


def test_a_second_s_shift_and_gusts_change_nothing() -> None:
    cups = TwoCups()
    for n in range(1800):
        gust = 8.0 + 4 * (-1) ** (n // 3)
        late = 8.0 + 4 * (-1) ** ((n + 1) // 3)
        assert cups.run(1, gust, late) == [[()], [()]]


def test_readings_that_are_missing_compare_with_nothing() -> None:
    cups = TwoCups()
    cups.run(1200, 8.0, 8.0)
    assert not any(map(any, cups.run(3600, None, 8.0)))
    assert not any(map(any, cups.run(3600, 0.0, None)))


def test_a_replaced_sensor_begins_without_a_past() -> None:
    minute_means = MinuteMeans()
    minute_means.add("a", "wind_speed", 60 * S, 1, Bin(8.0, at_rest=False), 10)
    minute_means.add("b", "wind_speed", 60 * S, 1, Bin(8.0, at_rest=False), 10)
    PairTest("a", "wind_speed", "b", S, minute_means)
    assert minute_means.bins("a", "wind_speed", 60 * S, [1]) == [None]
    assert minute_means.bins("b", "wind_speed", 60 * S, [1]) == [Bin(8.0, at_rest=False)]


def test_old_bins_go() -> None:
    minute_means = MinuteMeans()
    for index in range(100):
        minute_means.add("a", "wind_speed", S, index, Bin(1.0, at_rest=False), 5)
    found = minute_means.bins("a", "wind_speed", S, range(90, 101))
    assert found == [None] * 5 + [Bin(1.0, at_rest=False)] * 5 + [None]
    minute_means.add("a", "wind_speed", S, 2, Bin(2.0, at_rest=False), 5)
    assert minute_means.bins("a", "wind_speed", S, [2, 99]) == [Bin(2.0, at_rest=False), None]
