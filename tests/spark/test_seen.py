from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.state.seen import Contents
from spark_jobs.transforms.packing import identities_of, ranges_of

KEY = ("g", "c.wind_speed", "r")


def plain_ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
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


def task_ranges(batches: list[list[Row]]) -> Any:
    tables = []
    for rows in batches:
        columns = list(zip(*rows, strict=True)) or [()] * 4
        kinds = (pa.string(), pa.string(), pa.string(), pa.int64())
        arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
        tables.append(pa.table(arrays, names=["gateway", "channel", "run", "seq"]))
    return ranges_of(map(identities_of, tables))


@given(st.lists(ROWS, max_size=4))
def test_a_task_gives_its_identities_as_ranges(batches: list[list[Row]]) -> None:
    found = [tuple(row.values()) for row in task_ranges(batches).to_pylist()]
    model: dict[tuple[str, str, str], list[int]] = {}
    for row in (row for rows in batches for row in rows):
        model.setdefault(row[:3], []).append(row[3])
    expected = [
        (*key, first, last, sum(first <= number <= last for number in given))
        for key, given in model.items()
        for first, last in plain_ranges(given)
    ]
    assert sorted(found) == sorted(expected)


@given(st.lists(ROWS, min_size=1, max_size=4))
def test_tasks_together_find_what_stands_there_twice(tasks: list[list[Row]]) -> None:
    contents = Contents()
    for rows in tasks:
        contents.add(task_ranges([rows]))
    every = [row for rows in tasks for row in rows]
    assert contents.rows == len(every)
    assert contents.twice == {row[:3] for row in every if every.count(row) > 1}
    for key, seqs in contents.ranges.items():
        assert list(seqs.spans()) == plain_ranges(row[3] for row in every if row[:3] == key)
    assert {key for key, _ in contents.ranges.ranges()} == {row[:3] for row in every}
