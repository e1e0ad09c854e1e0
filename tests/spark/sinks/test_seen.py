from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from hypothesis import given, strategies as st

from spark_jobs.sinks.readings import Ranges, SeenRanges
from spark_jobs.transforms.packing import identities_of, ranges_of


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


@given(st.lists(st.lists(ROWS, min_size=1, max_size=3), max_size=4), st.integers(0, 4))
def test_batches_are_held_against_what_was_seen(batches: list[list[list[Row]]], forgotten: int) -> None:
    """Each batch's rows come of several tasks. One by one, the plain way, gives the same."""
    seen = SeenRanges()
    stored: dict[tuple[str, str, str], set[int]] = {}
    for number, tasks in enumerate(batches):
        ranges = Ranges.of(pa.concat_tables([task_ranges([rows]) for rows in tasks]))
        every = [row for rows in tasks for row in rows]
        names = [tuple(row.values()) for row in ranges.identities.to_pylist()]
        assert sorted(names) == sorted({row[:3] for row in every})
        if number == forgotten:
            seen.forget(number)
            stored = {}
        there = sum(map(len, stored.values()))
        unknown, repeated = seen.unknown(ranges).tolist(), seen.repeated(ranges).tolist()
        for at, name in enumerate(names):
            mine, before = [row[3] for row in every if row[:3] == name], stored.setdefault(name, set())
            assert unknown[at] == (not before)
            assert bool(ranges.twice[at]) == (len(mine) > len(set(mine)))
            assert bool(repeated[at]) == bool(before & set(mine))
            before |= set(mine)
        now_there = sum(map(len, stored.values()))
        assert seen.add(ranges, number) == now_there - there
        for at, name in enumerate(names):
            assert seen.spans(int(ranges.keys[ranges.begins[at]])) == plain_ranges(stored[name])
    assert len(seen) == sum(len(plain_ranges(numbers)) for numbers in stored.values())


def test_what_has_no_rows_is_nothing() -> None:
    ranges = Ranges.of(task_ranges([]))
    seen = SeenRanges()
    assert (seen.add(ranges, 0), seen.unknown(ranges).tolist(), seen.repeated(ranges).tolist()) == (0, [], [])
