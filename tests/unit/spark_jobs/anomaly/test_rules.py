"""The baseline: each rule at its limits."""

from __future__ import annotations

import numpy as np

from spark_jobs.anomaly.observations import FIELDS, Observations, broken_rules
from tests.unit.spark_jobs.anomaly.test_features import NAN, observed

CUPS = ("a.wind_speed", "b.wind_speed")
COLD = (*CUPS, "t.temperature")


def test_icing_is_cold_and_steady() -> None:
    seen = observed(
        COLD,
        {"avg": [4.0, 4.0, 2.0], "sd": [0.099, 0.1, NAN]},
        {"avg": [4.0, 4.0, 2.01], "sd": [0.05, 0.05, NAN]},
        # Without a valid temperature it is unknown.
        {"avg": [4.0, 4.0, NAN], "sd": [0.05, 0.05, NAN]},
        {"avg": [4.0, 4.0, -5.0], "sd": [0.05, 0.05, NAN], "recovery": [1.0, 0.4, 1.0]},
    )
    assert broken_rules(seen) == [["icing:a.wind_speed"], [], [], ["icing:a.wind_speed"]]
    assert broken_rules(observed(CUPS, {"avg": [4.0, 4.0], "sd": [0.05, 0.05]})) == [[]]


def test_dead_stands_for_two_intervals_while_another_turns() -> None:
    seen = observed(
        CUPS,
        {"avg": [0.0, 2.6], "sd": [0.0, 0.3]},
        {"avg": [0.0, 2.5], "sd": [0.0, 0.3]},
        {"avg": [0.0, 0.0], "sd": [0.0, 0.0]},
        {"avg": [5.0, 5.0], "sd": [0.02, 0.5]},
    )
    assert broken_rules(seen) == [["dead:a.wind_speed"], [], [], []]
    before = {name: getattr(seen, name).copy() for name in FIELDS}
    before["sd"][0, 1, 0] = 0.5
    assert broken_rules(Observations(CUPS, seen.quantities, *before.values()))[0] == []


def test_constant_and_doubted() -> None:
    seen = observed(
        CUPS,
        {"avg": [1.01, 6.0], "sd": [0.0, 0.5]},
        {"avg": [1.0, 6.0], "sd": [0.0, 0.5], "doubted": [0.5, 0.51]},
    )
    assert broken_rules(seen) == [["constant:a.wind_speed", "dead:a.wind_speed"][::-1], [
        "dead:a.wind_speed", "doubted:b.wind_speed",
    ]]  # fmt: skip
    assert broken_rules(seen.rows(np.array([False, False]))) == []
