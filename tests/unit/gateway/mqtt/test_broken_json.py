"""One bad value in a device's JSON message costs that value alone."""

from __future__ import annotations

import json
import math
import re

import pytest
from hypothesis import assume, given, strategies as st

from cloud.wire.bounds import is_within
from cloud.wire.reading_records import parse_dead_letter, parse_reading
from gateway.config.bridges.model import ForwardConfig, ForwardReading, Step
from gateway.mqtt.intake import Intake
from gateway.sequences import Sequences
from tests.support.any_json import VALUES
from tests.unit.gateway.mqtt.test_intake import FixedClock

BOTH = ForwardConfig(
    "t", "json", channel="t", readings=(ForwardReading("temperature", "t"), ForwardReading("humidity", "h"))
)


def taken(payload: bytes, forward: ForwardConfig = BOTH) -> tuple[dict[str, float | None], list[str]]:
    """Values by quantity, and what the one dead letter has."""
    intake = Intake("mast-07", Sequences("thisrun"), "mqtt.{quantity}", FixedClock(), [forward])
    found, letters = {}, []
    for record in intake.accept("t", payload) or ():
        if record.topic == "gateway.dead-letter":
            letter = parse_dead_letter(record.value)
            letters.append(letter.reason)
            assert letter.payload == payload
        else:
            reading = parse_reading(record.value)
            found[reading.quantity] = reading.value
    assert len(letters) <= 1
    return found, letters


_NOT_FINITE = ["nan", "-nan", "+nan", "NAN", "NaN", "-NaN", "inf", "-inf", "+inf", "Inf", "INF", "Infinity"]
_NOT_FINITE += ["-Infinity", "+Infinity", "infinity"]


@pytest.mark.parametrize("word", _NOT_FINITE)
def test_a_bare_nan_costs_its_own_value_alone(word: str) -> None:
    assert taken(b'{"t": %s, "h": 48.5}' % word.encode()) == ({"humidity": 48.5}, ["NOT_FINITE"])
    assert taken(b'{"t":21.5,"x":[%s],"h":48.5}' % word.encode())[1] == []


@pytest.mark.parametrize(
    "bad",
    [
        *(b"nan(ind)", b"-nan(ind)", b"1.#QNAN", b"1.#INF", b"-1.#IND00", b"0x1F", b"12abc", b"None", b"ovf"),
        *(b"--", b"1_0", b"undefined", b"", b"21.5.1", b"\xff", b"'warm'", b'"K\xfcche"', b'"a\tb"'),
        *(b"1" + b"0" * 5000, b"21.5C", b"12:30", b"1 000", b"AA:BB:CC", b"21.5 C", b'"\\x41"'),
    ],
)
def test_a_bad_token_costs_its_own_value_alone(bad: bytes) -> None:
    found, (reason,) = taken(b'{"t": %s, "h": 48.5}' % bad)
    assert found == {"humidity": 48.5}
    assert reason in ("NOT_A_NUMBER", "NOT_FINITE")


@pytest.mark.parametrize(
    "payload",
    [
        b'\xef\xbb\xbf{"t": 21.5, "h": 48.5}',
        b'{"t": 21.5, "h": 48.5}\x00',
        b'{"t": 21.5, "h": 48.5}\r\n\x00\x00\n\x00',
        b'{"t": 21.5, "h": 48.5}\x00, "h": 17}',
        b'{"t": 21.5, "h": 48.5,}',
        b'\x02{"t": 21.5, "h": 48.5}\r\n\x03',
        b'{"t": 21.5, "h": 48.5}\x1a',
        b'{"t": +21.5, "h": 048.5, "x": [1, 2,], "y":, "z": [,]}',
        b"{t: 21.5, h: 48.5}",
        b"{'t': 21.5, 'h': 48.5}",
        b'{"t": 21.5, "h": 48.5, "name": "K\xfcche"}',
        b'{"t": 21.5, "h": 48.5, "t": 21.5}',
        b'{"t": 21.5, "h": 48.5, "x": 1, "x": 2}',
        b'{"name": "nan, {inf: \\"nan\\"", "t": 21.5, "h": 48.5, "x": nan}',
    ],
)
def test_what_surrounds_good_values_does_not_matter(payload: bytes) -> None:
    assert taken(payload) == ({"temperature": 21.5, "humidity": 48.5}, [])


