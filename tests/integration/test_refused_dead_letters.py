"""Dead letters that Kafka refuses wait, like readings for a sick topic: no loop, nothing lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource  # type: ignore[attr-defined] # no __all__

from cloud.local.kafka_broker import LocalBroker
from cloud.wire.reading_records import parse_dead_letter
from gateway.ports import Ack
from tests.integration.test_forwarder import records, running, seqs
from tests.support.forwarding import arrive
from tests.support.servers import eventually

COUNT = 5
REFUSED = [b"no reading %d" % number for number in range(COUNT)]


def allow_size(kafka: LocalBroker, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    entry = ConfigEntry("max.message.bytes", "1048588", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(timeout=20)


def test_refused_dead_letters_wait_and_arrive_once_when_it_is_mended(
    kafka: LocalBroker, kafka_topic: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead_letters = kafka_topic("dead-letter", config={"max.message.bytes": "100"})
    topic = kafka_topic()
    monkeypatch.setattr("cloud.wire.reading_records.DEAD_LETTER_TOPIC", dead_letters)
    with running(kafka.bootstrap_servers, topic, tmp_path / "outbox.db") as station:
        forwarder = station.forwarder
        station.warm_up()
        for number, payload in enumerate(REFUSED):
            arrive(forwarder, "sensors/x", payload, Ack(1, 1000 + number))
        # PUBACKed because they are on disk.
        eventually(lambda: len(station.acks), until=lambda acks: acks == COUNT + 1)
        eventually(lambda: forwarder.kafka.parked_topics, until=lambda parked: parked == (dead_letters,))
        eventually(lambda: forwarder.outbox.records, until=lambda rows: rows == COUNT)
        delivered = forwarder.counters.confirmed + forwarder.counters.drained
        station.receive(range(2, 302))
        # Some by way of the outbox: while nothing else was sent, Kafka itself could have been silent.
        eventually(
            lambda: forwarder.counters.confirmed + forwarder.counters.drained,
            until=lambda now: now == delivered + 300,
        )
        # None of them was refused once more: a dead letter of a dead letter would be a loop.
        assert forwarder.counters.dead_letters == COUNT
        eventually(lambda: forwarder.outbox.records, until=lambda rows: rows == COUNT)
        eventually(lambda: forwarder.kafka.parked_topics, until=lambda parked: parked == (dead_letters,))
        allow_size(kafka, dead_letters)
        eventually(lambda: forwarder.outbox.records, until=lambda left: left == 0)
        eventually(lambda: forwarder.kafka.parked_topics, until=lambda parked: not parked)
        assert forwarder.counters.dead_letters == COUNT
    found = [parse_dead_letter(one.value() or b"") for one in records(kafka.bootstrap_servers, dead_letters)]
    assert sorted(letter.payload for letter in found) == REFUSED
    assert [letter.seq for letter in sorted(found, key=lambda letter: letter.seq)] == [*range(1, COUNT + 1)]
    assert seqs(records(kafka.bootstrap_servers, topic)) == dict.fromkeys(range(1, 302), 1)
