"""The wire format: what is a reading, what is refused, and with which word."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from cloud.wire.bounds import MAX_COUNT, MAX_MONO_MS, MAX_NUMBER, TIMES_US
from cloud.wire.quantities import QUANTITIES
from cloud.wire.reading_records import (
    DEAD_LETTER_PAYLOAD_BYTES,
    MAX_AHEAD_US,
    OLDEST_TIME_US,
    InvalidReading,
    Reading,
    dead_letter,
    encode_dead_letter,
    encode_reading,
    format_time,
    parse_dead_letter,
    parse_reading,
    parse_time,
)

CONTRACT = (
    b'{"v":1,"gateway":"mast-07","channel":"cup-50m-a.wind_speed","quantity":"wind_speed","unit":"m/s",'
    b'"time":"2026-11-21T07:35:00.000Z","period_ms":1000,"value":7.235,"raw":9.0,"raw_unit":"Hz","quality":1,'
    b'"reasons":[],"run":"9f3c21ab04de","seq":12345,"clock":"synced","cal":"5d1c0a7e"}'
)
READING = Reading(
    gateway="mast-07", channel="cup-50m-a.wind_speed", quantity="wind_speed", unit="m/s",
    time_us=1_795_246_500_000_000, period_ms=1000, value=7.235, raw=9.0, raw_unit="Hz", quality=1, reasons=(),
    run="9f3c21ab04de", seq=12345, clock="synced", cal="5d1c0a7e",
)  # fmt: skip


def contract(**changes: Any) -> bytes:
    """The contract's example with fields changed; a field set to ... is left out."""
    fields = {**json.loads(CONTRACT), **changes}
    return json.dumps({name: value for name, value in fields.items() if value is not ...}).encode()


def test_the_contracts_example_both_ways() -> None:
    assert parse_reading(CONTRACT) == READING
    assert encode_reading(READING) == CONTRACT


UNREPAIRED = replace(
    READING,
    time_us=12_000_000,
    quality=3,
    reasons=("CLOCK_UNSYNCED",),
    clock="unsynced",
    boot="8f-1",
    mono_ms=7250,
)


def test_a_reading_that_will_be_repaired_may_be_of_any_time() -> None:
    payload = encode_reading(UNREPAIRED)
    assert payload.endswith(b'"clock":"unsynced","cal":"5d1c0a7e","boot":"8f-1","mono_ms":7250}')
    assert parse_reading(payload, unrepaired=True) == UNREPAIRED
    for refused in (payload, encode_reading(replace(UNREPAIRED, boot=None))):
        with pytest.raises(InvalidReading) as problem:
            parse_reading(refused, unrepaired=refused is not payload)
        assert problem.value.reason == "TIME_TOO_OLD"