def test_a_key_with_two_values_has_none() -> None:
    assert taken(b'{"t": 21.5, "h": 48.5, "t": 22}') == ({"humidity": 48.5}, ["DUPLICATE_FIELD"])
    assert taken(b'{"t": 1, "h": 48.5, "t": true}') == ({"humidity": 48.5}, ["DUPLICATE_FIELD"])
    deep = ForwardConfig("t", "json", "temperature", path="a.t")
    assert taken(b'{"a": {"t": 1}, "a": {"t": 1, "x": 2}}', deep) == ({}, ["DUPLICATE_FIELD"])


@pytest.mark.parametrize(
    "payload",
    [
        b'{"t": 21,5, "h": 48.5}',
        b'{"t": 21.5, "h": 4',
        b'{"t": 21.5}{"h": 48.5}',
        b'{\x00"\x00t\x00"\x00:\x001\x00}\x00',
        b"t=21.5",
    ],
)
def test_what_could_be_read_in_two_ways_is_not_read(payload: bytes) -> None:
    assert taken(payload) == ({}, ["NOT_JSON"])


def test_a_number_alone_may_have_a_nul_and_a_bom() -> None:
    number = ForwardConfig("t", "number", "temperature")
    assert taken(b"\xef\xbb\xbf21.5\x00\x00", number) == ({"temperature": 21.5}, [])
    # UTF-16 of 25 is no 2.
    assert taken(b"2\x005\x00", number) == ({}, ["NOT_A_NUMBER"])


def test_steps_of_a_raw_message_find_their_fields_beside_a_nan() -> None:
    masked = ForwardConfig("t", "raw", steps=(Step(mask=("user",)),))
    intake = Intake("mast-07", Sequences("thisrun"), "mqtt.{quantity}", FixedClock(), [masked])
    for payload in (
        b'{"user": "me", "t": -nan, "h": 4.50}',
        b'\xef\xbb\xbf{"user": "me", "t": nan, "h": 4.50}\0',
    ):
        (record,) = intake.accept("t", payload) or ()
        assert record.topic == "mqtt.raw"
        assert json.loads(record.value)["user"] == "***"
        assert record.value.endswith(b'"h":4.50}')


_BARE = re.compile(r"[^\s\"{}\[\],:\\\x00]{1,8}")


@given(
    neighbours=st.dictionaries(
        st.text(max_size=5).filter(lambda key: key not in ("t", "h")), VALUES, max_size=4
    ),
    token=st.sampled_from([each.encode() for each in _NOT_FINITE])
    | st.from_regex(_BARE, fullmatch=True).map(str.encode),
    value=st.floats(allow_nan=False, allow_infinity=False).filter(is_within),
    place=st.integers(0, 9),
)
def test_no_number_changes_by_its_neighbours_fault(
    neighbours: dict[str, object], token: bytes, value: float, place: int
) -> None:
    parts = [f"{json.dumps(key)}: {json.dumps(each)}".encode() for key, each in neighbours.items()]
    parts.insert(place % (len(parts) + 1), b'"t": %r' % value)
    parts.insert(place % (len(parts) + 1), b'"h": ' + token)
    found, _ = taken(b"{" + b", ".join(parts) + b"}")
    assert found["temperature"] == value
    humidity = found.get("humidity")
    assert humidity is None or math.isclose(humidity, float(token))


@given(document=VALUES, path=st.sampled_from(["t", "a.0", "0.t"]))
def test_any_document_is_counted(document: object, path: str) -> None:
    payload = json.dumps(document).encode()
    assume(payload.strip())
    forward = ForwardConfig("t", "json", "temperature", path=path)
    found, letters = taken(payload, forward)
    assert len(found) + len(letters) == 1
