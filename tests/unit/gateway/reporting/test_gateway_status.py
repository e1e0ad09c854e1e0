"""What status a run publishes, when, and what it forwards of another."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cloud.wire.status_records import StatusRecord, encode_status, parse_status
from gateway.ports import Record
from gateway.reporting.gateway_status import PUBLISH_EVERY_S, GatewayStatus
from tests.support.forwarding import snapshot

NOW_NS = 1_795_246_500_123_456_789


def new_status() -> GatewayStatus:
    return GatewayStatus("mast-07", "thisrun", lambda: NOW_NS, "0.1.0")


def published(record: Record | None) -> StatusRecord:
    assert record is not None
    assert (record.topic, record.key, record.headers) == ("gateway.status", b"mast-07", ())
    return parse_status(record.value)


FIRST = StatusRecord(
    "mast-07", "online", "thisrun", 1_795_246_500_123_000, "0.1.0", "synced", "healthy", revision=1
)


def test_the_first_at_once_a_change_not_more_often_than_every_ten_seconds() -> None:
    status = new_status()
    assert published(status.due(snapshot(100.0))) == FIRST
    assert status.due(snapshot(100.0 + PUBLISH_EVERY_S)) is None
    # Nothing was published for a while: at once.
    assert published(status.due(snapshot(200.0, uplink="spilling"))) == replace(
        FIRST, uplink="spilling", revision=2
    )
    assert status.due(snapshot(200.0 + PUBLISH_EVERY_S - 0.1, uplink="draining")) is None
    changed = snapshot(200.0 + PUBLISH_EVERY_S, uplink="draining", synced=False)
    assert published(status.due(changed)) == replace(FIRST, uplink="draining", clock="unsynced", revision=3)
    # Back before it was published: nothing new.
    assert status.due(snapshot(211.0, synced=False)) is None
    assert status.due(snapshot(300.0, uplink="draining", synced=False)) is None


def test_the_last_status_has_a_time_and_the_will_has_none() -> None:
    status = new_status()
    status.due(snapshot(1.0))
    assert published(status.offline(snapshot(2.0))) == replace(FIRST, state="offline", revision=2)
    assert status.will == b'{"v":1,"gateway":"mast-07","state":"offline","run":"thisrun","version":"0.1.0"}'


def test_another_runs_will_is_forwarded_as_it_is_and_once() -> None:
    status = new_status()
    will = b'{"v": 1, "gateway": "mast-07", "state": "offline", "run": "r0", "colour": "red"}'
    assert status.forwarded_will(will) == Record("gateway.status", b"mast-07", will, ())
    assert status.forwarded_will(will) is None
    assert status.forwarded_will(will.replace(b"r0", b"r1")) is not None


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"online",
        new_status().will,
        encode_status(replace(FIRST, run="r0")),
        # It has published that itself.
        encode_status(replace(FIRST, run="r0", state="offline")),
        new_status().will.replace(b"mast-07", b"mast-08").replace(b"thisrun", b"r0"),
    ],
    ids=["empty", "text", "own will", "other's online", "other's last status", "other gateway"],
)
def test_nothing_else_is_forwarded(payload: bytes) -> None:
    assert new_status().forwarded_will(payload) is None