def test_unknown_fields_are_kept_and_boot_is_one_where_the_clock_is_right() -> None:
    more = {"boot": 7, "mono_ms": "x", "note": {"by": "lab"}}
    payload = contract(clock="repaired", **more)
    reading = parse_reading(payload)
    assert (reading.boot, reading.mono_ms, reading.extra) == (None, None, more)
    assert json.loads(encode_reading(reading)) == json.loads(payload)


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (contract(clock="unsynced", boot=7), "WRONG_TYPE"),
        (contract(clock="unsynced", boot=""), "BAD_NAME"),
        (contract(clock="unsynced", mono_ms=1.5), "WRONG_TYPE"),
        (contract(clock="unsynced", mono_ms=-1), "OUT_OF_RANGE"),
        (contract(clock="set"), "BAD_NAME"),
        (b"", "EMPTY"),
        (b" \n", "EMPTY"),
        (b"\xff\xfe", "NOT_UTF8"),
        (b"7.2 m/s", "TRAILING_BYTES"),
        (b"seven", "NOT_JSON"),
        (b"{'v':1}", "NOT_JSON"),
        (CONTRACT[:-1], "NOT_JSON"),
        (b"[" * 60_000, "NOT_JSON"),
        (b'{"seq":' + b"1" * 5000 + b"}", "NOT_JSON"),
        (b"[1]", "NOT_AN_OBJECT"),
        (CONTRACT + b"x", "TRAILING_BYTES"),
        (CONTRACT.replace(b"7.235", b"NaN"), "NOT_FINITE"),
        (CONTRACT.replace(b"7.235", b"1e400"), "NOT_FINITE"),
        (CONTRACT.replace(b"7.235", b"1" * 400), "NOT_FINITE"),
        (CONTRACT.replace(b'"seq"', b'"note":"\\ud800","seq"'), "NOT_JSON"),
        (CONTRACT.replace(b"7.235", b'"\xff"'), "NOT_UTF8"),
        (CONTRACT.replace(b'"seq"', b'"note":"\xff","seq"'), "NOT_UTF8"),
        (CONTRACT.replace(b'"seq"', b'"note":[Infinity],"seq"'), "NOT_FINITE"),
        (contract(gateway=...), "MISSING_FIELD"),
        (contract(value=...), "MISSING_FIELD"),
        (contract(v=2), "OUT_OF_RANGE"),
        (contract(value="7.2"), "WRONG_TYPE"),
        (contract(value=True), "WRONG_TYPE"),
        (contract(seq=1.0), "WRONG_TYPE"),
        (contract(seq=0), "OUT_OF_RANGE"),
        (contract(period_ms=0), "OUT_OF_RANGE"),
        (contract(reasons="STUCK"), "WRONG_TYPE"),
        (contract(reasons=["stuck"]), "BAD_NAME"),
        (contract(gateway="Mast 7"), "BAD_NAME"),
        (contract(gateway="mast-07\n"), "BAD_NAME"),
        (contract(channel="cup/wind_speed"), "BAD_NAME"),
        (contract(quantity="temperature"), "INCONSISTENT"),
        (contract(unit="km/h"), "WRONG_UNIT"),
        (contract(unit="m\u0000s"), "BAD_NAME"),
        (contract(quality=5), "OUT_OF_RANGE"),
        (contract(quality=9), "INCONSISTENT"),
        (contract(value=None), "INCONSISTENT"),
        (contract(time=1795246500), "WRONG_TYPE"),
        (contract(time="2026-11-21T07:35:00"), "BAD_TIME"),
        (contract(time="2026-13-21T07:35:00Z"), "BAD_TIME"),
        (contract(time="20261121T073500Z"), "BAD_TIME"),
        (contract(time="1999-12-31T23:59:59Z"), "TIME_TOO_OLD"),
        (contract(time="2199-12-31T23:59:59-23:59"), "BAD_TIME"),
        (contract(time="2199-12-31T23:59:59.9999999-00:01"), "BAD_TIME"),
        (contract(latitude=91.0), "OUT_OF_RANGE"),
        (contract(note="x" * 70_000), "TOO_LARGE"),
        (CONTRACT.replace(b'"seq"', b'"note":[1e400],"seq"'), "NOT_FINITE"),
        (CONTRACT.replace(b'"seq"', b'"note":' + b"[" * 33 + b"]" * 33 + b',"seq"'), "NOT_JSON"),
    ],
)  # fmt: skip
def test_what_is_no_reading_is_refused_with_its_reason(payload: bytes, reason: str) -> None:
    with pytest.raises(InvalidReading) as refused:
        parse_reading(payload)
    assert refused.value.reason == reason


@pytest.mark.parametrize("more", [b"", b'"note":1,'])
def test_of_a_key_that_stands_twice_the_last_counts(more: bytes) -> None:
    reading = parse_reading(CONTRACT.replace(b'"seq"', more + b'"value":1,"seq"'))
    assert reading == replace(READING, value=1.0, extra={"note": 1} if more else None)


def test_a_number_in_a_text_is_no_reason_for_another_word() -> None:
    """The reason is of what is wrong, whatever a text quotes."""
    with pytest.raises(InvalidReading) as refused:
        parse_reading(contract(clock="Number out of range", value="Object missing"))
    assert refused.value.reason == "WRONG_TYPE"


def test_the_future_begins_ten_minutes_after_receipt() -> None:
    received_us = READING.time_us - MAX_AHEAD_US
    assert parse_reading(CONTRACT, received_us) == READING
    with pytest.raises(InvalidReading, match="TIME_IN_FUTURE"):
        parse_reading(CONTRACT, received_us - 1)


def test_a_zone_is_converted_to_utc() -> None:
    assert parse_time("2026-11-21T13:20:00.25+05:45") == 1_795_246_500_250_000
    assert format_time(1_795_246_500_250_000) == "2026-11-21T07:35:00.250Z"
    with pytest.raises(ValueError, match="is not RFC 3339"):
        parse_time("2026-11-21T13:20:00+05:99")


FINITE = st.floats(-MAX_NUMBER, MAX_NUMBER)


@st.composite
def readings(draw: st.DrawFn) -> Reading:
    quantity = draw(st.sampled_from(sorted(QUANTITIES)))
    missing = draw(st.booleans())
    clock = draw(st.sampled_from(["synced", "unsynced", "repaired"]))
    unsynced = clock == "unsynced"
    return Reading(
        gateway=draw(st.from_regex(r"[a-z0-9-]{1,63}", fullmatch=True)),
        channel=draw(st.from_regex(r"[A-Za-z0-9_-]{1,20}", fullmatch=True)) + "." + quantity,
        quantity=quantity,
        unit=QUANTITIES[quantity].unit,
        time_us=draw(st.integers(OLDEST_TIME_US, TIMES_US.stop - 1)),
        period_ms=draw(st.integers(1, 3_600_000)),
        value=None if missing else draw(FINITE),
        raw=draw(st.none() | FINITE),
        raw_unit=draw(st.none() | st.just("Hz")),
        quality=9 if missing else draw(st.sampled_from([1, 2, 3, 4])),
        reasons=tuple(draw(st.lists(st.from_regex(r"[A-Z_]{1,12}", fullmatch=True), max_size=4))),
        run=draw(st.from_regex(r"[0-9a-f]{12}", fullmatch=True)),
        seq=draw(st.integers(1, MAX_COUNT)),
        clock=clock,
        cal=draw(st.none() | st.from_regex(r"[0-9a-f]{8}", fullmatch=True)),
        latitude=draw(st.none() | st.floats(-90, 90)),
        longitude=draw(st.none() | st.floats(-180, 180)),
        altitude_m=draw(st.none() | st.floats(-12_000, 100_000)),
        boot=draw(st.none() | st.uuids().map(str)) if unsynced else None,
        mono_ms=draw(st.none() | st.integers(0, MAX_MONO_MS)) if unsynced else None,
    )


