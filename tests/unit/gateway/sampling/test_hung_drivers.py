"""Drivers that really hang: the others go on, every period has its reading, late answers are thrown away."""

from __future__ import annotations

import math
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from cloud.wire.reading_records import Reading
from drivers.emulation.stepped_clock import SteppedClock
from drivers.interface import BoardError, Channel, Clock, Measurement
from gateway.config import SensorConfig
from gateway.sampling.readings import RunContext
from gateway.sampling.sampler import Sampler
from gateway.sampling.supervisor import MOST_ABANDONED, AbandonedThread, Supervisor
from gateway.sequences import Sequences
from tests.support.clocks import SteppingClock
from tests.support.servers import eventually

SECOND_NS = 1_000_000_000
START_NS = 1_795_246_500 * SECOND_NS
WIND = Channel("wind_speed", "m/s", "Hz", 0.0, 75.0)


@dataclass(frozen=True)
class NoOptions:
    """A driver without options."""


@dataclass
class Hardware:
    """What the drivers of one sensor share: who holds it, and a gate that a read waits at when it is shut.

    It is shut by a test, or by the first read that comes at a time.
    """

    accumulates: bool = True
    exclusive: bool = False
    gate: threading.Event = field(default_factory=threading.Event)
    start_gate: threading.Event = field(default_factory=threading.Event)
    holders: list[object] = field(default_factory=list)
    starts: int = 0
    stops: int = 0
    waiting: int = 0
    shuts_at_ns: float = math.inf

    def __post_init__(self) -> None:
        self.gate.set()
        self.start_gate.set()


class Cup:
    """Its value is its own number, counted from 1 for each sensor."""

    channels = (WIND,)

    def __init__(self, number: int, hardware: Hardware, clock: Clock) -> None:
        self.number, self.hardware, self.clock = number, hardware, clock
        self.is_stuck = False
        self.accumulates = hardware.accumulates

    def start(self) -> None:
        self.hardware.starts += 1
        self._pass(self.hardware.start_gate)
        if self.hardware.exclusive and self.hardware.holders:
            raise BoardError("the pin is taken")
        self.hardware.holders.append(self)

    def read(self) -> tuple[Measurement, ...]:
        if self.clock.now_ns() >= self.hardware.shuts_at_ns:
            self.hardware.shuts_at_ns = math.inf
            self.hardware.gate.clear()
        self._pass(self.hardware.gate)
        return (Measurement("wind_speed", float(self.number), 1.0),)

    def stop(self) -> None:
        if self in self.hardware.holders:
            self.hardware.holders.remove(self)
            self.hardware.stops += 1

    def _pass(self, gate: threading.Event) -> None:
        # Only who counts waits: a gate that is shut in between lets this one through.
        if not gate.is_set():
            self.hardware.waiting += 1
            self.is_stuck = True
            gate.wait()
            self.is_stuck = False


