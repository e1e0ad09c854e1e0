"""Kafka refuses a batch, whatever for: no record is guilty but one that was refused alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from buffer.sqlite_outbox import SqliteOutbox
from cloud.errors import Undelivered
from cloud.kafka.producer import KafkaSink
from cloud.local.kafka_broker import LocalBroker
from cloud.wire.reading_records import RAW_TOPIC, encode_reading, parse_dead_letter
from gateway.forwarding.records import to_bytes
from gateway.ports import Record
from tests.integration.test_forwarder import reading, records, running, seqs
from tests.support.refusing_kafka import RefusingKafka
from tests.support.servers import eventually

COUNT = 4000
PLAIN = {"compression.type": "none"}
LIMIT = {"max.message.bytes": str(64 << 10)}


def fill(path: Path, topic: str, count: int = COUNT) -> None:
    """An outbox with readings of an outage."""
    outbox = SqliteOutbox(path)
    rows = [
        to_bytes(Record(topic, b"device-1/cup.wind_speed", encode_reading(reading(seq)), ()))
        for seq in range(1, count + 1)
    ]
    for begin in range(0, count, 500):
        outbox.append(rows[begin : begin + 500])
    outbox.close()


def test_readings_of_a_backlog_whose_batches_are_too_large_all_arrive(
    kafka: LocalBroker, kafka_topic: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, dead_letters, path = kafka_topic(config=LIMIT), kafka_topic("dead-letter"), tmp_path / "outbox.db"
    monkeypatch.setattr("cloud.wire.reading_records.DEAD_LETTER_TOPIC", dead_letters)
    fill(path, topic)
    with running(kafka.bootstrap_servers, topic, path, properties=PLAIN) as station:
        eventually(lambda: station.forwarder.outbox.records, until=lambda left: left == 0)
        assert station.forwarder.counters.dead_letters == 0
    assert records(kafka.bootstrap_servers, dead_letters) == []
    assert set(seqs(records(kafka.bootstrap_servers, topic))) == set(range(1, COUNT + 1))


def test_one_that_is_too_large_alone_is_the_only_dead_letter_and_is_counted(
    kafka: LocalBroker, kafka_topic: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, dead_letters, path = kafka_topic(config=LIMIT), kafka_topic("dead-letter"), tmp_path / "outbox.db"
    monkeypatch.setattr("cloud.wire.reading_records.DEAD_LETTER_TOPIC", dead_letters)
    fill(path, topic, 150)
    outbox = SqliteOutbox(path)
    outbox.append([to_bytes(Record(topic, b"device-1/photo", b"\xff" * 70_000, ()))])
    outbox.close()
    with running(kafka.bootstrap_servers, topic, path, properties=PLAIN) as station:
        eventually(lambda: station.forwarder.outbox.records, until=lambda left: left == 0)
        assert station.forwarder.counters.dead_letters == 1
    [letter] = [
        parse_dead_letter(one.value() or b"") for one in records(kafka.bootstrap_servers, dead_letters)
    ]
    assert (letter.reason, letter.payload_bytes) == ("REFUSED_BY_KAFKA", 70_000)
    assert seqs(records(kafka.bootstrap_servers, topic)) == dict.fromkeys(range(1, 151), 1)


@pytest.mark.parametrize("size", [1_048_499, 1_048_500, 1_048_575, 1_048_576])
def test_a_raw_message_up_to_the_documented_limit_arrives(
    size: int, provisioned: str, tmp_path: Path
) -> None:
    sink = KafkaSink[int](provisioned, "live", PLAIN)
    topic = "s/" + "x" * 200
    assert sink.send(Record(RAW_TOPIC, topic.encode(), b"\xff" * size, (("mqtt-topic", topic.encode()),)), 1)
    assert outcomes(sink, 1) == {1: None}
    sink.close()


@pytest.fixture
def refusing() -> RefusingKafka:
    return RefusingKafka()


def outcomes(sink: KafkaSink[int], count: int) -> dict[int, Undelivered | None]:
    """Each record's outcome, of which there must be one."""
    found: list[tuple[int, Undelivered | None]] = []

    def polled() -> int:
        found.extend(sink.poll(0.05))
        return len(found)

    eventually(polled, until=lambda outcomes: outcomes >= count)
    assert len(found) == len(dict(found)) == count
    assert sink.open == 0
    return dict(found)


@pytest.mark.parametrize(
    "code", [KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD,
             KafkaError.RECORD_LIST_TOO_LARGE, KafkaError.INVALID_MSG_SIZE]
)  # fmt: skip
def test_one_guilty_record_of_a_batch_takes_no_other_with_it(code: int, refusing: RefusingKafka) -> None:
    sink = KafkaSink[int](refusing.servers, "live", {"linger.ms": "200"})
    # The batch, then the first record alone.
    refusing.refuse(code, 2)
    for number in range(20):
        assert sink.send(Record("topic", b"key", b"%d" % number, (("name", b"value"),)), number)
    found = outcomes(sink, 20)
    guilty = [number for number, undelivered in found.items() if undelivered is not None]
    assert len(guilty) == 1
    assert [found[number].record_at_fault for number in guilty] == [True]  # type: ignore[union-attr] # not None
    sink.close()
