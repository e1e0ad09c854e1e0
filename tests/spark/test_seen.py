from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.state.seen import Contents, SeenRanges
from spark_jobs.transforms.packing import IdentityNumbers

KEY = ("g", "c.wind_speed", "r")


def ranges_of(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """The plain way: a range ends where the next number is missing."""
    there = sorted(set(numbers))
    firsts = [number for number in there if number - 1 not in there]
    lasts = [number for number in there if number + 1 not in there]
    return list(zip(firsts, lasts, strict=True))


Row = tuple[str, str, str, int]
ROWS = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from("cd"), st.sampled_from("ef"), st.integers(1, 12)),
    max_size=25,
)


def ranges_told(batches: list[list[Row]]) -> dict[str, list[Any]]:
    numbers = IdentityNumbers()
    for rows in batches:
        columns = list(zip(*rows, strict=True)) or [()] * 4
        kinds = (pa.string(), pa.string(), pa.string(), pa.int64())
        arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
        numbers.add(pa.table(arrays, names=["gateway", "channel", "run", "seq"]))
    return numbers.ranges()


@given(st.lists(ROWS, max_size=4))
def test_a_task_tells_its_identities_as_ranges(batches: list[list[Row]]) -> None:
    told = ranges_told(batches)
    model: dict[tuple[str, str, str], list[int]] = {}
    for row in (row for rows in batches for row in rows):
        model.setdefault(row[:3], []).append(row[3])
    expected = [
        (*key, first, last, sum(first <= number <= last for number in given))
        for key, given in model.items()
        for first, last in ranges_of(given)
    ]
    assert sorted(zip(*told.values(), strict=True)) == sorted(expected)


@given(st.lists(ROWS, min_size=1, max_size=4))
def test_tasks_together_tell_what_stands_there_twice(tasks: list[list[Row]]) -> None:
    contents = Contents()
    for rows in tasks:
        contents.add(pa.table(ranges_told([rows])))
    every = [row for rows in tasks for row in rows]
    assert contents.rows == len(every)
    assert contents.twice == {row[:3] for row in every if every.count(row) > 1}
    for key in contents.ranges.identities():
        assert list(contents.ranges.of(key)) == ranges_of(row[3] for row in every if row[:3] == key)


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 12)), max_size=30), st.integers(0, 70))
def test_seen_ranges_are_a_set_of_numbers(spans: list[tuple[int, int]], probe: int) -> None:
    seen, model = SeenRanges(), set[int]()
    for first, length in spans:
        assert seen.overlaps(KEY, first, first + length) == bool(
            model & set(range(first, first + length + 1))
        )
        seen.add(KEY, first, first + length)
        model |= set(range(first, first + length + 1))
        assert list(seen.of(KEY)) == ranges_of(model)
        assert seen.count(KEY) == len(model)
    assert seen.overlaps(KEY, probe, probe) == (probe in model)
    assert [span for _, span in seen] == list(seen.of(KEY))


def test_channels_and_runs_are_apart() -> None:
    seen = SeenRanges()
    seen.add(KEY, 1, 10)
    assert not seen.overlaps(("g", "c.wind_speed", "other"), 1, 10)
    assert not seen.overlaps(("other", "c.wind_speed", "r"), 1, 10)
    assert seen.of(("g", "x.wind_speed", "r")) == ()
