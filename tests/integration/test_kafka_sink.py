"""The producer that fails for good: each record's outcome is reported once, and a new producer takes over.

librdkafka's own mock broker stands for Kafka, and its test call for the fatal error: a broker gives one only
once it has lost what it had acknowledged.
"""

from __future__ import annotations

import ctypes
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from cloud.errors import Undelivered
from cloud.kafka.producer import KafkaSink
from gateway.ports import Record
from tests.support.certificates import self_signed
from tests.support.refusing_kafka import librdkafka
from tests.support.servers import eventually

BROKERS = "test.mock.num.brokers"
RECORD = Record("mqtt.wind_speed", b"mast-07/cup.wind_speed", b"7.2", ())
HELD_BACK = {"linger.ms": "30000"}
"""Longer than a busy machine takes until the client has failed."""


def fail_for_good(sink: KafkaSink[int]) -> None:
    """What librdkafka does when the broker's sequence numbers aren't its own."""
    library = librdkafka()
    # The client's handle is the first field of its Python object.
    client = ctypes.c_void_p.from_address(id(sink._producer) + object.__basicsize__)
    assert b"#producer-" in library.rd_kafka_name(client)
    assert not library.rd_kafka_test_fatal_error(client, KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, b"tested")


class Outcomes:
    """What was reported of each record, in the order of its sending."""

    def __init__(self, sink: KafkaSink[int]) -> None:
        self._sink = sink
        self.reported: list[list[Undelivered | None]] = []

    def send(self, record: Record = RECORD) -> bool:
        taken = self._sink.send(record, len(self.reported))
        if taken:
            self.reported.append([])
        return taken

    def poll(self) -> None:
        self.note(self._sink.poll())

    def note(self, outcomes: list[tuple[int, Undelivered | None]]) -> None:
        for number, undelivered in outcomes:
            self.reported[number].append(undelivered)

    def eventually(self, condition: Callable[[], bool]) -> None:
        """Poll until it is true."""

        def polled() -> bool:
            self.poll()
            return condition()

        eventually(polled)

    def all_reported(self) -> list[Undelivered | None]:
        """Each one's only outcome, once all have one."""
        self.eventually(lambda: all(self.reported))
        assert self._sink.open == 0
        assert [len(one) for one in self.reported] == [1] * len(self.reported)
        return [one[0] for one in self.reported]


@pytest.fixture
def make_sink() -> Iterator[Callable[[dict[str, str]], KafkaSink[int]]]:
    made: list[KafkaSink[int]] = []

    def make(properties: dict[str, str]) -> KafkaSink[int]:
        made.append(KafkaSink("127.0.0.1:9", "mast-07-live", {BROKERS: "1"} | properties))
        return made[-1]

    yield make
    for sink in made:
        sink.close()


MakeSink = Callable[[dict[str, str]], KafkaSink[int]]


def test_after_a_fatal_error_a_new_producer_takes_over(make_sink: MakeSink) -> None:
    sink = make_sink({})
    outcomes = Outcomes(sink)
    for _ in range(3):
        assert outcomes.send()
    assert outcomes.all_reported() == [None] * 3
    first = sink._producer
    fail_for_good(sink)
    outcomes.eventually(lambda: sink.usable and sink._producer is not first)
    assert outcomes.send()
    assert outcomes.all_reported() == [None] * 4


def test_the_bytes_of_all_its_producers_are_counted(make_sink: MakeSink) -> None:
    sink = make_sink({"statistics.interval.ms": "100"})
    outcomes, size, first = Outcomes(sink), 50_000, sink._producer
    large = Record(RECORD.topic, RECORD.key, os.urandom(size), ())
    unknown = sink.bytes_sent
    assert unknown is None
    assert outcomes.send(large)
    outcomes.eventually(lambda: (sink.bytes_sent or 0) > size)
    fail_for_good(sink)
    outcomes.eventually(lambda: sink.usable and sink._producer is not first)
    assert outcomes.send(large)
    outcomes.eventually(lambda: (sink.bytes_sent or 0) > 2 * size)
    assert sink.bytes_sent is not None
    assert sink.bytes_sent < 2.2 * size


def test_records_open_at_a_fatal_error_are_reported_undelivered_once_and_for_no_fault_of_theirs(
    make_sink: MakeSink,
) -> None:
    sink = make_sink(HELD_BACK)
    outcomes = Outcomes(sink)
    for _ in range(50):
        assert outcomes.send()
    fail_for_good(sink)
    reported = outcomes.all_reported()
    assert len(reported) == 50
    for undelivered in reported:
        assert undelivered is not None
        assert (undelivered.record_at_fault, undelivered.topic_at_fault) == (False, False)


def test_until_a_new_producer_can_be_made_nothing_is_taken_and_nothing_forgotten(
    make_sink: MakeSink, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A certificate that is being replaced: for a while no producer can be made."""
    (authority, _), aside = self_signed(tmp_path), tmp_path / "aside.pem"
    # No mock broker: it would have librdkafka leave certificates alone.
    sink = make_sink({"security.protocol": "ssl", "ssl.ca.location": str(authority), BROKERS: "0"})
    outcomes = Outcomes(sink)
    assert outcomes.send()
    shutil.move(authority, aside)
    with caplog.at_level(logging.ERROR):
        fail_for_good(sink)
        outcomes.eventually(lambda: "event=kafka.no_producer" in caplog.text)
    assert [undelivered is not None for undelivered in outcomes.all_reported()] == [True]
    assert not outcomes.send()
    broken = sink._producer
    shutil.move(aside, authority)
    assert "ssl.ca.location" in (sink.problem or "")
    outcomes.eventually(lambda: sink.usable and sink._producer is not broken)
    assert outcomes.send()
    assert outcomes.reported[1:] == [[]]
    outcomes.note(sink.close())
    assert [undelivered is not None for undelivered in outcomes.all_reported()] == [True, True]


def test_closing_a_producer_that_has_just_failed_reports_what_is_open(make_sink: MakeSink) -> None:
    sink = make_sink(HELD_BACK)
    outcomes = Outcomes(sink)
    for _ in range(5):
        assert outcomes.send()
    fail_for_good(sink)
    outcomes.note(sink.close())
    assert [undelivered is not None for undelivered in outcomes.all_reported()] == [True] * 5
