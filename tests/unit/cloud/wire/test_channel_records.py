"""The record of a channel on the wire: both ways, what is refused and with which word."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from hypothesis import given, strategies as st

from cloud.wire.bounds import MAX_NUMBER, TIMES_US
from cloud.wire.channel_records import (
    MAX_LABEL,
    MAX_RECORD_BYTES,
    ChannelRecord,
    Period,
    channel_key,
    encode_channel,
    parse_channel,
)
from cloud.wire.fields import InvalidFields
from cloud.wire.reading_records import InvalidReading, parse_reading

CONTRACT = (
    b'{"v":1,"gateway":"mast-07","channel":"cup-50m-a.wind_speed","cal":"5d1c0a7e","revision":3,"in_force":true,'
    b'"valid_from":"2026-03-20T09:00:00.000Z","valid_to":null,'
    b'"periods":[["2026-03-20T09:00:00.000Z","2026-08-01T12:00:00.000Z"],["2026-11-21T07:35:00.000Z",null]],'
    b'"sensor":"cup-50m-a","quantity":"wind_speed","unit":"m/s","kind":"linear","raw_unit":"Hz","driver":"hall-anemometer",'
    b'"interval_s":1.0,"slope":0.765,"offset":0.35,"settings":{"at_rest":"zero"},"range":[0.0,75.0],'
    b'"accuracy":0.1,"accuracy_percent":null,"model":"NRG 40H","serial":"179500123456",'
    b'"certificate":"26-0312","lab":"Example Wind Tunnel","calibrated":"2026-03-12","expires":"2027-03-12",'
    b'"height_m":50.0,"boom_deg":315.0,"pair":"cup-50m-b","reported":{}}'
)
RECORD = ChannelRecord(
    gateway="mast-07", sensor="cup-50m-a", quantity="wind_speed", cal="5d1c0a7e", revision=3, in_force=True,
    periods=(
        Period(1_773_997_200_000_000, 1_785_585_600_000_000),
        Period(1_795_246_500_000_000, None),
    ),
    unit="m/s", kind="linear", driver="hall-anemometer", interval_s=1.0, range=(0.0, 75.0), raw_unit="Hz",
    slope=0.765, offset=0.35, settings={"at_rest": "zero"}, accuracy=0.1, model="NRG 40H",
    serial="179500123456", certificate="26-0312", lab="Example Wind Tunnel", calibrated=date(2026, 3, 12),
    expires=date(2027, 3, 12), height_m=50.0, boom_deg=315.0, pair="cup-50m-b",
)  # fmt: skip


def contract(**changes: Any) -> bytes:
    """The contract's example with fields changed; a field set to ... is left out."""
    fields = {**json.loads(CONTRACT), **changes}
    return json.dumps({name: value for name, value in fields.items() if value is not ...}).encode()


def test_the_contracts_example_both_ways() -> None:
    assert parse_channel(CONTRACT) == RECORD
    assert encode_channel(RECORD) == CONTRACT
    assert channel_key("mast-07", RECORD.channel, RECORD.cal) == b"mast-07/cup-50m-a.wind_speed/5d1c0a7e"
    assert (RECORD.valid_from_us, RECORD.valid_to_us) == (1_773_997_200_000_000, None)


def test_a_record_is_no_reading() -> None:
    """Drops, exports and accounts count what parses as one."""
    with pytest.raises(InvalidReading):
        parse_reading(CONTRACT, unrepaired=True)