@given(readings())
def test_a_readings_bytes_are_those_of_the_standard_library(reading: Reading) -> None:
    """Only numbers with an exponent are written otherwise (1e-7 for 1e-07), with the same value."""
    encoded = encode_reading(reading)
    assert parse_reading(encoded) == reading
    fields = json.loads(encoded)
    assert list(fields)[:16] == list(json.loads(CONTRACT))
    standard = json.dumps(fields, separators=(",", ":"))
    assert json.loads(standard) == fields
    if "e" not in re.sub(r'"[^"]*"', "", standard):
        assert encoded == standard.encode()


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
@pytest.mark.parametrize("where", ["value", "latitude", "extra"])
def test_a_reading_that_is_not_a_number_is_never_sent(where: str, number: float) -> None:
    change: dict[str, Any] = {where: {"x": [number]} if where == "extra" else number}
    with pytest.raises(ValueError, match="JSON compliant"):
        encode_reading(replace(READING, **change))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(st.binary(max_size=200) | st.dictionaries(st.sampled_from(sorted(json.loads(CONTRACT))), json_values)
       .map(lambda changes: contract(**changes)))  # fmt: skip
def test_no_bytes_raise_anything_else(payload: bytes) -> None:
    try:
        reading = parse_reading(payload)
    except InvalidReading:
        return
    assert parse_reading(encode_reading(reading)) == reading


TWO_DIGITS = st.integers(0, 60).map("{:02}".format)


@given(
    st.builds(
        "{}-{}-{}{}{}:{}:{}{}{}".format,
        st.sampled_from(["1900", "2000", "2026", "2199"]),
        st.sampled_from(["01", "02", "12"]),
        st.sampled_from(["01", "29", "31"]),
        st.sampled_from("Tt"),
        st.sampled_from(["00", "12", "23", "24"]),
        TWO_DIGITS,
        TWO_DIGITS,
        st.just("") | st.from_regex(r"\.[0-9]{1,9}", fullmatch=True),
        st.sampled_from("Zz") | st.builds("{}{}:{}".format, st.sampled_from("+-"), TWO_DIGITS, TWO_DIGITS),
    )
)
@example("2199-12-31T23:59:59.999999-00:01")
@example("1900-01-01T00:00:00+00:01")
def test_every_time_that_is_taken_can_be_written_again(text: str) -> None:
    try:
        reading = parse_reading(contract(time=text))
    except InvalidReading:
        return
    assert parse_reading(encode_reading(reading)) == reading


@given(st.binary(max_size=300))
def test_a_dead_letter_survives_the_wire(payload: bytes) -> None:
    letter = dead_letter("mast-07", "run", 3, "NOT_JSON", "why", "sensors/x", READING.time_us, payload)
    assert parse_dead_letter(encode_dead_letter(letter)) == letter
    assert letter.payload == payload


LETTER = encode_dead_letter(dead_letter("mast-07", "run", 3, "NOT_JSON", "why", "x", READING.time_us, b"{"))


def test_a_dead_letter_keeps_64_kib_and_the_whole_length_and_hash() -> None:
    payload = b"ab" * 1_000_000
    letter = dead_letter("mast-07", "run", 3, "TOO_LARGE", "", "sensors/x", READING.time_us, payload)
    assert letter.payload == payload[:DEAD_LETTER_PAYLOAD_BYTES]
    assert letter.payload_bytes == 2_000_000
    # sha256 of b"ab" * 1_000_000 by coreutils.
    assert letter.sha256 == "b2aac2b148c2e5ba0c0adea19a0a953a69a7f016d078a65c562f9ddca35b07e7"


@pytest.mark.parametrize(
    "value",
    [
        b"", b"{}", b'{"gateway":1}', b"nonsense", LETTER.replace(b":3}", b":1e400}"),
        LETTER.replace(b":3}", b":1180591620717411303424}"),
        # It becomes a metric's label, and a line of a page.
        LETTER.replace(b"NOT_JSON", b"x" * 100_000), LETTER.replace(b"NOT_JSON", b"any words"),
    ],
)  # fmt: skip
def test_what_is_no_dead_letter_is_refused(value: bytes) -> None:
    with pytest.raises(InvalidReading):
        parse_dead_letter(value)
