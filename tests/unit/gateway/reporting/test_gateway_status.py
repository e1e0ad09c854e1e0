"""What a run says of itself, when, and what it passes on of another."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cloud.wire.status_records import StatusRecord, encode_status, parse_status
from gateway.ports import Record
from gateway.reporting.gateway_status import TELL_EVERY_S, GatewayStatus
from tests.support.forwarding import snapshot

NOW_NS = 1_795_246_500_123_456_789


def announced() -> GatewayStatus:
    return GatewayStatus("mast-07", "thisrun", lambda: NOW_NS, "0.1.0")


def told(record: Record | None) -> StatusRecord:
    assert record is not None
    assert (record.topic, record.key, record.headers) == ("gateway.status", b"mast-07", ())
    return parse_status(record.value)


FIRST = StatusRecord(
    "mast-07", "online", "thisrun", 1_795_246_500_123_000, "0.1.0", "synced", "healthy", revision=1
)


def test_the_first_at_once_a_change_not_more_often_than_every_ten_seconds() -> None:
    status = announced()
    assert told(status.due(snapshot(100.0))) == FIRST
    assert status.due(snapshot(100.0 + TELL_EVERY_S)) is None
    # Nothing was told for a while: at once.
    assert told(status.due(snapshot(200.0, uplink="spilling"))) == replace(
        FIRST, uplink="spilling", revision=2
    )
    assert status.due(snapshot(200.0 + TELL_EVERY_S - 0.1, uplink="draining")) is None
    changed = snapshot(200.0 + TELL_EVERY_S, uplink="draining", synced=False)
    assert told(status.due(changed)) == replace(FIRST, uplink="draining", clock="unsynced", revision=3)
    # Back before it was told: no news.
    assert status.due(snapshot(211.0, synced=False)) is None
    assert status.due(snapshot(300.0, uplink="draining", synced=False)) is None


def test_the_farewell_tells_when_and_the_will_cannot() -> None:
    status = announced()
    status.due(snapshot(1.0))
    assert told(status.offline(snapshot(2.0))) == replace(FIRST, state="offline", revision=2)
    assert status.will == b'{"v":1,"gateway":"mast-07","state":"offline","run":"thisrun","version":"0.1.0"}'


def test_another_runs_will_is_passed_on_as_it_is_and_once() -> None:
    status = announced()
    will = b'{"v": 1, "gateway": "mast-07", "state": "offline", "run": "r0", "colour": "red"}'
    assert status.left_by_another(will) == Record("gateway.status", b"mast-07", will, ())
    assert status.left_by_another(will) is None
    assert status.left_by_another(will.replace(b"r0", b"r1")) is not None


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"online",
        announced().will,
        encode_status(replace(FIRST, run="r0")),
        # It has told that itself.
        encode_status(replace(FIRST, run="r0", state="offline")),
        announced().will.replace(b"mast-07", b"mast-08").replace(b"thisrun", b"r0"),
    ],
    ids=["empty", "text", "own will", "other's online", "other's farewell", "other gateway"],
)
def test_nothing_else_is_passed_on(payload: bytes) -> None:
    assert announced().left_by_another(payload) is None
