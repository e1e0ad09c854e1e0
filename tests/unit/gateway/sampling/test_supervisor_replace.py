"""Samplers that end and begin while the others go on, on a clock that moves in lock-step."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from cloud.wire.reading_records import Reading
from drivers.interface import Measurement
from gateway.config import SensorConfig
from gateway.sampling.sampler import Sampler
from gateway.sampling.supervisor import Supervisor
from tests.support.servers import eventually
from tests.unit.gateway.sampling import test_hung_drivers as hung_drivers
from tests.unit.gateway.sampling.test_hung_drivers import SECOND_NS, START_NS, NoOptions


@dataclass
class Field(hung_drivers.Field):
    """A mast in lock-step whose sensors have a pin each, and what was read on it by which thread."""

    threads: defaultdict[str, list[threading.Thread]] = field(default_factory=lambda: defaultdict(list))

    def emit(self, reading: Reading, sensor: str) -> None:
        super().emit(reading, sensor)
        self.threads[sensor].append(threading.current_thread())

    def one(self, name: str, interval_s: float = 1.0, *, accumulates: bool = True) -> Sampler:
        """The sensor's next sampler, with a serial number of its own."""
        self.hardware[name].accumulates, self.hardware[name].exclusive = accumulates, True
        serial = str(self.made[name] + 1)
        return self.sampler(
            SensorConfig(name, "hall-anemometer", interval_s, serial=serial, options=NoOptions())
        )

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
    with running(mast, mast.one("a"), mast.one("b", 0.5)) as supervisor:
        mast.waits_for("a", 3)
        supervisor.replace({"a"}, lambda: [mast.one("a")])
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


def test_those_that_go_together_end_within_a_period(monkeypatch: pytest.MonkeyPatch) -> None:
    retire = Sampler.retire

    def slowly(sampler: Sampler, *, at_once: bool = False) -> None:
        retire(sampler, at_once=at_once)
        # A busy machine takes the main thread off its processor.
        threading.Event().wait(0.1)

    monkeypatch.setattr(Sampler, "retire", slowly)
    mast = Field()
    with running(mast, mast.one("a"), mast.one("b")) as supervisor:
        for _ in range(5):
            mast.waits_for("a", len(mast.readings["a"]) + 3)
            supervisor.replace({"a", "b"}, lambda: [mast.one("a"), mast.one("b")])
        mast.waits_for("b", len(mast.readings["b"]) + 3)
    # One may be requested to end before, and the other after, it has begun a period of the same instant.
    for sensor in ("a", "b"):
        times_s = mast.times_s(sensor)
        assert {after - before for before, after in pairwise(times_s)} <= {1.0, 2.0}


def test_one_that_goes_stops_and_gives_its_pin_back() -> None:
    mast = Field()
    with running(mast, mast.one("a"), mast.one("b")) as supervisor:
        mast.waits_for("a", 3)
        supervisor.replace({"a"}, list)
        gone = len(mast.readings["a"])
        assert mast.hardware["a"].holders == []
        mast.waits_for("b", len(mast.readings["b"]) + 3)
        assert len(mast.readings["a"]) == gone
        assert not supervisor.ended


def test_one_that_comes_begins_beside_the_others() -> None:
    mast = Field()
    with running(mast, mast.one("b")) as supervisor:
        mast.waits_for("b", 2)
        supervisor.replace((), lambda: [mast.one("a")])
        mast.waits_for("a", 3)
    first_s = mast.times_s("a")[0]
    assert first_s >= 2.0
    assert mast.times_s("a") == [first_s + n for n in range(len(mast.times_s("a")))]
    assert len(set(mast.threads["b"])) == 1


@pytest.mark.parametrize("accumulates", [True, False])
def test_a_long_period_is_not_waited_for(accumulates: bool) -> None:
    mast = Field()
    slow = mast.one("a", 3600.0, accumulates=accumulates)
    with running(mast, slow, mast.one("b")) as supervisor:
        mast.waits_for("b", 3)
        before_ns = mast.clock.now_ns()
        supervisor.replace({"a"}, lambda: [mast.one("a", 1.0, accumulates=accumulates)])
        mast.waits_for("a", 1 if accumulates else 2)
        assert mast.clock.now_ns() - before_ns < 600 * SECOND_NS
    assert 2.0 in mast.values("a")


def test_a_driver_that_hangs_is_abandoned_and_its_result_discarded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("gateway.sampling.supervisor._RETIRE_S", 0.1)
    monkeypatch.setattr("gateway.sampling.supervisor._INTERRUPT_S", 0.1)
    mast = Field()
    hanging, gate = mast.one("a"), mast.hardware["a"].gate
    with running(mast, hanging) as supervisor:
        mast.waits_for("a", 2)
        gate.clear()
        supervisor.replace({"a"}, lambda: [mast.one("b")])
        gate.set()
        mast.waits_for("b", 3)
    assert "event=sampler.abandoned sensors=a" in caplog.text
    last_s = mast.times_s("a")[-1]
    assert all(second >= last_s for second in mast.times_s("b"))
    assert mast.sequences.last("a.wind_speed") == len(mast.readings["a"])


def test_a_sampler_that_is_dead_anyway_is_replaced_at_once() -> None:
    mast = Field()
    broken = mast.one("a")

    def fail() -> tuple[Measurement, ...]:
        raise RuntimeError("a defect")

    broken._driver.read = fail  # type: ignore[method-assign]
    with running(mast, broken, mast.one("b")) as supervisor:
        mast.waits_for("b", 3)
        eventually(lambda: not mast.hardware["a"].holders)
        supervisor.replace({"a"}, lambda: [mast.one("a")])
        mast.waits_for("a", 2)
    assert set(mast.values("a")) == {2.0}
