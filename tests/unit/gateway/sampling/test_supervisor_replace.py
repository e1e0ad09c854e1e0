"""Samplers that end and begin while the others go on, on a clock that moves in lock-step."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from cloud.wire.reading_records import Reading
from drivers.emulation.stepped_clock import SteppedClock
from drivers.interface import Channel, Measurement
from gateway.config import SensorConfig
from gateway.sampling.readings import RunContext
from gateway.sampling.sampler import Sampler
from gateway.sampling.supervisor import Supervisor
from gateway.sequences import Sequences
from tests.support.servers import eventually

SECOND_NS = 1_000_000_000
START_NS = 1_795_246_500 * SECOND_NS
WIND = Channel("wind_speed", "m/s", "Hz", 0.0, 75.0)


@dataclass(frozen=True)
class Options:
    """Which one it is."""

    number: int


class Cup:
    """Its value is its number; ``claimed`` counts the holders of its pin. ``gate`` makes its read hang."""

    channels = (WIND,)

    def __init__(self, options: Options, claimed: list[int], *, accumulates: bool = True) -> None:
        self.number = options.number
        self.claimed = claimed
        self.accumulates = accumulates
        self.gate = threading.Event()
        self.gate.set()

    def start(self) -> None:
        assert not self.claimed, "the one before has not given its pin back"
        self.claimed.append(self.number)

    def read(self) -> tuple[Measurement, ...]:
        self.gate.wait()
        return (Measurement("wind_speed", float(self.number), 1.0),)

    def stop(self) -> None:
        if self.number in self.claimed:
            self.claimed.remove(self.number)


@dataclass
class Field:
    """A mast in lock-step, and what was read on it."""

    clock: SteppedClock = field(
        default_factory=lambda: SteppedClock(START_NS, None, 100.0, lambda start_ns, end_ns: None)
    )
    readings: defaultdict[str, list[Reading]] = field(default_factory=lambda: defaultdict(list))
    threads: defaultdict[str, list[threading.Thread]] = field(default_factory=lambda: defaultdict(list))
    claimed: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    sequences: Sequences = field(default_factory=Sequences)

    def emit(self, reading: Reading, sensor: str) -> None:
        self.readings[sensor].append(reading)
        self.threads[sensor].append(threading.current_thread())

    def sampler(
        self, name: str, number: int, interval_s: float = 1.0, *, accumulates: bool = True
    ) -> tuple[Sampler, Cup]:
        mast = RunContext("mast-07", "run", self.clock, self.sequences, self.emit, "boot")
        cup = Cup(Options(number), self.claimed[name], accumulates=accumulates)
        return Sampler(
            SensorConfig(name, "hall-anemometer", interval_s, options=Options(number)), cup, mast
        ), cup

    def waits_for(self, sensor: str, count: int) -> None:
        eventually(lambda: len(self.readings[sensor]), until=lambda found: found >= count)

    def times_s(self, sensor: str) -> list[float]:
        return [(each.time_us * 1000 - START_NS) / SECOND_NS for each in self.readings[sensor]]

    def values(self, sensor: str) -> list[float | None]:
        return [each.value for each in self.readings[sensor]]


@contextmanager
def running(field: Field, *samplers: Sampler) -> Iterator[Supervisor]:
    supervisor = Supervisor(samplers, field.clock)
    supervisor.start()
    try:
        yield supervisor
    finally:
        supervisor.stop()


def test_a_successor_goes_on_at_the_border_with_the_next_seq_and_others_keep_their_thread() -> None:
    mast = Field()
    with running(mast, mast.sampler("a", 1)[0], mast.sampler("b", 5, 0.5)[0]) as supervisor:
        mast.waits_for("a", 3)
        supervisor.replace({"a"}, lambda: [mast.sampler("a", 2)[0]])
        mast.waits_for("a", len(mast.readings["a"]) + 3)
    values = mast.values("a")
    assert values == sorted(values, key=lambda value: value or 0)
    assert set(values) == {1.0, 2.0}
    # Time stood still between the two: no period is missing, none is there twice.
    for sensor, step_s in (("a", 1.0), ("b", 0.5)):
        times_s = mast.times_s(sensor)
        assert times_s == [step_s * n for n in range(len(times_s))]
        assert [each.seq for each in mast.readings[sensor]] == list(range(1, len(times_s) + 1))
    assert len(set(mast.threads["b"])) == 1
    turn = values.index(2.0)
    assert len(set(mast.threads["a"][:turn])) == 1
    assert mast.threads["a"][0] is not mast.threads["a"][turn]
    # Another calibration from a definite seq on.
    cals = [each.cal for each in mast.readings["a"]]
    assert cals == [cals[0]] * turn + [cals[turn]] * (len(cals) - turn)
    assert cals[0] != cals[turn]


def test_one_that_goes_stops_and_gives_its_pin_back() -> None:
    mast = Field()
    with running(mast, mast.sampler("a", 1)[0], mast.sampler("b", 5)[0]) as supervisor:
        mast.waits_for("a", 3)
        supervisor.replace({"a"}, list)
        gone = len(mast.readings["a"])
        assert mast.claimed["a"] == []
        mast.waits_for("b", len(mast.readings["b"]) + 3)
        assert len(mast.readings["a"]) == gone
        assert not supervisor.ended


def test_one_that_comes_begins_beside_the_others() -> None:
    mast = Field()
    with running(mast, mast.sampler("b", 5)[0]) as supervisor:
        mast.waits_for("b", 2)
        supervisor.replace((), lambda: [mast.sampler("a", 1)[0]])
        mast.waits_for("a", 3)
    first_s = mast.times_s("a")[0]
    assert first_s >= 2.0
    assert mast.times_s("a") == [first_s + n for n in range(len(mast.times_s("a")))]
    assert len(set(mast.threads["b"])) == 1


@pytest.mark.parametrize("accumulates", [True, False])
def test_a_long_period_is_not_waited_for(accumulates: bool) -> None:
    mast = Field()
    slow, _ = mast.sampler("a", 1, 3600.0, accumulates=accumulates)
    with running(mast, slow, mast.sampler("b", 5)[0]) as supervisor:
        mast.waits_for("b", 3)
        before_ns = mast.clock.now_ns()
        supervisor.replace({"a"}, lambda: [mast.sampler("a", 2, 1.0, accumulates=accumulates)[0]])
        mast.waits_for("a", 1 if accumulates else 2)
        assert mast.clock.now_ns() - before_ns < 600 * SECOND_NS
    assert 2.0 in mast.values("a")


def test_a_driver_that_hangs_is_abandoned_and_its_result_discarded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("gateway.sampling.supervisor._RETIRE_S", 0.1)
    monkeypatch.setattr("gateway.sampling.supervisor._INTERRUPT_S", 0.1)
    mast = Field()
    hanging, cup = mast.sampler("a", 1)
    with running(mast, hanging) as supervisor:
        mast.waits_for("a", 2)
        cup.gate.clear()
        supervisor.replace({"a"}, lambda: [mast.sampler("b", 2)[0]])
        cup.gate.set()
        mast.waits_for("b", 3)
    assert "event=sampler.abandoned sensors=a" in caplog.text
    last_s = mast.times_s("a")[-1]
    assert all(second >= last_s for second in mast.times_s("b"))
    assert mast.sequences.last("a.wind_speed") == len(mast.readings["a"])


def test_a_sampler_that_is_dead_anyway_is_replaced_at_once() -> None:
    mast = Field()
    broken, cup = mast.sampler("a", 1)

    def fail() -> tuple[Measurement, ...]:
        raise RuntimeError("a defect")

    cup.read = fail  # type: ignore[method-assign]
    with running(mast, broken, mast.sampler("b", 5)[0]) as supervisor:
        mast.waits_for("b", 3)
        eventually(lambda: not mast.claimed["a"])
        supervisor.replace({"a"}, lambda: [mast.sampler("a", 2)[0]])
        mast.waits_for("a", 2)
    assert set(mast.values("a")) == {2.0}
