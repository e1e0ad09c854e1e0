"""Events of one turn: what the first settles is settled for the second."""

from __future__ import annotations

from gateway.forwarding.outbox_writer import Fetched, Stored
from gateway.forwarding.records import to_bytes
from gateway.ports import Record
from tests.support.forwarding import Done, make_forwarder
from tests.support.outbox import TemporaryOutbox
from tests.unit.gateway.mqtt.test_intake import intake


class Sink:
    """Notes what it is given; the test delivers it."""

    delivery_timeout_s = 120.0

    def __init__(self) -> None:
        self.sent: list[Record] = []
        self.open: list[Done] = []

    def send(self, record: Record, done: Done) -> bool:
        self.sent.append(record)
        self.open.append(done)
        return True


def test_a_row_whose_record_was_delivered_while_it_was_stored_is_not_drained() -> None:
    live, backlog = Sink(), Sink()
    forwarder = make_forwarder(intake()[0], live, backlog, TemporaryOutbox(), monotonic=lambda: 100.0)
    state = forwarder._state
    record = Record("mqtt.wind_speed", b"k", b"v", ())
    entry = state.ledger.enter(record, 99.0, own=False)
    forwarder._uplink.send(entry, 100.0)
    (taken,) = state.ledger.take_for_storing(100.0)
    live.open.pop()(None)
    forwarder._take_outcomes(100.0)
    forwarder.inbox.put(Stored((taken,), (1,)))
    forwarder.inbox.put(Fetched([(1, to_bytes(record))]))
    forwarder._take_events(100.0)
    assert live.sent == [record]
    assert backlog.sent == []
