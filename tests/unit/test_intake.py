"""What becomes of a message from the broker."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from cloud.schema import encode_reading, parse_dead_letter
from gateway.identity import Sequences
from gateway.intake import Accepted, Intake, Refusal
from gateway.outbox_records import from_bytes, to_bytes
from gateway.ports import Record
from tests.unit.test_schema import READING

RECEIVED_NS = READING.time_us * 1000 + 1_500_000_000


class FixedClock:
    """A clock that stands still."""

    def __init__(self, *, synced: bool = True) -> None:
        self.synced = synced

    def now_ns(self) -> int:
        return RECEIVED_NS

    def monotonic(self) -> float:
        return 0.0

    def join(self) -> None: ...
    def leave(self) -> None: ...
    def stop(self) -> None: ...

    def covers(self, start_ns: int, end_ns: int) -> bool:
        return True

    def wait_until(self, time_ns: int) -> bool:
        return False


def intake(*, synced: bool = True) -> tuple[Intake, Sequences]:
    issued = Sequences()
    return Intake("mast-07", "thisrun", issued, "mqtt.{quantity}", FixedClock(synced=synced)), issued


def test_another_devices_reading_is_forwarded_byte_for_byte() -> None:
    payload = b" " + encode_reading(READING)
    accepted = intake()[0].accept("sensors/one", payload)
    assert accepted == Accepted(
        Record(
            "mqtt.wind_speed",
            b"mast-07/cup-50m-a.wind_speed",
            payload,
            (("mqtt-topic", b"sensors/one"), ("received-at", b"2026-11-21T07:35:01.500Z")),
        )
    )


def test_an_earlier_runs_reading_is_forwarded() -> None:
    payload = encode_reading(replace(READING, run="earlier"))
    assert isinstance(intake()[0].accept("t", payload), Accepted)


def test_an_echo_of_an_issued_reading_needs_nothing() -> None:
    station, issued = intake()
    issued.draw(READING.channel)
    assert station.accept("t", encode_reading(replace(READING, run="thisrun", seq=1))) is None


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (encode_reading(replace(READING, run="thisrun", seq=1)), "FORGED"),
        (b"not json", "NOT_JSON"),
        (b"x" * ((1 << 20) + 1), "TOO_LARGE"),
        (encode_reading(replace(READING, time_us=RECEIVED_NS // 1000 + 600_000_001)), "TIME_IN_FUTURE"),
        (encode_reading(replace(READING, channel="cup.hum", quantity="hum")), "UNKNOWN_QUANTITY"),
    ],
    ids=["forged", "not-json", "too-large", "future", "quantity"],
)
def test_what_is_refused_becomes_a_dead_letter(payload: bytes, reason: str) -> None:
    refusal = intake()[0].accept("sensors/x", payload)
    assert isinstance(refusal, Refusal)
    assert refusal.record.topic == "gateway.dead-letter"
    letter = parse_dead_letter(refusal.record.value)
    assert (letter.reason, letter.source, letter.payload) == (reason, "sensors/x", payload[: 64 << 10])
    assert (letter.payload_bytes, letter.sha256) == (len(payload), hashlib.sha256(payload).hexdigest())


def test_without_a_clock_nothing_is_in_the_future() -> None:
    payload = encode_reading(replace(READING, time_us=READING.time_us + 86_400_000_000))
    assert isinstance(intake(synced=False)[0].accept("t", payload), Accepted)


def test_a_stored_record_is_the_same_record() -> None:
    record = Record("mqtt.co2", b"a/b", b"\x00value", (("h", b"\xff"),))
    assert from_bytes(to_bytes(record)) == record


@pytest.mark.parametrize("stored", [b"", b"\x00\x00", b"\x00\x00\x00\x02{}", b"\x00\x00\x00\xff[]"])
def test_stored_bytes_that_are_no_record_say_so(stored: bytes) -> None:
    with pytest.raises(ValueError, match=r"not a stored record|JSON|Expecting|values"):
        from_bytes(stored)
