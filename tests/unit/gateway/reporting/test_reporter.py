"""Announcements must not take the room of what they announce."""

from __future__ import annotations

import json
from queue import SimpleQueue
from typing import Any

from buffer.errors import Drop
from cloud.wire.reading_records import EVENTS_TOPIC
from gateway.forwarding.forwarder import Announced, Inbox
from gateway.forwarding.records import summarise
from gateway.mqtt.broker_drops import BrokerDrops
from gateway.mqtt.intake import Topics
from gateway.ports import ParkedTopic, Record
from gateway.reporting.gateway_status import GatewayStatus
from gateway.reporting.previous_runs import Predecessors
from gateway.reporting.reporter import Reporter, RetainedRecords
from gateway.reporting.run_ledger import RunLedger
from tests.support.forwarding import snapshot
from tests.unit.gateway.forwarding.test_seq_summary import record


def drop(seq: int) -> Drop:
    return Drop("OUTBOX_FULL", seq, seq, 1, summarise([record("cup.wind_speed", seq)]))


class Reports:
    """A reporter of one run, and the events that it announces."""

    def __init__(self) -> None:
        self.drops: SimpleQueue[Drop] = SimpleQueue()
        self.inbox = Inbox()
        self.reporter = Reporter(
            RunLedger("mast-07", "run", "boot", Predecessors()),
            GatewayStatus("mast-07", "run", lambda: 0, None),
            Topics("status", "run", "{sensor}/{quantity}", "+", "command-result"),
            self.inbox,
            self.drops,
            BrokerDrops("run"),
        )

    def events(self) -> list[dict[str, Any]]:
        """Those since the last call, without what each of them has."""
        found = []
        while (event := self.inbox.take()) is not None:
            if isinstance(event, Announced) and event.record.topic == EVENTS_TOPIC:
                fields = json.loads(event.record.value)
                of_all = {"v", "gateway", "run", "seq", "time"}
                found.append({key: fields[key] for key in fields.keys() - of_all})
        return found

    def dropped(self, at_s: float, uplink: str, *, at_once: bool = False) -> list[tuple[int, list[str]]]:
        """Count and ranges of each drop that is announced at a time."""
        self.reporter.report_drops(snapshot(at_s, uplink=uplink), at_once=at_once)
        return [(event["count"], event["ranges"]) for event in self.events()]


def test_while_kafka_answers_each_drop_is_announced_at_once() -> None:
    reports = Reports()
    for now_s in (0.0, 1.0):
        reports.drops.put(drop(1))
        assert reports.dropped(now_s, "healthy") == [(1, ["9f3c21ab04de cup.wind_speed 1-1"])]
        assert reports.dropped(now_s, "healthy") == []


def test_in_an_outage_drops_are_joined_and_announced_every_ten_seconds() -> None:
    reports = Reports()
    announced = {}
    for second in range(1, 25):
        reports.drops.put(drop(second))
        due = reports.dropped(float(second), "spilling")
        if due:
            announced[second] = due
    assert list(announced) == [1, 11, 21]
    assert announced[11] == [(10, ["9f3c21ab04de cup.wind_speed 2-11"])]
    # At the end, or when Kafka is back, the rest is due.
    assert [count for count, _ in reports.dropped(24.0, "spilling", at_once=True)] == [3]


def test_that_the_disk_fails_is_an_event_and_so_is_its_end() -> None:
    reports = Reports()
    announced = []
    for problem in (None, "full", "full", None):
        reports.reporter.tick(snapshot(outbox_problem=problem))
        announced += reports.events()
    assert announced == [
        {"event": "outbox-in-memory", "problem": "full"},
        {"event": "outbox-usable", "problem": None},
    ]


def test_a_topic_that_takes_nothing_for_a_minute_is_an_event_and_so_is_its_end() -> None:
    reports = Reports()

    def events(at_s: float, parked: dict[str, ParkedTopic]) -> list[dict[str, Any]]:
        reports.reporter.tick(snapshot(at_s, parked=parked))
        return reports.events()

    forbidden, silent = ParkedTopic(100.0, "TOPIC_AUTHORIZATION_FAILED"), ParkedTopic(150.0, "no report")
    assert events(159.0, {"mqtt.co2": forbidden, "mqtt.pressure": silent}) == []
    assert events(160.0, {"mqtt.co2": forbidden}) == [
        {"event": "topic-parked", "topic": "mqtt.co2", "problem": "TOPIC_AUTHORIZATION_FAILED", "lasts_s": 60}
    ]
    assert events(161.0, {"mqtt.co2": forbidden}) == []
    assert events(400.0, {}) == [{"event": "topic-delivers", "topic": "mqtt.co2", "lasted_s": 300}]
    assert events(401.0, {}) == []


def test_over_an_earlier_runs_will_this_runs_status_is_published_again() -> None:
    """Else the broker would go on saying that the gateway is offline."""
    inbox = Inbox()
    status = GatewayStatus("mast-07", "run", lambda: 0, None)
    topics = Topics("status", "run", "{sensor}/{quantity}", "+", "command-result")
    runs = RunLedger("mast-07", "run", "boot", Predecessors())
    retained = RetainedRecords(topics, runs, status, BrokerDrops("run"), inbox)
    will = GatewayStatus("mast-07", "earlier", lambda: 0, None).will
    assert retained.arrived("status", will)
    assert inbox.take() == Announced(Record("gateway.status", b"mast-07", will, ()))
    assert not retained.arrived("status", status.will)
    assert not retained.arrived("run", b"")
    assert inbox.take() is None
