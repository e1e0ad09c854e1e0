"""When the outbox's rows are asked for again, with a writer that plays the outbox."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from gateway.clock.hold import ClockHold
from gateway.forwarding.backlog import Backlog
from gateway.forwarding.compacted_topics import CompactedTopics
from gateway.forwarding.kafka_health import TopicBackoff
from gateway.forwarding.ledger import Ledger
from gateway.forwarding.outbox_writer import OutboxWriter
from gateway.forwarding.record_codec import to_bytes
from gateway.forwarding.spill import Batches
from gateway.ports import Done, Record
from tests.unit.gateway.mqtt.test_intake import intake

TOPIC = "mqtt.wind_speed"


class Writer:
    """Notes what it is asked for; the test answers."""

    def __init__(self, records: int) -> None:
        self.records = records
        self.asked: list[int] = []

    def fetch(self, after: int) -> None:
        self.asked.append(after)

    def remove(self, numbers: Sequence[int]) -> None:
        self.records -= len(numbers)


class Sink:
    """Holds what it is given; the test says when it was delivered."""

    def __init__(self) -> None:
        self.open: list[Done] = []

    def send(self, record: Record, done: Done) -> bool:
        self.open.append(done)
        return True

    delivery_timeout_s = 120.0

    def flush(self, timeout_s: float) -> int:
        return len(self.open)

    def close(self) -> None: ...


def test_rows_of_a_topic_that_takes_records_again_do_not_wait_the_pause_out() -> None:
    rows = [(number, to_bytes(Record(TOPIC, b"k", b"v", ()))) for number in (1, 2, 3)]
    writer, sink, parking = Writer(len(rows)), Sink(), TopicBackoff()
    backlog = Backlog(
        intake()[0],
        sink,
        cast(OutboxWriter, writer),
        Ledger(),
        parking,
        lambda told: None,
        Batches(None),
        ClockHold(),
        CompactedTopics("thisrun"),
    )
    parking.park(TOPIC, 100.0, "no delivery report while others came")
    # Two passes: the first lets one row through to see, the second finds nothing to send.
    for passing in (rows, [], rows, []):
        backlog.turn(101.0, fetch=True)
        backlog.fetched(passing, 101.0)
    asked = len(writer.asked)
    assert (asked, len(sink.open)) == (4, 1)
    backlog.turn(102.0, fetch=True)
    assert len(writer.asked) == asked
    sink.open[0](None)
    backlog.take_outcomes(102.5)
    parking.delivered(TOPIC)
    # As at the end of a run: the last ones are to go now.
    backlog.turn(102.5, fetch=False, last_ones_after=0)
    assert len(writer.asked) == asked + 1
    backlog.fetched(rows[1:], 102.5)
    assert len(sink.open) == 3
