"""When the outbox's rows are fetched again, with a writer that plays the outbox."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from cloud.errors import Undelivered
from cloud.wire.reading_records import DEAD_LETTER_TOPIC
from gateway.forwarding.backlog import Backlog
from gateway.forwarding.outbox_writer import OutboxWriter
from gateway.forwarding.records import to_bytes
from gateway.forwarding.state import Pace, State
from gateway.ports import Record
from tests.support.forwarding import Done, SinkOf
from tests.unit.gateway.mqtt.test_intake import intake

TOPIC = "mqtt.wind_speed"


class Writer:
    """Notes what is fetched; the test answers."""

    def __init__(self, records: int) -> None:
        self.records = records
        self.fetched: list[int] = []

    def fetch(self, after: int) -> None:
        self.fetched.append(after)

    def remove(self, numbers: Sequence[int]) -> None:
        self.records -= len(numbers)


class Sink:
    """Holds what it is given; the test delivers it."""

    def __init__(self) -> None:
        self.open: list[Done] = []
        self.topics: list[str] = []

    def send(self, record: Record, done: Done) -> bool:
        self.topics.append(record.topic)
        self.open.append(done)
        return True

    delivery_timeout_s = 120.0

    def close(self) -> None: ...


def test_rows_of_a_topic_that_takes_records_again_do_not_wait_the_pause_out() -> None:
    rows = [(number, to_bytes(Record(TOPIC, b"k", b"v", ()))) for number in (1, 2, 3)]
    writer, sink = Writer(len(rows)), Sink()
    state = State(intake()[0], Pace(1.0))
    backlog = Backlog(state, SinkOf(sink), cast(OutboxWriter, writer))
    state.kafka.park(TOPIC, 100.0, "no delivery report while others came")
    # Two passes: the first lets one row through to see, the second finds nothing to send.
    for passing in (rows, [], rows, []):
        backlog.turn(101.0)
        backlog.fetched(passing, 101.0)
    fetched = len(writer.fetched)
    assert (fetched, len(sink.open)) == (4, 1)
    backlog.turn(102.0)
    assert len(writer.fetched) == fetched
    sink.open[0](None)
    backlog.poll(102.5)
    state.kafka.confirmed(TOPIC, 102.5, 102.5)
    backlog.turn(102.5)
    assert len(writer.fetched) == fetched + 1
    backlog.fetched(rows[1:], 102.5)
    assert len(sink.open) == 3


def test_a_row_is_removed_once_kafka_has_it_and_not_before() -> None:
    writer, sink = Writer(2), Sink()
    backlog = Backlog(State(intake()[0], Pace(1.0)), SinkOf(sink), cast(OutboxWriter, writer))
    backlog.turn(100.0)
    backlog.fetched([(number, to_bytes(Record(TOPIC, b"k", b"v", ()))) for number in (1, 2)], 100.0)
    backlog.turn(200.0)
    assert (len(sink.open), writer.records) == (2, 2)
    sink.open[1](None)
    backlog.poll(200.0)
    backlog.turn(201.0)
    assert writer.records == 1


def test_a_damaged_row_that_is_read_again_is_no_further_dead_letter() -> None:
    writer, sink = Writer(1), Sink()
    state = State(intake()[0], Pace(1.0))
    backlog = Backlog(state, SinkOf(sink), cast(OutboxWriter, writer))
    rows = [(1, b"not a record")]
    timeout = Undelivered("timed out", record_at_fault=False, topic_at_fault=False)
    for attempt, outcome in enumerate((timeout, None), 1):
        now_s = 100.0 + attempt
        backlog.turn(now_s)
        backlog.fetched(rows, now_s)
        assert sink.topics == [DEAD_LETTER_TOPIC] * attempt
        sink.open.pop()(outcome)
        backlog.poll(now_s)
    assert writer.fetched == [0, 0]
    backlog.turn(110.0)
    assert writer.records == 0
    assert (state.counters.drained, state.counters.dead_letters) == (1, 0)
