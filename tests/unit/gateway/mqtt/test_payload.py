"""What other devices' payloads hold, and what they don't."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from cloud.wire.bounds import MAX_NUMBER, TIMES_US, is_within
from cloud.wire.reading_records import InvalidReading
from gateway.config.bridges.model import DropIf, ForwardConfig
from gateway.mqtt.payload import AbsentValue, Measured, measure as measure_parsed, parse, unwanted

NUMBER = ForwardConfig("t", "number", "temperature")
JSON = ForwardConfig("t", "json", "temperature", path="data.values.1", time_path="at")


def measure(payload: bytes, forward: ForwardConfig) -> Measured:
    return measure_parsed(parse(payload, forward), forward)


def document(value: object, time: object = "2026-11-21T07:35:00+01:00") -> bytes:
    return json.dumps({"data": {"values": [0, value]}, "at": time}).encode()


def reason(payload: bytes, forward: ForwardConfig) -> str:
    with pytest.raises(InvalidReading) as caught:
        measure(payload, forward)
    return caught.value.reason


@pytest.mark.parametrize(
    ("payload", "number"),
    [
        (b"21.5", 21.5),
        (b"-4", -4.0),
        (b"+.5", 0.5),
        (b"7.", 7.0),
        (b"2.1E1", 21.0),
        (b" 21.5\r\n", 21.5),
        (b"21.5\x00", 21.5),
        (b"1e-999", 0.0),
    ],
)
def test_numbers(payload: bytes, number: float) -> None:
    assert measure(payload, NUMBER) == Measured(number, number, None)


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (b"", "EMPTY"),
        (b" \n", "EMPTY"),
        (b"\xff", "NOT_UTF8"),
        (b"NaN", "NOT_FINITE"),
        (b"-inf", "NOT_FINITE"),
        (b"1e999", "NOT_FINITE"),
        (b"21,5", "NOT_A_NUMBER"),
        (b"21.5 C", "NOT_A_NUMBER"),
        (b"0x10", "NOT_A_NUMBER"),
        (b"1_000", "NOT_A_NUMBER"),
        (b"true", "NOT_A_NUMBER"),
        ("٢١".encode(), "NOT_A_NUMBER"),
        (b"1" * 513, "NOT_A_NUMBER"),
    ],
)
def test_what_is_no_number(payload: bytes, why: str) -> None:
    assert reason(payload, NUMBER) == why


def test_a_number_and_a_time_in_a_document() -> None:
    for number in (21.5, "21.5", " +2.15e1 "):
        assert measure(document(number), JSON) == Measured(21.5, 21.5, 1_795_242_900_000_000)


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (b"", "EMPTY"),
        (b"\xff{}", "NOT_UTF8"),
        (b"{", "NOT_JSON"),
        (b"{}{}", "NOT_JSON"),
        (b"[" * 100_000, "NOT_JSON"),
        (b'{"a":' + b"9" * 5000 + b"}", "NO_SUCH_PATH"),
        (b'{"data":1,"data":2}', "DUPLICATE_FIELD"),
        (b"21.5", "NO_SUCH_PATH"),
        (b'{"data":{"values":[1]}}', "NO_SUCH_PATH"),
        (b'{"data":{"values":{"0":1}}}', "NO_SUCH_PATH"),
        (document("21,5"), "NOT_A_NUMBER"),
        (document(""), "NOT_A_NUMBER"),
        (document("nan"), "NOT_FINITE"),
        (document(True), "NOT_A_NUMBER"),
        (document(None), "NOT_A_NUMBER"),
        (document([21.5]), "NOT_A_NUMBER"),
        (document(math.nan), "NOT_FINITE"),
        (document(10**400), "NOT_FINITE"),
        (b'{"data":{"values":[0,1e400]},"at":0}', "NOT_FINITE"),
        (b'{"data":{"values":[0,1]}}', "NO_SUCH_PATH"),
        (document(1, "2026-11-21 07:35"), "BAD_TIME"),
        (document(1, "2026-11-21T07:35:00"), "BAD_TIME"),
        (document(1, None), "BAD_TIME"),
        (document(1, True), "BAD_TIME"),
        (document(1, math.nan), "BAD_TIME"),
        (document(1, math.inf), "BAD_TIME"),
        (document(1, 10**400), "BAD_TIME"),
        (document(1, 1e20), "BAD_TIME"),
        (document(1, "9999-12-31T23:59:59-23:59"), "BAD_TIME"),
        (document(1, 0), "TIME_TOO_OLD"),
        (document(1, -1763710500), "TIME_TOO_OLD"),
        (document(1, "1999-12-31T23:59:59Z"), "TIME_TOO_OLD"),
    ],
)
def test_what_a_document_does_not_hold(payload: bytes, why: str) -> None:
    assert reason(payload, JSON) == why


def test_nan_elsewhere_in_a_document_does_not_matter() -> None:
    assert measure(b'{"data":{"values":[NaN,1]},"at":1763710500}', JSON).value == 1.0


@pytest.mark.parametrize(
    ("time", "time_us"),
    [
        (1763710500, 1_763_710_500_000_000),
        (1763710500.25, 1_763_710_500_250_000),
        (1763710500250, 1_763_710_500_250_000),
        (7_258_118_399, 7_258_118_399_000_000),
        (946_684_800_000, 946_684_800_000_000),
        ("2025-11-21T07:35:00.25Z", 1_763_710_500_250_000),
    ],
)
def test_times(time: object, time_us: int) -> None:
    assert measure(document(1, time), JSON).time_us == time_us


def test_scale_comes_before_offset() -> None:
    fahrenheit = ForwardConfig("t", "number", "temperature", scale=0.5, offset=-16.0)
    assert measure(b"50", fahrenheit) == Measured(50.0, 9.0, None)


def test_scaled_out_of_all_bounds() -> None:
    assert reason(b"1e308", ForwardConfig("t", "number", "temperature", scale=10.0)) == "OUT_OF_RANGE"


@pytest.mark.parametrize(
    ("value", "dropped"),
    [(-50.1, True), (-50.0, False), (0.0, False), (85.0, True), (99.0, False), (100.0, False), (100.5, True)],
)
def test_unwanted_values(value: float, dropped: bool) -> None:
    assert unwanted(value, DropIf(below=-50.0, above=100.0, equals=85.0)) is dropped


_json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["data", "values", "1", "at"]), inner, max_size=4)
    ),
)


@given(
    payload=st.binary(max_size=60) | st.text("0123456789.eE+-naif ", max_size=20).map(str.encode),
    scale=st.floats(allow_nan=False, allow_infinity=False),
)
def test_any_bytes_are_a_number_within_bounds_or_refused(payload: bytes, scale: float) -> None:
    forward = ForwardConfig("t", "number", "temperature", scale=scale)
    try:
        measured = measure(payload, forward)
    except InvalidReading:
        return
    assert is_within(measured.raw)
    assert is_within(measured.value)


@given(content=_json_values, value=_json_values, time=_json_values)
def test_any_document_holds_something_within_bounds_or_is_refused(
    content: object, value: object, time: object
) -> None:
    for payload in (json.dumps(content).encode(), document(value, time)):
        try:
            measured = measure(payload, JSON)
        except InvalidReading:
            continue
        assert is_within(measured.value)
        assert measured.time_us is not None
        assert 946_684_800_000_000 <= measured.time_us < TIMES_US.stop


@given(number=st.floats(-MAX_NUMBER, MAX_NUMBER))
def test_every_double_comes_back(number: float) -> None:
    assert measure(repr(number).encode(), NUMBER).raw == number
    assert measure(document(repr(number)), JSON).raw == number


@pytest.mark.parametrize("payload", [b'{"at": 1763710500}', b'{"data": {"values": [0, null]}}'])
def test_what_is_optional_and_absent_or_null_is_no_fault(payload: bytes) -> None:
    with pytest.raises(AbsentValue):
        measure(payload, replace(JSON, optional=True))