@dataclass
class Field:
    """A mast, and what was read on it."""

    clock: Clock = field(
        default_factory=lambda: SteppedClock(START_NS, None, 50.0, lambda start_ns, end_ns: None)
    )
    readings: defaultdict[str, list[Reading]] = field(default_factory=lambda: defaultdict(list))
    hardware: defaultdict[str, Hardware] = field(default_factory=lambda: defaultdict(Hardware))
    sequences: Sequences = field(default_factory=Sequences)
    now_s: float = 0.0
    made: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    newest: dict[str, tuple[Sampler, Cup]] = field(default_factory=dict)
    to_hang: tuple[str, ...] = ()

    def emit(self, reading: Reading, sensor: str) -> None:
        self.readings[sensor].append(reading)
        # Time stands still while a sampler works, and while one hangs: so they all hang at one instant.
        for name in self.to_hang:
            self.hardware[name].shuts_at_ns = self.clock.now_ns() + 1
        self.to_hang = ()

    def sampler(self, sensor: SensorConfig) -> Sampler:
        mast = RunContext("mast-07", "run", self.clock, self.sequences, self.emit, "boot")
        self.made[sensor.name] += 1
        cup = Cup(self.made[sensor.name], self.hardware[sensor.name], self.clock)
        sampler = Sampler(sensor, cup, mast)
        self.newest[sensor.name] = sampler, cup
        return sampler

    def named(self, name: str, interval_s: float = 1.0) -> Sampler:
        return self.sampler(SensorConfig(name, "hall-anemometer", interval_s, options=NoOptions()))

    @contextmanager
    def watched(self, *samplers: Sampler) -> Iterator[Supervisor]:
        supervisor = Supervisor(samplers, self.clock, lambda: self.now_s, self.sampler)
        supervisor.start()
        try:
            yield supervisor
        finally:
            for hardware in self.hardware.values():
                hardware.gate.set()
                hardware.start_gate.set()
            supervisor.stop()

    def hang(self, name: str, gate: str = "gate") -> None:
        """Let the sensor hang, and wait until it does."""
        hardware = self.hardware[name]
        before = hardware.waiting
        getattr(hardware, gate).clear()
        eventually(lambda: hardware.waiting > before)

    def check_for(self, supervisor: Supervisor, seconds: float) -> list[AbandonedThread]:
        """The main loop's ticks for a while, in which no call lasts but those that hang."""
        abandoned = []
        for _ in range(round(seconds)):
            eventually(self._nobody_works)
            self.now_s += 1.0
            abandoned += supervisor.check()
        return abandoned

    def _nobody_works(self) -> bool:
        return all(
            sampler.calls.current is None or cup.is_stuck for sampler, cup in list(self.newest.values())
        )

    def until(self, name: str, what: Callable[[list[Reading]], object]) -> None:
        eventually(lambda: what(self.readings[name]))

    def more(self, name: str, count: int) -> None:
        before = len(self.readings[name])
        self.until(name, lambda readings: len(readings) >= before + count)

    def assert_dense(self, name: str, interval_s: float = 1.0) -> None:
        """Each period of the grid once, in order, numbered from 1."""
        readings = self.readings[name]
        step_us = round(interval_s * 1e6)
        assert [each.seq for each in readings] == list(range(1, len(readings) + 1))
        first_us = readings[0].time_us
        assert [each.time_us for each in readings] == [first_us + n * step_us for n in range(len(readings))]


def missing(reading: Reading) -> bool:
    assert (reading.quality == 9) == (reading.value is None)
    assert reading.value is not None or reading.reasons == ("READ_ERROR",)
    return reading.value is None


@pytest.mark.parametrize("accumulates", [True, False])
def test_a_hung_read_is_abandoned_and_every_period_has_one_reading(
    accumulates: bool, caplog: pytest.LogCaptureFixture
) -> None:
    mast = Field()
    mast.hardware["hung"].accumulates = accumulates
    with mast.watched(mast.named("hung"), mast.named("fine", 0.5)) as supervisor:
        mast.more("hung", 3)
        mast.hang("hung")
        assert mast.check_for(supervisor, 5) == []
        stood_at_ns = mast.clock.now_ns()
        assert mast.check_for(supervisor, 2) == [AbandonedThread("hung", 6.0, 1)]
        # Time went on for the others; the second driver hangs at once, the supervisor isn't called.
        eventually(lambda: mast.hardware["hung"].waiting == 2)
        assert mast.clock.now_ns() - stood_at_ns <= 2 * SECOND_NS
        assert mast.check_for(supervisor, 7) == [AbandonedThread("hung", 6.0, 2)]
        # The third one is tried after half a minute of the mast's time.
        mast.until("hung", lambda readings: sum(map(missing, readings)) >= 15)
        assert (mast.hardware["hung"].starts, supervisor.hung) == (2, ("hung",))
        assert not supervisor.needs_new_process
        # The third hangs too, and without the supervisor, time would stand still.
        mast.more("fine", 4)
    mast.assert_dense("hung")
    mast.assert_dense("fine", 0.5)
    assert not any(map(missing, mast.readings["fine"]))
    values = [each.value for each in mast.readings["hung"]]
    # What hung goes on at the end, and by then there may be a third.
    assert set(values) <= {1.0, None, 2.0, 3.0}
    assert caplog.text.count("event=sampler.abandoned sensor=hung") == 2


def test_a_late_answer_is_thrown_away_and_its_driver_takes_nothing_from_the_next_one() -> None:
    mast = Field()
    cup = mast.hardware["hung"]
    with mast.watched(mast.named("hung"), mast.named("fine")) as supervisor:
        mast.more("hung", 3)
        mast.hang("hung")
        mast.check_for(supervisor, 7)
        assert supervisor.hung == ("hung",)
        eventually(lambda: cup.waiting == 2)
        late = len(mast.readings["hung"])
        cup.gate.set()
        eventually(lambda: not supervisor.hung)
        mast.until("hung", lambda readings: readings[-1].value == 2.0)
        mast.more("hung", 5)
    mast.assert_dense("hung")
    after = "".join("-" if each.value is None else f"{each.value:g}" for each in mast.readings["hung"][late:])
    # The second driver may answer before the first one has come back. Then it starts again, as it is unknown
    # what the first one took from it.
    assert re.fullmatch("2*-+2+", after)
    assert cup.starts == 3


