"""How the forwarder notices that Kafka is silent, or only one topic, with sinks that play either."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from operator import lt
from pathlib import Path

import pytest

from buffer.errors import Drop, OutboxDiskFull, ignore
from cloud.wire.channel_records import CHANNELS_TOPIC
from cloud.wire.reading_records import RUNS_TOPIC, STATUS_TOPIC
from cloud.wire.site_records import SITES_TOPIC
from gateway.forwarding.forwarder import Forwarder
from gateway.forwarding.records import ranges, to_bytes
from gateway.mqtt.intake import Intake
from gateway.ports import Ack, Record
from tests.support.clocks import SkippingTime
from tests.support.forwarding import Acks, Done, arrive, echoed_sample, make_forwarder
from tests.support.outbox import TemporaryOutbox
from tests.support.servers import eventually
from tests.unit.buffer.trouble import Disk
from tests.unit.cloud.wire.test_reading_records import READING
from tests.unit.gateway.mqtt.test_intake import intake


class ScriptedSink:
    """Confirms what ``answers`` is true for, and keeps silent about the rest."""

    def __init__(self, answers: Callable[[Record], bool]) -> None:
        self.answers = answers
        self.sent: list[Record] = []

    def send(self, record: Record, done: Done) -> bool:
        self.sent.append(record)
        if self.answers(record):
            done(None)
        return True

    def close(self) -> None: ...

    delivery_timeout_s = 120.0


class Unusable(ScriptedSink):
    """No producer could be made."""

    usable = False

    def send(self, record: Record, done: Done) -> bool:
        return self.usable and super().send(record, done)


class BarredOutbox(TemporaryOutbox):
    """Refuses to store until it is allowed."""

    def __init__(self, allowed: threading.Event) -> None:
        super().__init__()
        self.allowed = allowed

    def append(self, records: Sequence[bytes], summary: bytes = b"", **options: bool) -> list[int]:
        if not self.allowed.is_set():
            raise OutboxDiskFull("not now")
        return super().append(records, summary)


class SlowOutbox(TemporaryOutbox):
    """Keeps each commit waiting until it is let through."""

    def __init__(self) -> None:
        super().__init__()
        self.let_through = threading.Event()
        self.begun = threading.Event()
        self.commits: list[int] = []

    def append(self, records: Sequence[bytes], summary: bytes = b"", **options: bool) -> list[int]:
        self.begun.set()
        assert self.let_through.wait(60)
        self.commits.append(len(records))
        return super().append(records, summary)


@contextmanager
def running(
    sink: ScriptedSink,
    acks: Acks | None = None,
    outbox: TemporaryOutbox | None = None,
    backlog: ScriptedSink | None = None,
) -> Iterator[tuple[Forwarder, Intake]]:
    station = intake()[0]
    store = TemporaryOutbox() if outbox is None else outbox
    # Half of it is what this machine, busy as it may be, has for the way through the forwarder.
    forwarder = make_forwarder(station, sink, backlog or sink, store, acks, 0.8)
    forwarder.start()
    try:
        yield forwarder, station
    finally:
        forwarder.stop(grace_s=0.0)


def sample(
    forwarder: Forwarder, station: Intake, seq: int, quantity: str = "wind_speed", *, comes_back: bool = True
) -> None:
    """One of our own readings, and its echo."""
    station.own_topic = "fieldgate/mast-07/x"
    units = {"wind_speed": "m/s", "co2": "ppm"}
    reading = replace(
        READING, run="thisrun", seq=seq, channel=f"x.{quantity}", quantity=quantity, unit=units[quantity]
    )
    while station._issued.last(reading.channel) < seq:
        station._issued.draw(reading.channel)
    echo = Ack(1, seq) if comes_back else None
    echoed_sample(forwarder, station.records.own(reading, "fieldgate/mast-07/x"), echo)


def test_what_is_overdue_while_the_disk_is_slow_goes_with_one_commit() -> None:
    outbox = SlowOutbox()
    with running(ScriptedSink(lambda record: False), outbox=outbox) as (forwarder, station):
        sample(forwarder, station, 1)
        assert outbox.begun.wait(60)
        for seq in (2, 3):
            sample(forwarder, station, seq)
            # Each becomes overdue by itself.
            begun_s = time.monotonic()
            eventually(time.monotonic, until=partial(lt, begun_s + 0.8))
        outbox.let_through.set()
        eventually(lambda: forwarder.outbox.records, until=lambda rows: rows == 3)
    assert outbox.commits == [1, 2]


def test_silence_is_noticed_by_what_the_outbox_sends() -> None:
    """The local broker is away too: no reading comes back from it, so each takes the way through the disk."""
    backlog, monotonic = ScriptedSink(lambda _: True), SkippingTime()
    station = intake()[0]
    forwarder = make_forwarder(
        station, ScriptedSink(lambda _: True), backlog, TemporaryOutbox(), monotonic=monotonic
    )
    forwarder.start()
    try:
        sample(forwarder, station, 1, comes_back=False)
        eventually(lambda: forwarder.counters.drained, until=lambda drained: drained == 1)
        backlog.answers = lambda _: False
        monotonic.skip(31)
        sample(forwarder, station, 2, comes_back=False)
        eventually(lambda: len(backlog.sent), until=lambda sent: sent == 2)
        monotonic.skip(29)
        sample(forwarder, station, 3, comes_back=False)
        eventually(lambda: len(backlog.sent), until=lambda sent: sent == 3)
        assert forwarder.uplink == "draining"
        monotonic.skip(2)
        eventually(lambda: forwarder.uplink, until=lambda uplink: uplink == "spilling")
        backlog.answers = lambda _: True
        sample(forwarder, station, 4, comes_back=False)
        eventually(lambda: forwarder.uplink, until=lambda uplink: uplink == "draining")
    finally:
        forwarder.stop(grace_s=0.0)


def test_what_neither_kafka_nor_the_disk_took_for_a_minute_leaves_late() -> None:
    live, backlog, monotonic = Unusable(lambda _: True), ScriptedSink(lambda _: True), SkippingTime()
    station = intake()[0]
    outbox = BarredOutbox(threading.Event())
    forwarder = make_forwarder(station, live, backlog, outbox, monotonic=monotonic)
    forwarder.start()
    try:
        sample(forwarder, station, 1)
        eventually(lambda: forwarder.uplink, until=lambda uplink: uplink == "spilling")
        monotonic.skip(61)
        sample(forwarder, station, 2)
        live.usable = True
        monotonic.skip(21)
        eventually(lambda: forwarder.counters.confirmed, until=lambda confirmed: confirmed == 2)
    finally:
        forwarder.stop(grace_s=0.0)
    assert [("replayed", b"1") in record.headers for record in live.sent] == [True, False]


def test_without_a_producer_kafka_does_not_answer() -> None:
    sink = Unusable(lambda record: True)
    with running(sink) as (forwarder, station):
        sample(forwarder, station, 1)
        eventually(lambda: forwarder.uplink, until=lambda uplink: uplink == "spilling")
        eventually(lambda: forwarder.outbox.records, until=lambda rows: rows == 1)
        sink.usable = True
        eventually(lambda: forwarder.uplink, until=lambda uplink: uplink == "healthy")
        assert forwarder.counters.drained == 1


def test_the_broker_keeps_what_memory_has_no_room_for() -> None:
    """Neither Kafka nor the disk takes anything: intake stops at a bound, and resumes below it."""
    acks, taken = Acks(), threading.Event()
    silent = ScriptedSink(lambda record: False)
    forwarder = make_forwarder(intake()[0], silent, silent, BarredOutbox(taken), acks)
    forwarder.start()
    # A refused message keeps 64 KiB of its megabyte: what counts is what is held, not what came.
    payload = bytes(1 << 20)
    for number in range(600):
        arrive(forwarder, "elsewhere", payload, Ack(1, number))
    eventually(lambda: acks.taken, until=lambda changes: changes == [True, False])
    assert acks.waiting > 0
    taken.set()
    eventually(lambda: acks.waiting, until=lambda left: left == 0)
    forwarder.stop(grace_s=0.0)
    assert acks.taken[:3] == [True, False, True]


def test_at_the_end_what_only_memory_holds_goes_to_kafka_while_there_is_time(tmp_path: Path) -> None:
    disk = Disk()
    outbox = disk.outbox(tmp_path / "outbox.db", ignore)
    outbox.append([to_bytes(Record("mqtt.co2", b"k", b"on the disk", ()))] * 3)
    disk.make_read_only()
    live, backlog = ScriptedSink(lambda record: False), ScriptedSink(lambda record: False)
    station = intake()[0]
    forwarder = make_forwarder(station, live, backlog, outbox)
    forwarder.start()
    sample(forwarder, station, 1)
    eventually(lambda: forwarder.uplink, until=lambda uplink: uplink == "spilling")
    eventually(lambda: forwarder.in_memory[0], until=lambda records: records == 1)
    # The first is at the sink, which keeps silent about it.
    sample(forwarder, station, 2)
    eventually(lambda: forwarder.in_memory[0], until=lambda records: records == 2)
    live.answers = lambda record: True
    left = forwarder.stop(grace_s=1.5)
    assert left is not None
    assert [each.first for each in ranges(left.summary)] == [1]


def test_what_the_disk_cannot_read_does_not_keep_memory_from_kafka(tmp_path: Path) -> None:
    disk = Disk()
    outbox = disk.outbox(tmp_path / "outbox.db", ignore)
    outbox.append([to_bytes(Record("mqtt.co2", b"k", b"on the disk", ()))])
    disk.make_read_only()
    disk.reading = False
    live, backlog = Unusable(lambda record: True), ScriptedSink(lambda record: True)
    station, monotonic = intake()[0], SkippingTime()
    forwarder = make_forwarder(station, live, backlog, outbox, monotonic=monotonic)
    forwarder.start()
    sample(forwarder, station, 1)
    eventually(lambda: forwarder.in_memory[0], until=lambda records: records == 1)
    live.usable = True
    monotonic.skip(21)
    eventually(lambda: forwarder.counters.confirmed, until=lambda confirmed: confirmed == 1)
    assert forwarder.in_memory == (0, 0)
    assert forwarder.stop(grace_s=0.0) is None


def test_memory_is_bounded_while_the_disk_refuses_and_what_is_left_at_the_end_is_announced() -> None:
    outbox, station = BarredOutbox(threading.Event()), intake()[0]
    drops: list[Drop] = []
    silent = Unusable(lambda record: False)
    forwarder = make_forwarder(station, silent, silent, outbox, on_drop=drops.append)
    ledger = forwarder._state.ledger
    forwarder.start()
    sample(forwarder, station, 1)
    eventually(lambda: forwarder.uplink, until=lambda uplink: uplink == "spilling")
    for seq in range(2, 4001):
        sample(forwarder, station, seq)
    eventually(lambda: ledger.refused, until=lambda refused: refused >= 3000)
    ledger.most_bytes = 1 << 20
    eventually(lambda: ledger.size_bytes, until=lambda taken: taken <= ledger.most_bytes)
    left = forwarder.stop(grace_s=0.0)
    assert drops
    assert left is not None
    assert {drop.reason for drop in drops} == {"MEMORY_FULL"}
    assert left.reason == "NOT_STORED"
    lost, kept = (
        [seq for drop in some for each in ranges(drop.summary) for seq in range(each.first, each.last + 1)]
        for some in (drops, [left])
    )
    assert len(lost) == sum(drop.count or 0 for drop in drops)
    assert sorted(lost + kept) == list(range(1, 4001))


class FullOutbox(TemporaryOutbox):
    """Its disk has room only in place of its oldest; notes whether that was allowed."""

    def __init__(self) -> None:
        super().__init__()
        self.allowed: list[bool] = []

    def append(self, records: Sequence[bytes], summary: bytes = b"", **options: bool) -> list[int]:
        self.allowed.append(options["drop_oldest"])
        if not options["drop_oldest"]:
            raise OutboxDiskFull("full")
        return super().append(records, summary)

    def probe(self) -> None:
        raise OutboxDiskFull("full")


def test_while_memory_has_room_a_full_disk_drops_nothing() -> None:
    outbox = FullOutbox()
    with running(ScriptedSink(lambda record: False), outbox=outbox) as (forwarder, station):
        sample(forwarder, station, 1)
        eventually(lambda: len(outbox.allowed), until=lambda tried: tried >= 2)
        assert not any(outbox.allowed)
        assert forwarder.in_memory[0] == 1
        forwarder._state.ledger.most_bytes = forwarder.in_memory[1]
        eventually(lambda: forwarder.outbox.records, until=lambda stored: stored == 1)


def test_memory_is_bounded_while_a_commit_hangs() -> None:
    """The disk neither takes nor refuses: the oldest of our own readings are given up, and reported."""
    outbox, station = SlowOutbox(), intake()[0]
    drops: list[Drop] = []
    silent = ScriptedSink(lambda record: False)
    forwarder = make_forwarder(station, silent, silent, outbox, on_drop=drops.append)
    forwarder._state.ledger.most_bytes = 64 << 10
    forwarder.start()
    sample(forwarder, station, 1)
    assert outbox.begun.wait(60)
    # From here on Kafka is silent: what comes is at no sink.
    eventually(lambda: forwarder.uplink, until=lambda uplink: uplink == "spilling")
    for seq in range(2, 202):
        sample(forwarder, station, seq)
    eventually(lambda: sum(drop.count or 0 for drop in drops) + forwarder.in_flight, until=lambda n: n == 201)
    eventually(lambda: forwarder.in_flight, until=lambda left: left * 1024 < 64 << 10)
    outbox.let_through.set()
    eventually(lambda: forwarder.in_flight, until=lambda left: left == 0)
    assert forwarder.stop(grace_s=0.0) is None
    lost = [
        seq for drop in drops for each in ranges(drop.summary) for seq in range(each.first, each.last + 1)
    ]
    assert {drop.reason for drop in drops} == {"MEMORY_FULL"}
    # The oldest, but for the one whose commit was under way.
    assert lost == list(range(2, 2 + len(lost)))
    assert len(outbox) == 201 - len(lost)


def test_what_is_for_a_parked_topic_goes_with_few_commits() -> None:
    """One by one each would cost the card a commit, until the topic is mended."""
    outbox = SlowOutbox()
    outbox.let_through.set()
    sink = ScriptedSink(lambda record: record.topic != "mqtt.co2")
    with running(sink, outbox=outbox) as (forwarder, station):
        sample(forwarder, station, 1, "co2")
        # What is confirmed together with its sending proves nothing.
        eventually(lambda: sink.sent)
        sample(forwarder, station, 2, "wind_speed")
        eventually(lambda: forwarder.kafka.parked_topics, until=lambda topics: topics == ("mqtt.co2",))
        eventually(lambda: forwarder.in_flight, until=lambda left: left == 0)
        for seq in range(3, 33):
            begun_s = time.monotonic()
            sample(forwarder, station, seq, "co2")
            # Each becomes overdue by itself.
            eventually(time.monotonic, until=partial(lt, begun_s + 0.03), poll_s=0.01)
        eventually(lambda: forwarder.outbox.records, until=lambda rows: rows >= 31)
    # Thirty readings, a few milliseconds apart: whatever the machine did meanwhile, not thirty commits.
    assert len(outbox.commits) < 15, outbox.commits


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_dies_while_it_stops_leaves_nothing_behind() -> None:
    outbox, station = TemporaryOutbox(), intake()[0]

    def die() -> None:
        # What was sampled meanwhile is behind this in the queue, and nothing takes it from there.
        for seq in (1, 2):
            sample(forwarder, station, seq)
        raise SystemExit

    silent = ScriptedSink(lambda record: False)
    forwarder = make_forwarder(station, silent, silent, outbox)
    forwarder.start()
    forwarder.take_no_more()
    forwarder.change(die, 0.2)
    assert forwarder.stop(grace_s=5.0) is None
    assert len(outbox) == 2
    # Neither waits for a thread that is dead.
    forwarder.take_no_more()


@pytest.mark.parametrize("topic", [CHANNELS_TOPIC, RUNS_TOPIC, SITES_TOPIC, STATUS_TOPIC])
def test_a_newer_record_comes_again_after_an_older_one_of_an_outage(topic: str) -> None:
    old, new = (Record(topic, b"mast-07/x", value, ()) for value in (b"old", b"new"))
    sent: list[Record] = []

    class Backlog(ScriptedSink):
        def send(self, record: Record, done: Done) -> bool:
            return new in sent and super().send(record, done)

    live, backlog = ScriptedSink(lambda _: True), Backlog(lambda _: True)
    live.sent = backlog.sent = sent
    outbox = TemporaryOutbox()
    outbox.append([to_bytes(old)])
    with running(live, outbox=outbox, backlog=backlog) as (forwarder, _):
        forwarder.inbox.announce(new)
        eventually(
            lambda: [record.value for record in sent], until=lambda values: values == [b"new", b"old", b"new"]
        )
        eventually(lambda: not forwarder.in_flight and not forwarder.outbox.records)
    assert sent[-1].value == b"new"
