"""A meter's running total: what was added, past its end and after a reset."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.running_total import added


@pytest.mark.parametrize(
    ("last", "total", "wanted"),
    [
        (10, 12, 2),
        (10, 10, 0),
        # Past the end of 16 bits.
        (65_530, 4, 10),
        (59_000, 0, 6_536),
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
    assert added(last, total, 65_536) == wanted


@given(st.integers(0, 999), st.lists(st.integers(0, 99), max_size=60))
def test_whatever_a_meter_of_three_digits_counts_is_added_once(first: int, counts: list[int]) -> None:
    last, found = first, 0.0
    for count in counts:
        total = (last + count) % 1000
        step = added(last, total, 1000)
        assert step is not None
        found, last = found + step, total
    assert found == sum(counts)