def test_a_pin_that_the_hung_driver_holds_comes_back_with_it() -> None:
    mast = Field()
    cup = mast.hardware["hung"]
    cup.exclusive = True
    with mast.watched(mast.named("hung"), mast.named("fine")) as supervisor:
        mast.more("hung", 2)
        mast.hang("hung")
        mast.check_for(supervisor, 7)
        # The pin is taken: tried again every ten seconds.
        mast.more("hung", 25)
        starts = cup.starts
        assert 3 <= starts <= 3 + len(mast.readings["hung"]) / 10
        assert mast.check_for(supervisor, 100) == []
        cup.gate.set()
        mast.until("hung", lambda readings: readings[-1].value == 2.0)
    mast.assert_dense("hung")


def test_a_hung_start_is_abandoned_later_than_a_read() -> None:
    mast = Field()
    mast.hardware["hung"].start_gate.clear()
    with mast.watched(mast.named("hung"), mast.named("fine")) as supervisor:
        eventually(lambda: mast.hardware["hung"].waiting == 1)
        assert mast.check_for(supervisor, 60) == []
        assert [each.sensor for each in mast.check_for(supervisor, 2)] == ["hung"]
        mast.hardware["hung"].start_gate.set()
        mast.until("hung", lambda readings: readings and readings[-1].value == 2.0)
    mast.assert_dense("hung")
    assert mast.readings["hung"][0].value is None


def test_after_three_no_more_drivers_are_started_and_a_new_process_is_needed() -> None:
    mast = Field()
    names = ["a", "b", "c", "d"]
    with mast.watched(*map(mast.named, names), mast.named("fine")) as supervisor:
        mast.more("fine", 2)
        mast.to_hang = tuple(names)
        eventually(lambda: [mast.hardware[name].waiting for name in names] == [1, 1, 1, 1])
        abandoned = mast.check_for(supervisor, 7)
        assert [each.total for each in abandoned] == [1, 2, 3, 4]
        assert supervisor.abandoned == 4 > MOST_ABANDONED
        assert supervisor.hung == ("a", "b", "c", "d")
        needed = supervisor.needs_new_process
        eventually(lambda: [mast.hardware[name].waiting for name in names] == [2, 2, 1, 1])
        assert [each.total for each in mast.check_for(supervisor, 7)] == [5, 6]
        mast.more("d", 50)
        # The first two were tried at once, the others never.
        assert [mast.hardware[name].starts for name in names] == [2, 2, 1, 1]
        assert all(missing(each) for each in mast.readings["d"][-40:])
        # What comes back by itself is taken back, and needs no new process.
        for name in names:
            mast.hardware[name].gate.set()
        mast.until("d", lambda readings: readings[-1].value == 2.0)
        assert (needed, supervisor.needs_new_process) == (True, False)
    for name in (*names, "fine"):
        mast.assert_dense(name)


def test_one_that_hangs_for_ten_minutes_needs_a_new_process_too() -> None:
    mast = Field()
    mast.hardware["hung"].exclusive = True
    with mast.watched(mast.named("hung")) as supervisor:
        mast.more("hung", 1)
        mast.hang("hung")
        mast.check_for(supervisor, 600)
        before = (supervisor.abandoned, supervisor.needs_new_process)
        mast.check_for(supervisor, 10)
        after = (supervisor.abandoned, supervisor.needs_new_process)
        assert (before, after) == ((1, False), (1, True))


def test_a_process_that_was_stopped_for_an_hour_blames_no_driver() -> None:
    mast = Field()
    with mast.watched(mast.named("slow")) as supervisor:
        mast.more("slow", 1)
        mast.hang("slow")
        mast.check_for(supervisor, 2)
        mast.now_s += 3600
        assert supervisor.check() == []
        mast.hardware["slow"].gate.set()
        mast.more("slow", 2)
        assert mast.check_for(supervisor, 10) == []


def test_calls_that_are_slow_again_and_again_are_not_one_that_hangs() -> None:
    mast = Field()
    with mast.watched(mast.named("slow")) as supervisor:
        for _ in range(4):
            mast.hang("slow")
            assert mast.check_for(supervisor, 4) == []
            mast.hardware["slow"].gate.set()
            mast.more("slow", 1)


