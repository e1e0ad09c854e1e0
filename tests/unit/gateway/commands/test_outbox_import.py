"""Which records of a card's file leave by the operator's login: those that its gateway sends."""

from __future__ import annotations

import pytest

from cloud.wire.identities import IdentityRecord
from gateway.commands.outbox.import_file import _Mast
from gateway.ports import Record

WITH_KEY = {"m2": IdentityRecord(gateway="m2", generation=1)}


@pytest.mark.parametrize(
    ("topic", "key", "value", "headers"),
    [
        ("gateway.channels", "m1/a.temperature/0", '{"gateway":"m2","revision":9007199254740991}', ()),
        ("gateway.sites", "m1/site", '{"gateway":"m2"}', ()),
        ("gateway.events", "m1", '{"gateway":"m2"}', ()),
        ("gateway.dead-letter", "m1", '{"gateway":"m2","run":"!"}', ()),
        ("gateway.events", "m1", '{"gateway":"m1","run":"r"}', (("gateway", b"m2"),)),
        ("gateway.events", "m2", '{"gateway":"m1","run":"r"}', ()),
        ("mqtt.raw", "m1/x", "any", (("gateway", b"m2"),)),
        ("mqtt.temperature", "m2/a.temperature", '{"gateway":"m2","run":"r"}', ()),
    ],
)
def test_a_card_doesnt_speak_for_another_mast(
    topic: str, key: str, value: str, headers: tuple[tuple[str, bytes], ...]
) -> None:
    mast = _Mast(None, "m1", WITH_KEY)
    assert not mast.sends(Record(topic, key.encode(), value.encode(), headers))
    assert mast.refused.total() == 1


def test_its_own_records_and_those_of_its_devices_leave() -> None:
    mast = _Mast(None, "m1", WITH_KEY)
    for topic, key, value in (
        ("gateway.channels", "m1/a.temperature/0", b'{"gateway":"m1"}'),
        ("gateway.events", "m1", b"no json"),
        ("mqtt.temperature", "shed/a.temperature", b'{"gateway":"shed","run":"r"}'),
    ):
        assert mast.sends(Record(topic, key.encode(), value, ()))
