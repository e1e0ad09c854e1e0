"""What is announced of a block that is lost."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, strategies as st

from buffer.errors import Drop
from cloud.wire.reading_records import encode_reading
from gateway.forwarding.records import Range, joined, ranges, summarise
from gateway.ports import Record
from tests.unit.cloud.wire.test_reading_records import READING


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


def test_readings_of_a_clock_that_stands_in_1970_are_in_the_summary() -> None:
    # Not there, they would be dropped without their numbers, and count as lost.
    waiting = replace(READING, time_us=30_000_000, clock="unsynced", boot="boot-1", mono_ms=30_000)
    block = [Record("mqtt.wind_speed", b"", encode_reading(waiting), (("unrepaired", b"boot-1"),))]
    assert ranges(summarise(block)) == (
        Range(READING.gateway, READING.run, READING.channel, READING.seq, READING.seq),
    )


@given(st.binary(max_size=60))
def test_a_damaged_summary_is_empty(damaged: bytes) -> None:
    assert all(isinstance(found, Range) for found in ranges(damaged))


def test_neighbouring_drops_of_one_reason_are_announced_as_one() -> None:
    blocks = [
        Drop(
            "DISK_LOW",
            10 * at,
            10 * at + 9,
            2,
            summarise([record("a.wind_speed", 2 * at), record("a.wind_speed", 2 * at + 1)]),
        )
        for at in range(1, 4)
    ]
    other = Drop("CORRUPT", 40, 49, None, b"")
    apart = Drop("CORRUPT", 60, 69, 1, b"")
    first, *rest = joined([*blocks, other, apart])
    assert (first.reason, first.first, first.last, first.count) == ("DISK_LOW", 10, 39, 6)
    assert ranges(first.summary) == (Range("mast-07", "9f3c21ab04de", "a.wind_speed", 2, 7),)
    assert rest == [other, apart]
    full = [Drop("OUTBOX_FULL", at, at, 1, summarise([record("a.wind_speed", at)])) for at in (1, 5, 9)]
    theirs = [Drop("OTHERS_SHARE", at, at + 2, 3, b"") for at in (2, 6, 10)]
    # Blocks of two classes that take turns: an event for each would be as many as there are blocks.
    turns = list(joined(drop for pair in zip(full, theirs, strict=True) for drop in pair))
    assert [(drop.reason, drop.first, drop.last, drop.count) for drop in turns] == [
        ("OUTBOX_FULL", 1, 9, 3),
        ("OTHERS_SHARE", 2, 12, 9),
    ]
    assert [(span.first, span.last) for span in ranges(turns[0].summary)] == [(1, 1), (5, 5), (9, 9)]
    (unknown,) = joined([other, replace(apart, first=50)])
    assert (unknown.first, unknown.last, unknown.count) == (40, 69, None)