class AbandonedInRead(Cup):
    """Is given up in its first read, lasts 5.3 s more, in which the clock is set; then it answers."""

    def __init__(self, hardware: Hardware, clock: SteppingClock, set_by_ns: int) -> None:
        super().__init__(1, hardware, clock)
        self.stepping, self.set_by_ns = clock, set_by_ns
        self.sampler: Sampler | None = None

    def read(self) -> tuple[Measurement, ...]:
        assert self.sampler is not None
        call = self.sampler.calls.current
        assert call is not None
        assert self.sampler.calls.abandon(call)
        self.stepping.time_ns += 5 * SECOND_NS + 300_000_000
        self.stepping.set_by(self.set_by_ns)
        return super().read()


@pytest.mark.parametrize("accumulates", [True, False])
@pytest.mark.parametrize("by_ns", [0, 3600 * SECOND_NS + 250_000_000, -1800 * SECOND_NS])
def test_a_clock_that_is_set_while_a_driver_hangs(by_ns: int, accumulates: bool) -> None:
    """The hung periods are emitted by the old clock, the next ones are on the new grid."""
    clock = SteppingClock(START_NS, START_NS + 12 * SECOND_NS)
    mast = Field(clock)
    hardware = mast.hardware["hung"]
    hardware.accumulates = accumulates
    old_driver = AbandonedInRead(hardware, clock, by_ns)
    sensor = SensorConfig("hung", "hall-anemometer", options=NoOptions())
    old = Sampler(sensor, old_driver, RunContext("mast-07", "run", clock, mast.sequences, mast.emit, "boot"))
    old_driver.sampler = old
    old.run()
    assert mast.readings["hung"] == []
    new = mast.sampler(sensor)
    new.take_over(old)
    new.run()
    readings = mast.readings["hung"]
    hung = 7 if accumulates else 6
    begun = [(each.time_us * 1000 - START_NS) / SECOND_NS for each in readings]
    assert begun[:hung] == list(range(hung))
    assert all(map(missing, readings[:hung]))
    assert all(each.time_us % 1_000_000 == 0 for each in readings)
    after = [second - by_ns / SECOND_NS for second in begun[hung:]]
    assert after == [after[0] + n for n in range(len(after))]
    abandoned_s = 6.3 if accumulates else 5.3
    assert abandoned_s <= after[0] < abandoned_s + 1
    assert len(after) >= 4
    assert [each.seq for each in readings] == list(range(1, len(readings) + 1))


def test_a_reload_with_another_interval_while_a_driver_hangs_goes_on_on_the_new_grid() -> None:
    clock = SteppingClock(START_NS + SECOND_NS, START_NS + 22 * SECOND_NS)
    mast = Field(clock)
    mast.hardware["hung"].accumulates = False
    old_driver = AbandonedInRead(mast.hardware["hung"], clock, 0)
    sensor = SensorConfig("hung", "hall-anemometer", options=NoOptions())
    old = Sampler(sensor, old_driver, RunContext("mast-07", "run", clock, mast.sequences, mast.emit, "boot"))
    old_driver.sampler = old
    old.run()
    new = mast.named("hung", 4.0)
    new.take_over(old)
    new.run()
    abandoned = [(each.time_us * 1000 - START_NS) / SECOND_NS for each in mast.readings["hung"]]
    assert abandoned == [4.0, 8.0, 12.0, 16.0]
    assert [missing(each) for each in mast.readings["hung"]] == [True, False, False, False]
    assert [each.seq for each in mast.readings["hung"]] == [1, 2, 3, 4]


class FreedField(Field):
    """The pins that are taken are free once three periods are over."""

    def emit(self, reading: Reading, sensor: str) -> None:
        super().emit(reading, sensor)
        if reading.seq == 3:
            self.hardware[sensor].holders.clear()


def test_the_counts_first_reading_after_a_late_start_is_no_calm() -> None:
    """A cup whose pin was taken counts from its start on: what it has counted in no time is no wind speed."""
    mast = FreedField()
    cup = mast.hardware["late"]
    cup.exclusive = True
    cup.holders.append(object())
    with mast.watched(mast.named("late")):
        mast.until("late", lambda readings: readings and readings[-1].value is not None)
    starts: list[Any] = [each.value for each in mast.readings["late"]]
    # Tried again at the end of the tenth period, read at the end of the eleventh.
    assert starts[:11] == [*[None] * 10, 1.0]
