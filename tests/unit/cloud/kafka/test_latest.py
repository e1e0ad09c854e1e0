"""The newest readings of many masts, within a bound."""

from __future__ import annotations

import pytest

from cloud.kafka import topic_scan as module
from cloud.kafka.topic_scan import Latest
from cloud.wire.reading_records import Reading


def reading(gateway: str, channel: str, seq: int) -> Reading:
    return Reading(
        gateway, channel, "wind_speed", "m/s", seq * 1_000_000, 1000, float(seq), None, None, 1, (), "r1",
        seq, "synced", None,
    )  # fmt: skip


def test_what_was_not_seen_for_longest_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_CHANNELS", 3)
    found = Latest()
    first = [reading("mast-07", "a.wind_speed", 1), reading("mast-07", "b.wind_speed", 1)]
    found.take((each, 1) for each in (*first, reading("mast-08", "a.wind_speed", 1)))
    # One that comes a second time is no news.
    found.take([(reading("mast-07", "a.wind_speed", 2), 2), (first[1], 2)])
    found.take([(reading("mast-09", "a.wind_speed", 3), 3), (reading("mast-09", "b.wind_speed", 3), 3)])
    assert [(each.reading.gateway, each.reading.channel) for each in found.in_order()] == [
        ("mast-07", "a.wind_speed"), ("mast-09", "a.wind_speed"), ("mast-09", "b.wind_speed"),
    ]  # fmt: skip
    assert list(found.of("mast-07")) == ["a.wind_speed"]
    assert found.of("mast-08") == {}
    assert found.last_seen_us() == {"mast-07": 2, "mast-09": 3}
