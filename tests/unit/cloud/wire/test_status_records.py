"""The status of a gateway on the wire: both ways, what is refused and with which word."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from cloud.wire.fields import InvalidFields
from cloud.wire.reading_records import InvalidReading, parse_reading
from cloud.wire.status_records import MAX_STATUS_BYTES, StatusRecord, encode_status, parse_status, status_key

CONTRACT = (
    b'{"v":1,"gateway":"mast-07","state":"online","run":"9f3c21ab04de","time":"2026-11-21T07:35:00.000Z",'
    b'"version":"0.1.0","clock":"synced","uplink":"healthy","revision":3}'
)
RECORD = StatusRecord(
    gateway="mast-07", state="online", run="9f3c21ab04de", time_us=1_795_246_500_000_000,
    version="0.1.0", clock="synced", uplink="healthy", revision=3,
)  # fmt: skip
WILL = b'{"v":1,"gateway":"mast-07","state":"offline","run":"9f3c21ab04de","version":"0.1.0"}'


def contract(**changes: Any) -> bytes:
    """The contract's example with fields changed; a field set to ... is left out."""
    fields = {**json.loads(CONTRACT), **changes}
    return json.dumps({name: value for name, value in fields.items() if value is not ...}).encode()


def test_the_contracts_example_both_ways() -> None:
    assert parse_status(CONTRACT) == RECORD
    assert encode_status(RECORD) == CONTRACT
    assert status_key("mast-07") == b"mast-07"


def test_a_will_has_no_time_and_no_state_of_the_day() -> None:
    will = StatusRecord("mast-07", "offline", "9f3c21ab04de", version="0.1.0")
    assert encode_status(will) == WILL
    assert parse_status(WILL) == will
    assert will.is_will
    assert not RECORD.is_will
    assert not replace(RECORD, state="offline").is_will
    # One of a gateway before there was more to report; null is as good as absent.
    assert parse_status(b'{"v": 1, "gateway": "m", "state": "offline", "run": "r"}').is_will
    assert parse_status(contract(time=None, clock=None, uplink=None, version=None, revision=None)) == replace(
        RECORD, time_us=None, clock=None, uplink=None, version=None, revision=0
    )


def test_a_status_is_no_reading() -> None:
    """Drops, exports and accounts count what parses as one."""
    with pytest.raises(InvalidReading):
        parse_reading(CONTRACT, unrepaired=True)


def test_unknown_fields_are_kept() -> None:
    payload = contract(site={"name": "Jomsom"})
    record = parse_status(payload)
    assert record == replace(RECORD, extra={"site": {"name": "Jomsom"}})
    assert json.loads(encode_status(record)) == json.loads(payload)


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "EMPTY"),
        (b"online", "NOT_JSON"),
        (b"[]", "NOT_AN_OBJECT"),
        (CONTRACT + b"x", "TRAILING_BYTES"),
        (CONTRACT.replace(b'"synced"', b'"synced","x":NaN'), "NOT_FINITE"),
        (b"{" + b" " * MAX_STATUS_BYTES + CONTRACT[1:], "TOO_LARGE"),
        (contract(v=2), "OUT_OF_RANGE"),
        (contract(gateway="Mast 7"), "BAD_NAME"),
        (contract(state="Online"), "BAD_NAME"),
        (contract(state=1), "WRONG_TYPE"),
        (contract(state=...), "MISSING_FIELD"),
        (contract(run=""), "BAD_NAME"),
        (contract(time="2026-11-21"), "BAD_TIME"),
        (contract(version="x" * 65), "BAD_NAME"),
        (contract(clock="repaired"), "BAD_NAME"),
        (contract(uplink="Live!"), "BAD_NAME"),
        (contract(revision=0), "OUT_OF_RANGE"),
    ],
)
def test_what_is_no_status_is_refused_with_a_word(payload: bytes, reason: str) -> None:
    with pytest.raises(InvalidFields) as refusal:
        parse_status(payload)
    assert refusal.value.reason == reason


_NAMES = st.sampled_from(["v", "gateway", "state", "run", "time", "x"])
_JSON = st.recursive(
    st.none() | st.integers() | st.text(), lambda inner: st.dictionaries(_NAMES, inner), max_leaves=10
)


@given(st.binary(max_size=200) | _JSON.map(lambda value: json.dumps(value).encode()))
def test_no_bytes_raise_anything_else(payload: bytes) -> None:
    try:
        record = parse_status(payload)
    except InvalidFields:
        return
    assert parse_status(encode_status(record)) == record
