"""Statistics by kind against independent computations: directions, sums and rates, states. No Spark."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from spark_jobs.transforms.statistics import statistics_of
from tests.support.directions import apart, by_pairs

BEGIN_S = 1_780_000_200
VANE, RAIN, PUMP = "vane.wind_direction", "rain.precipitation", "pump.state"


def row(
    channel: str,
    values: list[float | None],
    *,
    flags: list[int] | None = None,
    periods_ms: list[int] | None = None,
    kind: str | list[str | None] | None = None,
    units: list[str] | None = None,
) -> dict[str, Any]:
    """The one row of readings that follow one another from an interval's beginning on."""
    n = len(values)
    periods_ms = periods_ms or [1000] * n
    times_ms = itertools.accumulate(periods_ms[:-1], initial=BEGIN_S * 1000)
    readings = pa.table(
        {
            "gateway": ["m1"] * n,
            "channel": [channel] * n,
            "quantity": [channel.partition(".")[2]] * n,
            "kind": pa.array(kind if isinstance(kind, list) else [kind] * n, pa.string()),
            "unit": units or ["1"] * n,
            "time": pa.array([each * 1000 for each in times_ms]).cast(pa.timestamp("us", "UTC")),
            "period_ms": pa.array(periods_ms, pa.int32()),
            "value": pa.array(values, pa.float64()),
            "quality": pa.array(flags or [9 if each is None else 1 for each in values], pa.int32()),
            "ingested_at": pa.nulls(n, pa.timestamp("us", "UTC")),
        }
    )
    [found] = statistics_of(readings, 600).to_pylist()
    assert isinstance(found, dict)
    return found


def agrees(degrees: list[float]) -> None:
    found = row(VANE, list(degrees))
    avg, sd = by_pairs(degrees)
    if avg is None:
        assert found["avg"] is None
    else:
        assert 0 <= found["avg"] < 360
        assert apart(found["avg"], avg) < 1e-9
    assert found["sd"] is None if sd is None else found["sd"] == pytest.approx(sd, abs=1e-9)
    assert [found[name] for name in ("min", "max", "gust", "sum", "rate", "changes")] == [None] * 6


@pytest.mark.parametrize(
    "degrees",
    [
        # Around north, and on it.
        [350.0, 5.0, 8.0],
        [359.999999999, 0.000000001],
        [0.0, 360.0],
        # A vane at rest: no spread, to the last digit.
        [123.4] * 600,
        [359.7, 359.7],
        # From everywhere evenly, and opposite: no direction, the greatest spread.
        [float(each) for each in range(360)],
        [10.0, 190.0],
        [0.0, 90.0, 180.0, 270.0],
        # Nearly so.
        [10.0, 190.5],
        [45.0],
    ],
)
def test_directions_of_note(degrees: list[float]) -> None:
    agrees(degrees)


@given(st.lists(st.floats(0, 360), min_size=1, max_size=20))
def test_any_directions(degrees: list[float]) -> None:
    length = abs(np.exp(1j * np.radians(degrees)).mean())
    # Below, the direction of what is left is rounding: 1e-16 of a vector to 1e-3 of one is 1e-11 degrees.
    if length > 1e-3:
        agrees(degrees)


def test_readings_that_fail_are_no_part_of_a_direction() -> None:
    found = row(VANE, [10.0, 180.0, 20.0, None], flags=[1, 4, 2, 9])
    assert apart(found["avg"], 15.0) < 1e-9
    assert (found["count"], found["n_fail"], found["n_missing"]) == (2, 1, 1)


@given(st.lists(st.tuples(st.integers(0, 40), st.sampled_from([1, 2, 3, 9])), min_size=1, max_size=50))
def test_what_accumulates(tips: list[tuple[int, int]]) -> None:
    """A bucket of 0.2 mm: sum and rate of the readings that count, by fractions."""
    found = row(RAIN, [None if q == 9 else n * 0.2 for n, q in tips], flags=[q for _, q in tips])
    counted = [Fraction(n, 5) for n, q in tips if q in (1, 2)]
    if not counted:
        assert (found["sum"], found["rate"]) == (None, None)
        return
    assert found["sum"] == pytest.approx(float(sum(counted)), rel=1e-12)
    assert found["rate"] == pytest.approx(float(sum(counted) * 3600 / len(counted)), rel=1e-12)
    assert (found["gust"], found["changes"]) == (None, None)


