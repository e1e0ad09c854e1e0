"""Readings of a clock that is not set wait in the outbox, and each leaves once, with one time."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings, strategies as st

from cloud.errors import Undelivered
from cloud.wire.reading_records import Reading, encode_reading, format_time, parse_reading
from gateway.clock.hold import BootTime, ClockHold
from gateway.mqtt.intake import Intake
from gateway.ports import Ack, Record
from gateway.sequences import Sequences
from tests.support.clocks import SkippingTime
from tests.support.forwarding import Acks, Done, arrive, echoed_sample, make_forwarder
from tests.support.outbox import TemporaryOutbox
from tests.support.servers import eventually
from tests.unit.cloud.wire.test_reading_records import READING
from tests.unit.gateway.mqtt.test_intake import FixedClock

BOOT, OFFSET_MS = "boot-2", 1_795_246_000_000
UNSYNCED = replace(
    READING, channel="x.wind_speed", time_us=1_600_000_000_000_000, quality=3, reasons=("CLOCK_UNSYNCED",),
    clock="unsynced", boot=BOOT,
)  # fmt: skip


class Cloud:
    """A Kafka that answers or is silent, and remembers what it confirmed."""

    def __init__(self) -> None:
        self.answering = True
        self.closing = False
        self.taken: list[Record] = []
        self._silent: list[tuple[Record, Done]] = []
        self._lock = threading.Lock()

    def send(self, record: Record, done: Done) -> bool:
        with self._lock:
            if self.closing:
                return False
            if not self.answering:
                self._silent.append((record, done))
                return True
            self.taken.append(record)
        done(None)
        return True

    def come_back(self) -> None:
        with self._lock:
            self.answering = True
            late, self._silent = self._silent, []
            self.taken += [record for record, _ in late]
        for _, done in late:
            done(None)

    def close_down(self) -> None:
        """What it has not confirmed it gives up, and takes nothing more."""
        with self._lock:
            self.closing = True
            given_up, self._silent = self._silent, []
        for _, done in given_up:
            done(Undelivered("_PURGE_QUEUE", record_at_fault=False, topic_at_fault=False))

    delivery_timeout_s = 120.0

    def close(self) -> None: ...

    def readings(self) -> list[Reading]:
        with self._lock:
            taken = list(self.taken)
        return [parse_reading(record.value) for record in taken if record.topic == "mqtt.wind_speed"]


class CountingOutbox(TemporaryOutbox):
    """An outbox that is there for the next process, and counts the rows it gives."""

    def __init__(self) -> None:
        super().__init__()
        self.peeked = 0

    def peek(self, after: int, limit: int, max_bytes: int) -> list[tuple[int, bytes]]:
        rows = super().peek(after, limit, max_bytes)
        self.peeked += len(rows)
        return rows

    def close(self) -> None: ...


@dataclass
class Gateway:
    """What outlives a process, and the forwarder of the one that runs."""

    cloud: Cloud = field(default_factory=Cloud)
    outbox: CountingOutbox = field(default_factory=CountingOutbox)
    boot_times: dict[str, int | None] = field(default_factory=dict)
    boot: str = BOOT
    interval_s: float = 0.2
    """Half of it is the silence in which Kafka counts as gone: not what a busy machine takes."""
    runs: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    sampled: list[Reading] = field(default_factory=list)
    acks: Acks = field(default_factory=Acks)
    monotonic: SkippingTime = field(default_factory=SkippingTime)

    def start(self) -> None:
        self.cloud.closing = False
        self.run = f"run{next(self.runs)}"
        self.issued = Sequences(self.run)
        clock = FixedClock(synced=self.boot in self.boot_times)
        self.station = Intake("mast-07", self.issued, "mqtt.{quantity}", clock, boot=self.boot)
        self.station.own_topic = "fieldgate/mast-07/{sensor}"
        self.hold = ClockHold(self.boot, self.boot_times)
        self.forwarder = make_forwarder(
            self.station,
            self.cloud,
            self.cloud,
            self.outbox,
            self.acks,
            self.interval_s,
            hold=self.hold,
            monotonic=self.monotonic,
        )
        self.forwarder.start()

    def sample(self, *, synced: bool = False, echo: bool = True) -> Reading:
        seq = self.issued.draw("x.wind_speed")
        if synced:
            reading = replace(READING, channel="x.wind_speed", run=self.run, seq=seq)
        else:
            reading = replace(UNSYNCED, run=self.run, seq=seq, boot=self.boot, mono_ms=1000 * seq)
        record = self.station.records.own(reading, "fieldgate/mast-07/x")
        self.sampled.append(reading)
        echoed_sample(self.forwarder, record, Ack(1, seq) if echo else None)
        return reading

    def judge(self, offset_ms: int | None) -> None:
        self.boot_times.setdefault(self.boot, offset_ms)
        self.forwarder.inbox.put(BootTime(self.boot, offset_ms))

    def stop(self) -> None:
        self.cloud.close_down()
        assert self.forwarder.stop(grace_s=5.0) is None


@contextmanager
def running(boot_times: dict[str, int | None] | None = None, interval_s: float = 0.2) -> Iterator[Gateway]:
    gateway = Gateway(boot_times=boot_times or {}, interval_s=interval_s)
    gateway.start()
    try:
        yield gateway
    finally:
        gateway.stop()


def times(readings: list[Reading]) -> dict[int, tuple[str, str, int]]:
    return {each.seq: (format_time(each.time_us), each.clock, each.quality) for each in readings}


def test_a_held_reading_goes_no_further_than_the_outbox_until_its_time_is_known() -> None:
    with running() as gateway:
        for _ in range(3):
            gateway.sample()
        eventually(lambda: len(gateway.acks), until=lambda acks: acks == 3)
        eventually(lambda: gateway.forwarder.held_rows, until=lambda rows: rows == 3)
        gateway.sample(synced=True)
        eventually(gateway.cloud.readings)
        assert times(gateway.cloud.readings()) == {4: ("2026-11-21T07:35:00.000Z", "synced", 1)}
        assert gateway.forwarder.uplink == "healthy"
        gateway.judge(OFFSET_MS)
        eventually(lambda: len(gateway.outbox), until=lambda rows: rows == 0)
        found = gateway.cloud.readings()
        assert len(found) == 4
        assert times(found) == {
            1: ("2026-11-21T07:26:41.000Z", "repaired", 1),
            2: ("2026-11-21T07:26:42.000Z", "repaired", 1),
            3: ("2026-11-21T07:26:43.000Z", "repaired", 1),
            4: ("2026-11-21T07:35:00.000Z", "synced", 1),
        }
        assert gateway.hold.released.get_nowait().first == "run1 x.wind_speed 1"
        assert all(
            name in ("mqtt-topic", "replayed", "received-at")
            for record in gateway.cloud.taken
            for name, _ in record.headers
        )
        assert (gateway.forwarder.held_rows, gateway.hold.repaired) == (0, 3)


def test_when_the_hold_ends_they_leave_as_they_were_published() -> None:
    with running() as gateway:
        published = [gateway.sample(), gateway.sample()]
        eventually(lambda: gateway.forwarder.held_rows, until=lambda rows: rows == 2)
        gateway.monotonic.skip(61)
        gateway.judge(None)
        published.append(gateway.sample())
        eventually(lambda: len(gateway.cloud.taken), until=lambda taken: taken == 3)
        assert {record.value for record in gateway.cloud.taken} == set(map(encode_reading, published))
        assert sum(("replayed", b"1") in record.headers for record in gateway.cloud.taken) == 2


@pytest.mark.parametrize("offset_ms", [OFFSET_MS, None])
def test_an_earlier_runs_reading_that_comes_back_leaves_with_the_bytes_of_the_stored_copy(
    offset_ms: int | None,
) -> None:
    with running() as gateway:
        reading = gateway.sample(echo=False)
        eventually(lambda: gateway.forwarder.held_rows)
        gateway.stop()
        gateway.start()
        arrive(gateway.forwarder, "fieldgate/mast-07/x", encode_reading(reading), Ack(2, 1))
        eventually(lambda: gateway.forwarder.held_rows, until=lambda rows: rows == 2)
        assert gateway.cloud.taken == []
        gateway.judge(offset_ms)
        eventually(lambda: len(gateway.cloud.taken), until=lambda taken: taken == 2)
        arrive(gateway.forwarder, "fieldgate/mast-07/x", encode_reading(reading), Ack(2, 2))
        eventually(lambda: len(gateway.cloud.taken), until=lambda taken: taken == 3)
        assert len({record.value for record in gateway.cloud.taken}) == 1
        assert gateway.cloud.readings()[0].clock == ("unsynced" if offset_ms is None else "repaired")


def test_rows_that_wait_are_looked_at_once() -> None:
    with running(interval_s=0.2) as gateway:
        for _ in range(1000):
            gateway.sample()
        eventually(lambda: gateway.forwarder.held_rows, until=lambda rows: rows == 1000)
        gateway.stop()
        gateway.start()
        eventually(lambda: gateway.forwarder.held_rows, until=lambda rows: rows == 1000)
        eventually(lambda: gateway.forwarder.uplink, until=lambda uplink: uplink == "healthy")
        # Others go through the outbox and out of it again, past all that wait.
        gateway.outbox.peeked = 0
        for _ in range(2):
            gateway.cloud.answering = False
            for _ in range(10):
                gateway.sample(synced=True)
            eventually(lambda: len(gateway.outbox) == 1010)
            gateway.cloud.come_back()
            eventually(lambda: len(gateway.outbox) == 1000)
        assert {reading.clock for reading in gateway.cloud.readings()} == {"synced"}
        assert gateway.outbox.peeked < 500


Step = Callable[[Gateway], object]
STEPS: dict[str, Step] = {
    "unsynced": lambda gateway: gateway.sample(),
    "unsynced, no echo": lambda gateway: gateway.sample(echo=False),
    "synced": lambda gateway: gateway.sample(synced=True),
    "silence": lambda gateway: setattr(gateway.cloud, "answering", False),
    "answers": lambda gateway: gateway.cloud.come_back(),
    "known": lambda gateway: gateway.judge(OFFSET_MS),
    "given up": lambda gateway: gateway.judge(None),
    "restart": lambda gateway: restart(gateway, gateway.boot),
    "reboot": lambda gateway: restart(gateway, f"boot-{int(gateway.boot[5:]) + 1}"),
    "settle": lambda gateway: eventually(lambda: gateway.forwarder.in_flight == 0, poll_s=0.002),
    "redelivered": lambda gateway: redeliver(gateway),
}


def restart(gateway: Gateway, boot: str) -> None:
    gateway.stop()
    gateway.boot = boot
    gateway.start()


def redeliver(gateway: Gateway) -> None:
    """Mosquitto had not got our PUBACK for readings of an earlier run."""
    for reading in [each for each in gateway.sampled if each.run != gateway.run][-2:]:
        arrive(gateway.forwarder, "fieldgate/mast-07/x", encode_reading(reading), Ack(9, reading.seq))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from(sorted(STEPS)), max_size=25))
def test_whatever_happens_each_reading_leaves_with_one_time(steps: list[str]) -> None:
    gateway = Gateway(interval_s=0.01)
    gateway.start()
    try:
        for step in steps:
            STEPS[step](gateway)
            for reading in gateway.cloud.readings():
                if reading.clock == "unsynced":
                    assert reading.boot != gateway.boot or gateway.boot_times.get(gateway.boot, 0) is None
                elif reading.clock == "repaired":
                    assert OFFSET_MS in gateway.boot_times.values()
        gateway.cloud.come_back()
        restart(gateway, "boot-99")
        eventually(lambda: gateway.forwarder.in_flight + gateway.forwarder.outbox.records == 0, poll_s=0.005)
    finally:
        gateway.stop()
    found = gateway.cloud.readings()
    assert {each.identity for each in found} == {each.identity for each in gateway.sampled}
    copies: dict[object, set[tuple[int, str]]] = {}
    for each in found:
        copies.setdefault(each.identity, set()).add((each.time_us, each.clock))
    assert all(len(each) == 1 for each in copies.values()), copies
