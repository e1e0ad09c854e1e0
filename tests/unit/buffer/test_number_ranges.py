"""Ranges of record numbers against a plain set."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, strategies as st

from buffer.tables import NumberRanges

NUMBERS = st.sets(st.integers(1, 60), max_size=40)


@given(NUMBERS, st.integers(1, 60), st.integers(0, 60), st.booleans())
def test_missing_is_what_a_set_lacks(numbers: set[int], first: int, last: int, descending: bool) -> None:
    ranges = NumberRanges(sorted(numbers, reverse=descending))
    missing = [number for begin, end in ranges.missing(first, last) for number in range(begin, end + 1)]
    assert missing == [number for number in range(first, last + 1) if number not in numbers]


@given(NUMBERS)
def test_ascending_numbers_become_their_runs(numbers: set[int]) -> None:
    ranges = list(NumberRanges(sorted(numbers)))
    assert {number for begin, end in ranges for number in range(begin, end + 1)} == numbers
    assert all(end + 1 < begin for (_, end), (begin, _) in pairwise(ranges))
