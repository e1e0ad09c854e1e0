"""A meter's running total: what was added, past its end and after a reset."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from drivers.running_total import Total, added


@pytest.mark.parametrize(
    ("last", "total", "wanted"),
    [
        (10, 12, 2),
        (10, 10, 0),
        # Past the end of 16 bits.
        (65_530, 4, 10),
        (59_000, 1, 6_537),
        # Anew: the step past the end would be too long.
        (40_000, 3, 3),
        (9, 4, 4),
        (9, 0, 0),
        # Neither: a total that went back a little.
        (40_000, 39_999, None),
        (9, 8, None),
        # Below 0: what was taken from one that counts both ways, or a device's code for an error.
        (100, -5, None),
        (-100, -200, None),
        # Past the end of a signed one.
        (32_767, -32_768, 1),
    ],
)
def test_added(last: float, total: float, wanted: float | None) -> None:
    assert added(Total(last), total, 65_536) == wanted


@pytest.mark.parametrize(
    ("totals", "wanted"),
    [
        # It boots, and shows 0 until it has read its memory.
        ([40_000, 0, 40_000, 40_002], [0, 0, 2]),
        ([40_000, *[0] * 10, 40_003], [*[0] * 10, 3]),
        # It boots near its end: no step past it, until it shows what is there or stays at 0.
        ([950_000, 0, 950_002], [0, 2]),
        ([950_000, 0, 0, 30], [0, 0, 50_030]),
        ([950_000, *[0] * 11, 30], [*[0] * 10, 50_000, 30]),
        ([950_000, 0, 200_000], [0, 200_000]),
        # It began anew, be it long after, or at less than before.
        ([40_000, *[0] * 11, 40_003], [*[0] * 11, 40_003]),
        ([40_000, 0, 39_999, 40_003], [0, 39_999, 4]),
        ([40_000, 0, 5, 40_000], [0, 5, 39_995]),
        # Of one that counts both ways 0 is a total.
        ([-40, 0, 5], [40, 5]),
        ([0, 0, 7], [0, 7]),
    ],
)
def test_a_moments_zero_is_no_reset(totals: list[float], wanted: list[float]) -> None:
    last, found = Total(totals[0]), []
    for total in totals[1:]:
        found.append(added(last, total, 1e6))
        last = last.then(total)
    assert found == wanted


@given(st.integers(0, 999), st.lists(st.integers(0, 99), max_size=60))
def test_whatever_a_meter_of_three_digits_counts_is_added_once(first: int, counts: list[int]) -> None:
    last, found = Total(first), 0.0
    # At 0 it may boot: what was counted to there is added with the next.
    for count in [*counts, 1, 1]:
        total = (last.number + count) % 1000
        step = added(last, total, 1000)
        assert step is not None
        found, last = found + step, last.then(total)
    assert found == sum(counts) + 2