def test_unknown_fields_are_kept() -> None:
    payload = contract(traceability={"to": ["PTB"]})
    record = parse_channel(payload)
    assert record == replace(RECORD, extra={"traceability": {"to": ["PTB"]}})
    assert json.loads(encode_channel(record)) == json.loads(payload)


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "EMPTY"),
        (b"[]", "NOT_AN_OBJECT"),
        (CONTRACT + b"x", "TRAILING_BYTES"),
        (CONTRACT.replace(b"0.765", b"NaN"), "NOT_FINITE"),
        (b"{" + b" " * MAX_RECORD_BYTES + CONTRACT[1:], "TOO_LARGE"),
        (contract(v=2), "OUT_OF_RANGE"),
        (contract(gateway="Mast 7"), "BAD_NAME"),
        (contract(sensor="cup.50m"), "BAD_NAME"),
        (contract(channel="cup-50m-b.wind_speed"), "INCONSISTENT"),
        (contract(cal="5d1c0a7"), "BAD_NAME"),
        (contract(revision=0), "OUT_OF_RANGE"),
        (contract(revision=1.0), "WRONG_TYPE"),
        (contract(in_force=1), "WRONG_TYPE"),
        (contract(in_force=...), "MISSING_FIELD"),
        (contract(periods=[]), "OUT_OF_RANGE"),
        (contract(periods=[[None, None]] * 1001), "OUT_OF_RANGE"),
        (contract(periods=[["2026-11-21T07:35:00Z"]]), "WRONG_TYPE"),
        (contract(periods=[[1, None]]), "WRONG_TYPE"),
        (contract(periods=[["2026-11-21", None]], valid_from=None), "BAD_TIME"),
        (contract(valid_from="2026-03-20T09:00:01Z"), "INCONSISTENT"),
        (contract(valid_to="2026-03-20T09:00:01Z"), "INCONSISTENT"),
        (
            contract(
                valid_to="2026-12-01T00:00:00Z",
                periods=[["2026-03-20T09:00:00.000Z", "2026-12-01T00:00:00Z"]],
            ),
            "INCONSISTENT",
        ),
        (contract(unit=None), "MISSING_FIELD"),
        (contract(unit="km/h"), "WRONG_UNIT"),
        (contract(driver=""), "BAD_NAME"),
        (contract(interval_s=0), "OUT_OF_RANGE"),
        (contract(range=[1]), "WRONG_TYPE"),
        (contract(range=[75, 0]), "OUT_OF_RANGE"),
        (contract(settings=[1]), "WRONG_TYPE"),
        (contract(settings={"at_rest": None}), "WRONG_TYPE"),
        (contract(settings={str(n): n for n in range(65)}), "WRONG_TYPE"),
        (contract(reported={"serial": "\n"}), "BAD_NAME"),
        (contract(reported={"x" * (MAX_LABEL + 1): 1}), "BAD_NAME"),
        (CONTRACT.replace(b'"reported":{}', b'"reported":{"a":1e999}'), "NOT_FINITE"),
        (contract(serial="x" * (MAX_LABEL + 1)), "BAD_NAME"),
        (contract(serial=179500123456), "WRONG_TYPE"),
        (contract(calibrated="2026-02-30"), "BAD_TIME"),
        (contract(calibrated="2026-03-12T00:00:00Z"), "BAD_TIME"),
        (CONTRACT.replace(b'"reported":{}', b'"later":[1e999]'), "NOT_FINITE"),
    ],
)
def test_what_is_refused_and_how(payload: bytes, reason: str) -> None:
    with pytest.raises(InvalidFields) as caught:
        parse_channel(payload)
    assert caught.value.reason == reason


_numbers = st.floats(-MAX_NUMBER, MAX_NUMBER)
_labels = st.text(st.characters(categories=("L", "N", "P")), min_size=1, max_size=64)
_settings = st.dictionaries(_labels, st.one_of(_labels, _numbers, st.booleans()), max_size=3)
_times = st.none() | st.integers(TIMES_US.start, TIMES_US.stop - 1)
_dates = st.none() | st.dates(date(1900, 1, 1), date(2199, 12, 31))


@st.composite
def channel_records(draw: st.DrawFn) -> ChannelRecord:
    in_force = draw(st.booleans())
    periods = [Period(*pair) for pair in draw(st.lists(st.tuples(_times, _times), max_size=3))]
    last = Period(draw(_times), None if in_force else draw(_times))
    lower, upper = sorted(draw(st.lists(_numbers, min_size=2, max_size=2, unique=True)))
    return ChannelRecord(
        gateway=draw(st.from_regex(r"[a-z0-9-]{1,63}", fullmatch=True)),
        sensor=draw(st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)),
        quantity=draw(st.sampled_from(["wind_speed", "water_level"])),
        cal=draw(st.from_regex(r"[0-9a-f]{8}", fullmatch=True)),
        revision=draw(st.integers(1, (1 << 53) - 1)),
        in_force=in_force,
        periods=(*periods, last),
        unit="m/s",
        kind=draw(st.sampled_from(("linear", "of a later version"))),
        driver=draw(_labels),
        interval_s=draw(st.floats(min_value=0.1, max_value=3600)),
        range=(lower, upper),
        raw_unit=draw(st.none() | _labels),
        slope=draw(st.none() | _numbers),
        offset=draw(st.none() | _numbers),
        settings=draw(_settings),
        accuracy=draw(st.none() | _numbers),
        accuracy_percent=draw(st.none() | _numbers),
        model=draw(st.none() | _labels),
        serial=draw(st.none() | _labels),
        certificate=draw(st.none() | _labels),
        lab=draw(st.none() | _labels),
        calibrated=draw(_dates),
        expires=draw(_dates),
        height_m=draw(st.none() | st.floats(-12_000, 100_000)),
        boom_deg=draw(st.none() | st.floats(-360, 360)),
        pair=draw(st.none() | _labels),
        reported=draw(_settings),
    )


@given(channel_records())
def test_every_record_comes_back_as_it_went(record: ChannelRecord) -> None:
    assert parse_channel(encode_channel(record)) == record


@given(st.binary(max_size=80) | st.builds(lambda at, byte: CONTRACT[:at] + byte + CONTRACT[at + 1 :],
       st.integers(0, len(CONTRACT) - 1), st.binary(min_size=1, max_size=1)))  # fmt: skip
def test_whatever_the_bytes_are_it_is_a_record_or_refused(payload: bytes) -> None:
    try:
        record = parse_channel(payload)
    except InvalidFields:
        return
    assert parse_channel(encode_channel(record)) == record
