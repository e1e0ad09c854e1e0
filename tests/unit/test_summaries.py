"""What is said of a block that is lost."""

from __future__ import annotations

import itertools
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cloud.schema import encode_reading
from gateway.ports import Record
from gateway.summaries import Range, ranges, spans, summarise
from tests.unit.test_schema import READING


def record(channel: str, seq: int, gateway: str = "mast-07") -> Record:
    reading = replace(READING, gateway=gateway, channel=channel, seq=seq)
    return Record("mqtt.wind_speed", b"", encode_reading(reading), ())


def test_a_summary_names_the_readings_of_a_block_and_nothing_else() -> None:
    block = [record("b.wind_speed", 9), record("a.wind_speed", 2), record("a.wind_speed", 1)]
    block += [record("a.wind_speed", 4), Record("gateway.dead-letter", b"", b"{}", ())]
    assert ranges(summarise(block)) == (
        Range("mast-07", "9f3c21ab04de", "a.wind_speed", 1, 2),
        Range("mast-07", "9f3c21ab04de", "a.wind_speed", 4, 4),
        Range("mast-07", "9f3c21ab04de", "b.wind_speed", 9, 9),
    )


@given(st.binary(max_size=60))
def test_a_damaged_summary_says_nothing(damaged: bytes) -> None:
    assert all(isinstance(found, Range) for found in ranges(damaged))


@given(st.sets(st.integers(1, 60)))
def test_spans_hold_exactly_the_numbers(numbers: set[int]) -> None:
    found = list(spans(numbers))
    assert {number for first, last in found for number in range(first, last + 1)} == numbers
    assert all(later[0] > earlier[1] + 1 for earlier, later in itertools.pairwise(found))
