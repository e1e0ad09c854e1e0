"""The forwarder between a real Kafka and a real outbox file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, Message, TopicPartition

from buffer.sqlite_outbox import SqliteOutbox
from cloud.kafka.producer import KafkaSink
from cloud.local.kafka_broker import LocalBroker
from cloud.wire.reading_records import Reading, encode_reading, parse_dead_letter, parse_reading
from gateway.clock.system_clock import SystemClock
from gateway.forwarding.records import from_bytes
from gateway.mqtt.intake import Intake
from gateway.ports import Ack
from gateway.sequences import Sequences
from tests.support.forwarding import Acks, arrive, make_forwarder, taken_in
from tests.support.servers import eventually

COMMIT_INTERVAL_S = 0.4
_PATIENCE = {"delivery.timeout.ms": "8000"}


def reading(seq: int, *, gateway: str = "device-1", run: str = "devicerun") -> Reading:
    return Reading(
        gateway=gateway, channel="cup.wind_speed", quantity="wind_speed", unit="m/s",
        time_us=1_763_710_500_000_000 + seq * 1_000_000, period_ms=1000, value=7.5, raw=9.0, raw_unit="Hz",
        quality=1, reasons=(), run=run, seq=seq, clock="synced", cal=None,
    )  # fmt: skip


class Station:
    """A forwarder with its surroundings; ``acks`` is what it acknowledged."""

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        outbox: Path,
        commit_interval_s: float,
        properties: Mapping[str, str],
    ) -> None:
        self.acks = Acks()
        self.sequences = Sequences("thisrun")
        self.intake = Intake("mast-07", self.sequences, topic, SystemClock("always"))
        self.live, self.backlog = (
            KafkaSink[Any](
                bootstrap_servers, f"mast-07-{role}", {"delivery.timeout.ms": "8000", **properties}
            )
            for role in ("live", "backlog")
        )
        self.forwarder = make_forwarder(
            self.intake, self.live, self.backlog, SqliteOutbox(outbox), self.acks, commit_interval_s
        )

    def warm_up(self) -> None:
        """Send reading 1: a fresh producer takes its time to get its id, so it may go through the outbox."""
        self.receive(range(1, 2))
        eventually(lambda: self.forwarder.counters.confirmed + self.forwarder.counters.drained)
        eventually(lambda: self.forwarder.uplink, until=lambda uplink: uplink == "healthy")

    def deliver(self) -> None:
        """Wait until Kafka has all: where it was slow to answer, some took the way through the outbox."""
        eventually(lambda: not self.forwarder.in_flight and not self.forwarder.outbox.records)

    def receive(self, seqs: range) -> None:
        for seq in seqs:
            arrive(self.forwarder, "device-1/cup", encode_reading(reading(seq)), Ack(1, seq))
        taken_in(self.forwarder)


@contextmanager
def running(
    bootstrap_servers: str,
    topic: str,
    outbox: Path,
    commit_interval_s: float = COMMIT_INTERVAL_S,
    properties: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Station]:
    station = Station(bootstrap_servers, topic, outbox, commit_interval_s, properties)
    station.forwarder.start()
    try:
        yield station
    finally:
        if station.forwarder.is_alive():
            station.forwarder.stop(grace_s=0.2)
        station.live.close()
        station.backlog.close()


def records(bootstrap_servers: str, topic: str) -> list[Message]:
    """Everything in partition 0 of a topic."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "test"})
    try:
        partition = TopicPartition(topic, 0, 0)
        _, end = consumer.get_watermark_offsets(partition, timeout=20)
        consumer.assign([partition])
        found: list[Message] = []
        while len(found) < end:
            found += [message for message in consumer.consume(1000, timeout=0.02) if message.error() is None]
        return found
    finally:
        consumer.close()


def headers(message: Message) -> list[tuple[str, bytes]]:
    return cast(list[tuple[str, bytes]], message.headers() or [])


def seqs(messages: list[Message]) -> Counter[int]:
    return Counter(parse_reading(message.value() or b"").seq for message in messages)