def test_a_rate_is_by_the_periods_of_what_was_counted() -> None:
    found = row(RAIN, [0.2, 0.4, None, 0.6], periods_ms=[1000, 1000, 60_000, 10_000])
    assert (found["sum"], found["rate"]) == (pytest.approx(1.2), pytest.approx(1.2 * 3600 / 12))


@given(st.lists(st.tuples(st.sampled_from([0, 1]), st.sampled_from([1000, 5000])), min_size=1, max_size=40))
def test_a_states_share_of_time_and_its_changes(states: list[tuple[int, int]]) -> None:
    values = [float(on) for on, _ in states]
    found = row(PUMP, list(values), periods_ms=[period for _, period in states])
    on_ms, all_ms = sum(on * period for on, period in states), sum(period for _, period in states)
    assert found["avg"] == pytest.approx(on_ms / all_ms)
    assert found["changes"] == sum(a != b for a, b in itertools.pairwise(values))
    assert (found["min"], found["max"]) == (min(values), max(values))
    assert [found[name] for name in ("sd", "gust", "sum", "rate")] == [None] * 4


def test_a_change_is_seen_across_a_reading_that_is_missing() -> None:
    assert row(PUMP, [0.0, None, 1.0, None, 1.0])["changes"] == 1


def test_changes_are_counted_within_each_interval() -> None:
    on, off = (row(PUMP, [value] * 3)["changes"] for value in (1.0, 0.0))
    assert (on, off) == (0, 0)


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        (None, {"avg": 180.0, "sum": None, "changes": None}),
        ("of a later version", {"avg": 180.0, "sum": None, "changes": None}),
        ("direction", {"avg": 0.0, "sum": None, "changes": None}),
        ("accumulated", {"avg": 180.0, "sum": 360.0, "changes": None}),
        ("state", {"avg": 1.0, "sum": None, "changes": 1}),
    ],
)
def test_readings_bring_the_kind_of_a_quantity_that_is_not_built_in(
    kind: str | None, wanted: dict[str, float | None]
) -> None:
    found = row("x.leaf_turn", [355.0, 5.0], kind=kind)
    for name, value in wanted.items():
        assert found[name] == (None if value is None else pytest.approx(value, abs=1e-9)), name


def test_values_of_two_units_are_never_put_together() -> None:
    """A config gave its quantity another unit and kind; the row has those that came last."""
    kinds = [None, None, "accumulated", "accumulated"]
    found = row("x.flow", [1000.0, 2000.0, 3.0, 5.0], units=["L", "L", "m3", "m3"], kind=kinds)
    assert (found["unit"], found["sum"], found["avg"], found["max"]) == ("m3", 8.0, 4.0, 5.0)
    assert (found["count"], found["n_good"], found["recovery"]) == (2, 4, pytest.approx(2 / 600))


def test_a_linear_quantity_has_none_of_these() -> None:
    found = row("dht.temperature", [1.0, 2.0, 6.0], kind="accumulated")
    assert (found["avg"], found["sum"], found["rate"], found["changes"]) == (3.0, None, None, None)
    assert found["sd"] == pytest.approx(math.sqrt(7.0))


@pytest.mark.parametrize("wild", [5e6, 4_294_967_295.0, 1e200, 1.7e308, -1.5, 115.1])
def test_what_cannot_be_on_earth_counts_as_failed_though_it_is_flagged_good(wild: float) -> None:
    values, flags = [5.0] * 599 + [wild], [1] * 300 + [2] * 300
    found = row("cup.wind_speed", list(values), flags=flags)
    assert (found["avg"], found["max"], found["gust"], found["sd"], found["cube_mean"]) == (5, 5, 5, 0, 125)
    assert (found["count"], found["n_fail"], found["n_not_evaluated"], found["quality"]) == (599, 1, 299, 4)
    suspect = row("cup.wind_speed", [5.0, wild], flags=[1, 3])
    assert (suspect["n_suspect"], suspect["n_fail"]) == (1, 0)


def test_plausible_ranges_of_what_is_not_linear_or_not_built_in() -> None:
    assert row(VANE, [-90.0, -90.0, 1e200])["avg"] == pytest.approx(270)
    assert row(PUMP, [7.0, 0.0])["avg"] == 0.5
    assert row("flow.flow", [1e9, 1e308])["max"] == 1e9
