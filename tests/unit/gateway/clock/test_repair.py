"""What leaves of a reading whose time was not known when it was made."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from cloud.wire.reading_records import Reading, encode_reading, parse_reading
from gateway.clock.hold import boot_of, mark_unsynced, repaired, unmarked
from gateway.ports import Record
from tests.unit.cloud.wire.test_reading_records import READING, readings

UNSYNCED = replace(
    READING, time_us=12_000_000, quality=3, reasons=("CLOCK_UNSYNCED",), clock="unsynced",
    boot="8f-1", mono_ms=61_250,
)  # fmt: skip
OFFSET_MS = 1_795_246_000_007
REPAIRED = replace(
    UNSYNCED, time_us=1_795_246_061_257_000, quality=1, reasons=(), clock="repaired", boot=None, mono_ms=None
)
HEADERS = (("mqtt-topic", b"a/b"), ("received-at", b"1970-01-01T00:01:01.250Z"))


def record(reading: Reading, *, tested: bool = True) -> Record:
    return Record(
        "mqtt.wind_speed", b"key", encode_reading(reading), (*HEADERS, *mark_unsynced(reading, tested=tested))
    )


def test_a_repaired_reading_has_its_time_and_no_trace_of_what_it_was() -> None:
    given = record(UNSYNCED)
    assert boot_of(given) == "8f-1"
    assert repaired(given, OFFSET_MS) == Record(
        "mqtt.wind_speed", b"key", encode_reading(REPAIRED), (("mqtt-topic", b"a/b"),)
    )


def test_an_unrepaired_reading_leaves_as_it_was_published() -> None:
    assert unmarked(record(UNSYNCED)) == Record("mqtt.wind_speed", b"key", encode_reading(UNSYNCED), HEADERS)


@pytest.mark.parametrize(
    "reading", [READING, REPAIRED, replace(UNSYNCED, boot=None), replace(UNSYNCED, mono_ms=None)]
)
def test_only_a_reading_with_a_time_since_boot_has_to_wait(reading: Reading) -> None:
    assert mark_unsynced(reading) == ()
    assert boot_of(record(reading)) is None


@pytest.mark.parametrize(
    ("value", "reasons", "tested", "quality"),
    [
        (7.0, (), True, 1),
        (7.0, (), False, 2),
        (7.0, ("OVER_RANGE",), True, 4),
        (7.0, ("OVER_RANGE",), True, 3),
        (7.0, ("OVER_RANGE",), False, 4),
        (7.0, ("SPIKE_OF_A_LATER_VERSION",), True, 3),
        (None, ("READ_ERROR",), True, 9),
        (None, (), False, 9),
    ],
)
def test_the_quality_is_what_it_would_have_been(
    value: float | None, reasons: tuple[str, ...], tested: bool, quality: int
) -> None:
    given = replace(UNSYNCED, value=value, reasons=(*reasons, "CLOCK_UNSYNCED"), quality=max(quality, 3))
    found = parse_reading(repaired(record(given, tested=tested), OFFSET_MS).value)
    assert (found.quality, found.reasons, found.clock) == (quality, reasons, "repaired")


def test_a_moment_that_no_calendar_has_stays_as_it_is() -> None:
    given = record(replace(UNSYNCED, mono_ms=(1 << 53) - 1))
    assert repaired(given, OFFSET_MS) == unmarked(given)
    for nonsense in (b"", b"{", encode_reading(READING)):
        assert repaired(Record(given.topic, given.key, nonsense, given.headers), OFFSET_MS).value == nonsense


@given(readings(), st.integers(946_684_800_000, 4_102_444_800_000))
def test_whatever_is_repaired_is_a_reading_of_the_same_identity(reading: Reading, offset_ms: int) -> None:
    given = replace(reading, clock="unsynced", boot="b", mono_ms=5, extra={"boots": 7})
    found = parse_reading(repaired(record(given), offset_ms).value)
    assert found.identity == reading.identity
    assert found.time_us == (offset_ms + 5) * 1000
    assert (found.value, found.raw, found.extra) == (reading.value, reading.raw, {"boots": 7})
