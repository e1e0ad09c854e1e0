"""Announcements must not take the room of what they announce."""

from __future__ import annotations

from buffer.drops import Drop
from gateway.forwarding.seq_summary import Range, ranges, summarise
from gateway.reporting.reporter import UnannouncedDrops
from tests.unit.gateway.forwarding.test_seq_summary import record


def drop(seq: int) -> Drop:
    return Drop("OUTBOX_FULL", seq, seq, 1, summarise([record("cup.wind_speed", seq)]))


def test_while_kafka_answers_each_is_due_at_once() -> None:
    unannounced = UnannouncedDrops()
    for now_s in (0.0, 1.0):
        unannounced.add([drop(1)])
        assert unannounced.due(now_s, stored=False, at_once=False) == [drop(1)]
        assert unannounced.due(now_s, stored=False, at_once=False) == []


def test_in_an_outage_they_are_joined_and_announced_every_ten_seconds() -> None:
    unannounced = UnannouncedDrops()
    announced: dict[float, list[Drop]] = {}
    for second in range(1, 25):
        unannounced.add([drop(second)])
        due = unannounced.due(float(second), stored=True, at_once=False)
        if due:
            announced[second] = due
    assert list(announced) == [1, 11, 21]
    (joined,) = announced[11]
    assert (joined.first, joined.last, joined.count) == (2, 11, 10)
    assert ranges(joined.summary) == (Range("mast-07", "9f3c21ab04de", "cup.wind_speed", 2, 11),)
    # At the end, or when Kafka is back, the rest is due.
    assert [each.count for each in unannounced.due(24.0, stored=True, at_once=True)] == [3]
