"""A message that the broker sends again is counted once."""

from __future__ import annotations

import threading
from dataclasses import replace

from gateway.config import ForwardConfig
from gateway.forwarding.forwarder import Forwarder, RedeliveryCache
from gateway.forwarding.ledger import Ledger
from gateway.ports import Ack, Message, Record
from tests.support.forwarding import Acks, arrive, echoed_sample, make_forwarder
from tests.support.servers import eventually
from tests.unit.cloud.wire.test_reading_records import READING
from tests.unit.gateway.forwarding.test_forwarder_silence import BarredOutbox, ScriptedSink, Unusable, running
from tests.unit.gateway.mqtt.test_intake import zigbee


def raw(forwarder: Forwarder, ack: Ack, payload: bytes, *, repeated: bool = False) -> None:
    arrive(forwarder, "elsewhere", payload, ack, repeated=repeated)


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
    acks = Acks()
    with running(ScriptedSink(lambda record: False), acks) as (forwarder, _):
        raw(forwarder, Ack(1, 7), b"nonsense")
        raw(forwarder, Ack(2, 7), b"nonsense", repeated=True)
        eventually(lambda: forwarder.outbox.records, until=lambda rows: rows == 1)
        eventually(lambda: acks, until=lambda paid: paid == [Ack(2, 7)])
    assert forwarder.counters.received == 1


def test_topics_without_end_are_not_counted_one_by_one() -> None:
    """The key of a raw message is its topic: each would stay in memory for ever."""
    with running(ScriptedSink(lambda record: True)) as (forwarder, _):
        for number in range(1, 21):
            arrive(forwarder, f"elsewhere/{number}", b"on", Ack(1, number))
        eventually(lambda: forwarder.counters.confirmed, until=lambda confirmed: confirmed == 20)
    assert not forwarder.counters.delivered


def test_a_forward_with_keys_like_the_gateways_own_is_not_counted_as_its_sensors() -> None:
    forwards = [ForwardConfig("elsewhere/+", payload="raw", key="mast-07/{1}")]
    sink = ScriptedSink(lambda record: True)
    with running(sink) as (forwarder, station):
        station.apply("mqtt.{quantity}", forwards)
        for number, name in enumerate(("x.wind_speed", "y"), 1):
            arrive(forwarder, f"elsewhere/{name}", b"on", Ack(1, number))
        own = station.records.own(
            replace(READING, channel="x.wind_speed", run="thisrun"), "root/mast-07/x/wind_speed"
        )
        eventually(lambda: forwarder.counters.confirmed, until=lambda confirmed: confirmed == 2)
        echoed_sample(forwarder, own, None)
        eventually(lambda: forwarder.counters.delivered, until=bool)
    assert sorted(record.key for record in sink.sent) == [
        b"mast-07/x.wind_speed", b"mast-07/x.wind_speed", b"mast-07/y"
    ]  # fmt: skip
    assert forwarder.counters.delivered == {b"mast-07/x.wind_speed": 1}


def test_what_is_not_acknowledged_yet_is_never_forgotten() -> None:
    """While a disk fails, far more of other devices' messages may be open than a broker's window has."""
    ledger, receipts = Ledger(), RedeliveryCache()
    record = Record("mqtt.raw", b"k", b"payload", ())
    for number in range(1, 3001):
        ack = Ack(1, number)
        receipts.note(Message("t", b"payload", ack), [ledger.enter(record, 0.0, own=False, ack=ack)])
    assert all(receipts.repeated(Message("t", b"payload", Ack(2, number))) for number in range(1, 3001))
    ledger.stored(ledger.take_for_storing(0.0), range(1, 3001))
    receipts.note(Message("t", b"payload", Ack(1, 3001)), [])
    again = [receipts.repeated(Message("t", b"payload", Ack(2, number))) for number in range(1, 3001)]
    # One made way for the last; of the others the bytes are gone with their entries.
    assert (again.count(None), again.count([])) == (1, 2999)


def test_what_a_lost_session_sent_is_in_memory_only_and_kept_as_such() -> None:
    """Neither the disk nor Kafka takes anything, and the broker is restarted."""
    acks = Acks()
    silent = Unusable(lambda record: False)
    with running(silent, acks, outbox=BarredOutbox(threading.Event())) as (forwarder, _):
        ledger = forwarder._state.ledger
        for number in range(1, 2001):
            raw(forwarder, Ack(1, number), b"%d" % number)
        eventually(lambda: ledger.refused, until=lambda refused: refused == 2000)
        acks.session_lost()
        raw(forwarder, Ack(2, 1), b"2001")
        eventually(lambda: ledger.refused, until=lambda refused: refused == 2001)
        assert sum(bool(entry.acks) for entry in ledger.waiting()) == 1
    assert acks == []


def test_several_readings_of_one_message_owe_one_puback_after_the_last() -> None:
    acks = Acks()
    allowed = threading.Event()
    sink = ScriptedSink(lambda record: record.topic == "mqtt.temperature")
    forwarder = make_forwarder(zigbee()[0], sink, sink, BarredOutbox(allowed), acks)
    forwarder.start()
    try:
        payload = b'{"temperature": 21.5, "humidity": 0.48, "ground": [8]}'
        arrive(forwarder, "zigbee/shed", payload, Ack(1, 7))
        arrive(forwarder, "zigbee/shed", payload, Ack(2, 7), repeated=True)
        # A message of the one quantity that is confirmed: all before it has been decided.
        arrive(forwarder, "zigbee/shed", b'{"temperature": 1, "humidity": 0.5, "ground": [8]}', Ack(2, 8))
        eventually(lambda: forwarder.counters.confirmed, until=lambda confirmed: confirmed == 4)
        eventually(lambda: forwarder.in_flight, until=lambda open_: open_ == 2)
        assert acks == []
        allowed.set()
        eventually(lambda: acks, until=lambda paid: paid == [Ack(2, 7), Ack(2, 8)])
        assert forwarder.counters.received == 2
        arrive(forwarder, "zigbee/shed", payload, Ack(3, 7), repeated=True)
        eventually(lambda: acks[2:], until=lambda paid: paid == [Ack(3, 7)])
    finally:
        forwarder.stop(grace_s=0.0)
    assert [record.topic for record in sink.sent].count("mqtt.temperature") == 4


def test_after_a_lost_session_a_known_id_means_nothing() -> None:
    """The broker was restarted empty, and gives a new message an old id: it must not pass for the old one."""
    sink, acks = ScriptedSink(lambda record: True), Acks()
    with running(sink, acks) as (forwarder, _):
        raw(forwarder, Ack(1, 7), b"21.5")
        eventually(lambda: forwarder.counters.confirmed, until=lambda confirmed: confirmed == 1)
        acks.session_lost()
        # It went out on a connection that broke before we had read it.
        raw(forwarder, Ack(3, 7), b"21.5", repeated=True)
        eventually(lambda: forwarder.counters.confirmed, until=lambda confirmed: confirmed == 2)
    assert len(sink.sent) == 2
    assert acks == [Ack(1, 7), Ack(3, 7)]
