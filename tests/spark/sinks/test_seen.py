from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from hypothesis import example, given, strategies as st

from spark_jobs.transforms.seen import SeenRanges, keyed, ranges_of, unseen


def plain_ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """The plain way: a range ends where the next number is missing."""
    there = sorted(set(numbers))
    firsts = [number for number in there if number - 1 not in there]
    lasts = [number for number in there if number + 1 not in there]
    return list(zip(firsts, lasts, strict=True))


Row = tuple[str, str, str, int]
Model = dict[tuple[str, str, str], set[int]]
TOP = 2**63 - 1
ROWS = st.lists(
    st.tuples(
        st.sampled_from("ab"),
        st.sampled_from("cd"),
        st.sampled_from("ef"),
        st.integers(1, 12) | st.integers(TOP - 2, TOP),
    ),
    max_size=25,
)
SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("gateway", "channel", "run")),
        ("seq", pa.int64()),
        ("kafka_time", pa.timestamp("us", tz="UTC")),
        ("kafka_topic", pa.string()),
        ("kafka_partition", pa.int32()),
        ("kafka_offset", pa.int64()),
    ]
)


def readings_of(rows: list[Row], first_offset: int = 0) -> Any:
    """Readings, the later ones of a list taken by Kafka before the others."""
    made = [(*row, None, "t", 0, first_offset - at) for at, row in enumerate(rows)]
    columns = list(zip(*made, strict=True)) or [()] * len(SCHEMA)
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def model_of(rows: Iterable[Row]) -> Model:
    model: Model = {}
    for row in rows:
        model.setdefault(row[:3], set()).add(row[3])
    return model


def spans_of(model: Model) -> list[tuple[Any, ...]]:
    return sorted((*key, *span) for key, numbers in model.items() for span in plain_ranges(numbers))


def as_rows(ranges: Any) -> list[tuple[Any, ...]]:
    columns = ("gateway", "channel", "run", "first", "last")
    return sorted(tuple(row[name] for name in columns) for row in ranges.to_pylist())


@given(st.lists(ROWS, max_size=4))
def test_readings_are_ranges(batches: list[list[Row]]) -> None:
    found = as_rows(ranges_of(map(readings_of, batches)))
    assert found == spans_of(model_of(row for rows in batches for row in rows))


@given(st.lists(st.lists(ROWS, min_size=1, max_size=3), max_size=4), st.integers(0, 4))
@example([[[("a", "c", "e", TOP)] * 2, [("a", "c", "e", TOP - 1)]], [[("a", "c", "e", TOP)]]], 4)
def test_batches_are_held_against_what_was_seen(batches: list[list[list[Row]]], forgotten: int) -> None:
    """Each batch's rows come of several tasks. One by one, the plain way, gives the same."""
    seen = SeenRanges()
    stored: Model = {}
    for number, tasks in enumerate(batches):
        if number == forgotten:
            seen.forget(number)
            stored = {}
        # What each task finds new, and of several what is so together.
        given = []
        for rows in tasks:
            readings, ranges = unseen(readings_of(rows), seen)
            new = {row for row in rows if row[3] not in stored.get(row[:3], ())}
            # Of copies in a task the last of the list is the first that Kafka took.
            kept = {row: -at for at, row in enumerate(rows) if row in new}
            assert sorted(readings["kafka_offset"].to_pylist()) == sorted(kept.values())
            assert as_rows(ranges) == spans_of(model_of(new))
            given.append(ranges)
        ranges = keyed(pa.concat_tables(given))
        unknown, repeated = seen.unknown(ranges).tolist(), seen.repeated(ranges).tolist()
        every = [set(as_rows(each)) for each in given]
        for at, row in enumerate(ranges.to_pylist()):
            key = row["gateway"], row["channel"], row["run"]
            assert unknown[at] == (key not in stored)
            numbers = [
                number
                for spans in every
                for span in spans
                if span[:3] == key
                for number in range(span[3], span[4] + 1)
            ]
            assert repeated[at] == (len(numbers) > len(set(numbers)))
        seen.add(ranges, number)
        for key, added in model_of(row for rows in tasks for row in rows).items():
            stored[key] = stored.get(key, set()) | added
        if len(ranges):
            assert all(seen.repeated(ranges).tolist())
        assert len(seen) == sum(len(plain_ranges(numbers)) for numbers in stored.values())


def test_ranges_that_overlap_are_taken_up_as_one() -> None:
    seen = SeenRanges()
    rows = [(1, 9), (2, 3), (12, TOP), (10, 10), (TOP, TOP), (4, 5)]
    columns = {name: ["x"] * len(rows) for name in ("gateway", "channel", "run")}
    firsts, lasts = zip(*rows, strict=True)
    table = keyed(pa.table({**columns, "first": firsts, "last": lasts}))
    seen.add(table, 0)
    assert len(seen) == 2
    _, ranges = unseen(readings_of([("x", "x", "x", number) for number in (1, 10, 11, 12, TOP)]), seen)
    assert [row[3:] for row in as_rows(ranges)] == [(11, 11)]


def test_what_has_no_rows_is_nothing() -> None:
    seen = SeenRanges()
    readings, ranges = unseen(readings_of([]), seen)
    seen.add(keyed(ranges), 0)
    found = seen.unknown(keyed(ranges)).tolist(), seen.repeated(keyed(ranges)).tolist()
    assert (len(readings), len(ranges), len(seen), found) == (0, 0, 0, ([], []))
