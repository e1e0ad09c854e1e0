from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.state.seen import SeenRanges, ranges_of

KEY = ("g", "c.wind_speed", "r")


def test_ranges_hold_exactly_the_numbers_given() -> None:
    assert ranges_of([5, 1, 2, 9, 3]) == ([(1, 3), (5, 5), (9, 9)], False)
    assert ranges_of([]) == ([], False)
    assert ranges_of([4, 3, 4]) == ([(3, 4)], True)


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 12)), max_size=30), st.integers(0, 70))
def test_seen_ranges_are_a_set_of_numbers(spans: list[tuple[int, int]], probe: int) -> None:
    seen, model = SeenRanges(), set[int]()
    for first, length in spans:
        assert seen.overlaps(KEY, first, first + length) == bool(
            model & set(range(first, first + length + 1))
        )
        seen.add(KEY, first, first + length)
        model |= set(range(first, first + length + 1))
        assert list(seen.of(KEY)) == ranges_of(sorted(model))[0]
        assert seen.count(KEY) == len(model)
    assert seen.overlaps(KEY, probe, probe) == (probe in model)
    assert [span for _, span in seen] == list(seen.of(KEY))


def test_channels_and_runs_are_apart() -> None:
    seen = SeenRanges()
    seen.add(KEY, 1, 10)
    assert not seen.overlaps(("g", "c.wind_speed", "other"), 1, 10)
    assert not seen.overlaps(("other", "c.wind_speed", "r"), 1, 10)
    assert seen.of(("g", "x.wind_speed", "r")) == ()
