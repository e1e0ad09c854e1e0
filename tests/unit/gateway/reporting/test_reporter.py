"""Announcements must not take the room of what they announce."""

from __future__ import annotations

import json
from queue import SimpleQueue

from buffer.drops import Drop
from cloud.wire.reading_records import EVENTS_TOPIC
from gateway.forwarding.inbox import Announced, Inbox
from gateway.forwarding.seq_summary import Range, ranges, summarise
from gateway.mqtt.broker_drops import BrokerDrops
from gateway.mqtt.topics import Topics
from gateway.ports import ParkedTopic
from gateway.reporting.gateway_status import GatewayStatus
from gateway.reporting.previous_runs import Predecessors
from gateway.reporting.reporter import Reporter, UnannouncedDrops
from gateway.reporting.run_ledger import RunLedger
from tests.support.forwarding import snapshot
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


def test_a_topic_that_takes_nothing_for_a_minute_is_an_event_and_so_is_its_end() -> None:
    inbox = Inbox()
    reporter = Reporter(
        RunLedger("mast-07", "run", "boot", Predecessors()),
        GatewayStatus("mast-07", "run", lambda: 0, None),
        Topics("status", "run", "{sensor}/{quantity}", "+"),
        inbox,
        SimpleQueue(),
        BrokerDrops("run"),
    )

    def events(at_s: float, parked: dict[str, ParkedTopic]) -> list[dict[str, object]]:
        reporter.tick(snapshot(at_s, parked=parked))
        found = []
        while (event := inbox.take()) is not None:
            if isinstance(event, Announced) and event.record.topic == EVENTS_TOPIC:
                fields = json.loads(event.record.value)
                found.append({key: fields[key] for key in fields.keys() - {"v", "gateway", "run", "time"}})
        return found

    forbidden, silent = ParkedTopic(100.0, "TOPIC_AUTHORIZATION_FAILED"), ParkedTopic(150.0, "no report")
    assert events(159.0, {"mqtt.co2": forbidden, "mqtt.pressure": silent}) == []
    assert events(160.0, {"mqtt.co2": forbidden}) == [
        {"event": "topic-parked", "topic": "mqtt.co2", "problem": "TOPIC_AUTHORIZATION_FAILED", "lasts_s": 60}
    ]
    assert events(161.0, {"mqtt.co2": forbidden}) == []
    assert events(400.0, {}) == [{"event": "topic-delivers", "topic": "mqtt.co2", "lasted_s": 300}]
    assert events(401.0, {}) == []
