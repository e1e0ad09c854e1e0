"""A metered uplink: all is stored first and sent in batches, but for the gateway's own records."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gateway.forwarding.forwarder import Forwarder
from gateway.mqtt.intake import Intake
from gateway.ports import REPLAYED, Record
from tests.support.clocks import SkippingTime
from tests.support.forwarding import Done, make_forwarder
from tests.support.outbox import TemporaryOutbox
from tests.support.servers import eventually
from tests.unit.gateway.forwarding.test_forwarder_silence import ScriptedSink, sample
from tests.unit.gateway.mqtt.test_intake import intake

EVENT = Record("gateway.events", b"mast-07", b"{}", ())


class BarredSink(ScriptedSink):
    """Takes nothing while it is barred."""

    barred = True

    def send(self, record: Record, done: Done) -> bool:
        return not self.barred and super().send(record, done)


@contextmanager
def metered(
    live: ScriptedSink, backlog: ScriptedSink, monotonic: Callable[[], float], batch_s: float = 60.0
) -> Iterator[tuple[Forwarder, Intake]]:
    station = intake()[0]
    forwarder = make_forwarder(
        station, live, backlog, TemporaryOutbox(), batch_s=batch_s, monotonic=monotonic
    )
    forwarder.start()
    try:
        yield forwarder, station
    finally:
        forwarder.stop(grace_s=0.0)


def seqs(sink: ScriptedSink) -> list[int]:
    return [int(record.value.split(b'"seq":')[1].split(b",")[0]) for record in sink.sent]


def stored(forwarder: Forwarder, rows: int) -> None:
    """Wait until so many rows are in the outbox and nothing is in memory."""
    eventually(lambda: (forwarder.outbox.records, forwarder.in_flight), until=lambda now: now == (rows, 0))


def test_readings_are_stored_and_leave_with_the_next_batch_unmarked() -> None:
    live, backlog, monotonic = ScriptedSink(lambda _: True), ScriptedSink(lambda _: True), SkippingTime()
    with metered(live, backlog, monotonic) as (forwarder, station):
        sample(forwarder, station, 1)
        # The first pass is due at the start, and finds the first commit.
        eventually(lambda: forwarder.counters.drained, until=lambda drained: drained == 1)
        stored(forwarder, 0)
        for count, seq in enumerate((2, 3), 1):
            sample(forwarder, station, seq)
            stored(forwarder, count)
        assert seqs(backlog) == [1]
        assert forwarder.uplink == "metered"
        monotonic.skip(60)
        forwarder.inbox.announce(EVENT)
        stored(forwarder, 0)
    assert seqs(backlog) == [1, 2, 3]
    assert live.sent == [EVENT]
    assert not any(REPLAYED in record.headers for record in backlog.sent)


def test_rows_that_missed_their_batch_by_a_minute_are_marked_as_replayed() -> None:
    live, backlog, monotonic = ScriptedSink(lambda _: True), BarredSink(lambda _: True), SkippingTime()
    with metered(live, backlog, monotonic) as (forwarder, station):
        for seq in (1, 2, 3):
            sample(forwarder, station, seq)
            stored(forwarder, seq)
            # Two batches find no way; the third takes what they have left, and one that is new.
            backlog.barred = seq < 3
            monotonic.skip(61)
            forwarder.inbox.announce(EVENT)
            eventually(lambda: forwarder.in_flight, until=lambda left: left == 0)
        stored(forwarder, 0)
    marked = {
        seq: REPLAYED in record.headers for seq, record in zip(seqs(backlog), backlog.sent, strict=True)
    }
    # After 183, 122 and 61 s, with batches of 60 s.
    assert marked == {1: True, 2: True, 3: False}


def test_a_reading_that_waited_for_a_long_batch_is_not_late() -> None:
    live, backlog, monotonic = ScriptedSink(lambda _: True), ScriptedSink(lambda _: True), SkippingTime()
    with metered(live, backlog, monotonic, batch_s=600.0) as (forwarder, station):
        sample(forwarder, station, 1)
        eventually(lambda: forwarder.counters.drained, until=lambda drained: drained == 1)
        stored(forwarder, 0)
        sample(forwarder, station, 2)
        stored(forwarder, 1)
        monotonic.skip(600)
        forwarder.inbox.announce(EVENT)
        stored(forwarder, 0)
    assert seqs(backlog) == [1, 2]
    assert not any(REPLAYED in record.headers for record in backlog.sent)


def test_silence_is_noticed_by_what_is_sent_live_and_ends_with_a_confirmed_batch() -> None:
    answers = threading.Event()
    live, backlog = ScriptedSink(lambda _: False), ScriptedSink(lambda _: answers.is_set())
    monotonic = SkippingTime()
    with metered(live, backlog, monotonic) as (forwarder, station):
        sample(forwarder, station, 1)
        forwarder.inbox.announce(EVENT)
        stored(forwarder, 2)
        assert forwarder.uplink == "metered"
        monotonic.skip(31)
        eventually(lambda: forwarder.uplink, until=lambda uplink: uplink == "spilling")
        answers.set()
        sample(forwarder, station, 2)
        stored(forwarder, 3)
        monotonic.skip(60)
        eventually(lambda: forwarder.uplink, until=lambda uplink: uplink == "metered")


def test_the_backlog_may_rest_until_the_next_batch_and_its_sinks_timeout_which_a_reload_may_change() -> None:
    sink = ScriptedSink(lambda _: True)
    forwarder = make_forwarder(intake()[0], sink, sink, TemporaryOutbox(), batch_s=60.0)

    def draining_may_rest_s() -> float:
        return next(each.plus_s for each in forwarder.heartbeats() if each.part == "draining")

    assert draining_may_rest_s() == 180.0
    sink.delivery_timeout_s = 300.0
    assert draining_may_rest_s() == 360.0
