from __future__ import annotations

from itertools import pairwise

from hypothesis import given, strategies as st

from cloud.wire.number_set import NumberSet

spans = st.lists(st.tuples(st.integers(1, 60), st.integers(-2, 12)).map(lambda pair: (pair[0], sum(pair))))


def filled(ranges: list[tuple[int, int]]) -> NumberSet:
    return NumberSet(ranges)


def numbers(ranges: list[tuple[int, int]]) -> set[int]:
    return {number for first, last in ranges for number in range(first, last + 1)}


@given(spans, spans)
def test_is_a_set(ranges: list[tuple[int, int]], others: list[tuple[int, int]]) -> None:
    seqs, model = filled(ranges), numbers(ranges)
    assert list(seqs) == sorted(model)
    assert len(seqs) == len(model)
    assert seqs.highest == max(model, default=0)
    assert [number for number in range(80) if number in seqs] == sorted(model)
    assert set(seqs.missing(5, 40)) == set(range(5, 41)) - model
    assert set(seqs.without(filled(others))) == model - numbers(others)
    for first, last in filled(others).spans():
        assert seqs.overlaps(first, last) == bool(model & set(range(first, last + 1)))
    for number in range(80):
        beyond = next(after for after in range(number, 200) if after not in model)
        assert seqs.end_of(number) == beyond - 1
    seqs.update(filled(others))
    assert set(seqs) == model | numbers(others)


@given(spans)
def test_intervals_neither_touch_nor_overlap(ranges: list[tuple[int, int]]) -> None:
    kept = list(filled(ranges).spans())
    assert all(before[1] + 1 < after[0] for before, after in pairwise(kept))
    assert filled(ranges).gaps == max(len(kept) - 1, 0)


def test_a_year_without_a_gap_is_one_interval() -> None:
    seqs = NumberSet()
    for number in range(1, 10_001):
        seqs.add(number)
    seqs.add(10_001, 31_536_000)
    assert list(seqs.spans()) == [(1, 31_536_000)]
    assert len(seqs) == 31_536_000