def test_while_kafka_answers_nothing_touches_the_disk(
    kafka: LocalBroker, kafka_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = kafka_topic()
    with running(kafka.bootstrap_servers, topic, tmp_path / "outbox.db", 8.0) as station:
        station.warm_up()
        stored = station.forwarder.counters.stored
        station.receive(range(2, 1001))
        eventually(lambda: len(station.acks), until=lambda acks: acks == 1000)
        assert (station.forwarder.counters.stored, station.forwarder.outbox.records) == (stored, 0)
    assert {ack.message_id for ack in station.acks} == set(range(1, 1001))
    found = records(kafka.bootstrap_servers, topic)
    assert seqs(found) == dict.fromkeys(range(1, 1001), 1)
    assert found[-1].key() == b"device-1/cup.wind_speed"
    assert sorted(name for name, _ in headers(found[-1])) == ["mqtt-topic", "received-at"]


def test_a_reading_that_never_comes_back_from_the_broker_goes_through_the_outbox(
    kafka: LocalBroker, kafka_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = kafka_topic()
    with running(kafka.bootstrap_servers, topic, tmp_path / "outbox.db") as station:
        for seq in range(1, 6):
            station.sequences.draw("cup.wind_speed")
            station.forwarder.inbox.sampled(
                station.intake.records.own(
                    reading(seq, gateway="mast-07", run="thisrun"), "fieldgate/mast-07/cup"
                ),
                "fieldgate/mast-07/cup",
            )
        eventually(lambda: station.forwarder.counters.drained, until=lambda drained: drained == 5)
        # The echoes come at last: acknowledged, and not sent again.
        for seq in range(1, 6):
            echo = encode_reading(reading(seq, gateway="mast-07", run="thisrun"))
            arrive(station.forwarder, "fieldgate/mast-07/cup", echo, Ack(1, seq))
        eventually(lambda: len(station.acks), until=lambda acks: acks == 5)
    found = records(kafka.bootstrap_servers, topic)
    assert seqs(found) == dict.fromkeys(range(1, 6), 1)
    assert not any(("replayed", b"1") in headers(message) for message in found)


def test_what_is_refused_reaches_the_dead_letters(
    kafka: LocalBroker, kafka_topic: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead_letters = kafka_topic("dead-letter")
    monkeypatch.setattr("cloud.wire.reading_records.DEAD_LETTER_TOPIC", dead_letters)
    with running(kafka.bootstrap_servers, kafka_topic(), tmp_path / "outbox.db") as station:
        arrive(station.forwarder, "sensors/x", b"nonsense", Ack(1, 1))
        arrive(station.forwarder, "sensors/x", b"\x00" * 2_000_000, Ack(1, 2))
        eventually(lambda: len(station.acks), until=lambda acks: acks == 2)
        station.deliver()
    found = [
        parse_dead_letter(each.value() or b"") for each in records(kafka.bootstrap_servers, dead_letters)
    ]
    assert sorted((letter.reason, letter.payload_bytes) for letter in found) == [
        ("NOT_JSON", 8),
        ("TOO_LARGE", 2_000_000),
    ]


def test_a_stop_without_kafka_leaves_everything_in_the_outbox_and_the_next_start_sends_it(
    kafka: LocalBroker, kafka_topic: Callable[..., str], tmp_path: Path, nowhere: str
) -> None:
    topic, path = kafka_topic(), tmp_path / "outbox.db"
    with running(nowhere, topic, path) as station:
        station.receive(range(1, 51))
    assert len(station.acks) == 50
    outbox = SqliteOutbox(path)
    rows = outbox.peek(0, 1000, 1 << 20)
    outbox.close()
    assert [parse_reading(from_bytes(stored).value).seq for _, stored in rows] == list(range(1, 51))
    with running(kafka.bootstrap_servers, topic, path) as station:
        eventually(lambda: station.forwarder.outbox.records, until=lambda left: left == 0)
    assert seqs(records(kafka.bootstrap_servers, topic)) == dict.fromkeys(range(1, 51), 1)
