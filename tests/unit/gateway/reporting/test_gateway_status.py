"""What a run says of itself, when, and what it passes on of another."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from cloud.wire.status_records import StatusRecord, encode_status, parse_status
from gateway.ports import Record
from gateway.reporting.gateway_status import TELL_EVERY_S, GatewayStatus

NOW_NS = 1_795_246_500_123_456_789


@dataclass
class Surroundings:
    synced: bool = True
    uplink: str = "healthy"


def announced(around: Surroundings) -> GatewayStatus:
    return GatewayStatus(
        "mast-07", "thisrun", lambda: NOW_NS, lambda: around.synced, lambda: around.uplink, "0.1.0"
    )


def told(record: Record | None) -> StatusRecord:
    assert record is not None
    assert (record.topic, record.key, record.headers) == ("gateway.status", b"mast-07", ())
    return parse_status(record.value)


FIRST = StatusRecord(
    "mast-07", "online", "thisrun", 1_795_246_500_123_000, "0.1.0", "synced", "healthy", revision=1
)


def test_the_first_at_once_a_change_not_more_often_than_every_ten_seconds() -> None:
    around = Surroundings()
    status = announced(around)
    assert told(status.due(100.0)) == FIRST
    assert status.due(100.0 + TELL_EVERY_S) is None
    around.uplink = "spilling"
    # Nothing was told for a while: at once.
    assert told(status.due(200.0)) == replace(FIRST, uplink="spilling", revision=2)
    around.uplink = "draining"
    assert status.due(200.0 + TELL_EVERY_S - 0.1) is None
    around.synced = False
    assert told(status.due(200.0 + TELL_EVERY_S)) == replace(
        FIRST, uplink="draining", clock="unsynced", revision=3
    )
    # Back before it was told: no news.
    around.uplink = "healthy"
    assert status.due(211.0) is None
    around.uplink = "draining"
    assert status.due(300.0) is None


def test_the_farewell_tells_when_and_the_will_cannot() -> None:
    status = announced(Surroundings())
    status.due(1.0)
    assert told(status.farewell()) == replace(FIRST, state="offline", revision=2)
    assert status.will == b'{"v":1,"gateway":"mast-07","state":"offline","run":"thisrun","version":"0.1.0"}'


def test_another_runs_will_is_passed_on_as_it_is_and_once() -> None:
    status = announced(Surroundings())
    will = b'{"v": 1, "gateway": "mast-07", "state": "offline", "run": "r0", "colour": "red"}'
    assert status.left_by_another(will) == Record("gateway.status", b"mast-07", will, ())
    assert status.left_by_another(will) is None
    assert status.left_by_another(will.replace(b"r0", b"r1")) is not None


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"online",
        announced(Surroundings()).will,
        encode_status(replace(FIRST, run="r0")),
        # It has told that itself.
        encode_status(replace(FIRST, run="r0", state="offline")),
        announced(Surroundings()).will.replace(b"mast-07", b"mast-08").replace(b"thisrun", b"r0"),
    ],
    ids=["empty", "text", "own will", "other's online", "other's farewell", "other gateway"],
)
def test_nothing_else_is_passed_on(payload: bytes) -> None:
    assert announced(Surroundings()).left_by_another(payload) is None
