"""A message that the broker sends again is counted once."""

from __future__ import annotations

from gateway.forwarder import Forwarder
from gateway.ledger import Ack
from tests.servers import eventually
from tests.unit.test_forwarder_silence import ScriptedSink, running


def raw(forwarder: Forwarder, ack: Ack, payload: bytes, *, repeated: bool = False) -> None:
    forwarder.arrived("elsewhere", payload, ack, repeated=repeated)


def test_a_redelivery_is_acknowledged_and_not_sent_again() -> None:
    sink = ScriptedSink(lambda record: True)
    with running(sink) as (forwarder, _):
        raw(forwarder, Ack(1, 7), b"nonsense")
        eventually(lambda: forwarder.counters.confirmed, until=lambda confirmed: confirmed == 1)
        raw(forwarder, Ack(2, 7), b"nonsense", repeated=True)
        raw(forwarder, Ack(2, 8), b"another")
        eventually(lambda: forwarder.counters.confirmed, until=lambda confirmed: confirmed == 2)
    assert forwarder.counters.received == 2
    assert len(sink.sent) == 2


def test_the_same_id_with_other_bytes_or_without_the_flag_is_a_new_message() -> None:
    sink = ScriptedSink(lambda record: True)
    with running(sink) as (forwarder, _):
        raw(forwarder, Ack(1, 7), b"nonsense")
        raw(forwarder, Ack(2, 7), b"other", repeated=True)
        raw(forwarder, Ack(3, 7), b"other")
        eventually(lambda: forwarder.counters.confirmed, until=lambda confirmed: confirmed == 3)
    assert len(sink.sent) == 3


def test_a_redelivery_of_what_is_still_open_is_acknowledged_when_that_is_stored() -> None:
    acks: list[Ack] = []
    with running(ScriptedSink(lambda record: False), acks.append) as (forwarder, _):
        raw(forwarder, Ack(1, 7), b"nonsense")
        raw(forwarder, Ack(2, 7), b"nonsense", repeated=True)
        eventually(lambda: forwarder.outbox_records, until=lambda rows: rows == 1)
        eventually(lambda: acks, until=lambda paid: paid == [Ack(1, 7), Ack(2, 7)])
    assert forwarder.counters.received == 1
