"""A sensor that failed is tried again within its period; one that answers late gets its request ahead."""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from cloud.wire.reading_records import Reading
from drivers.interface import ChecksumError, Measurement, ReadError
from drivers.registry import driver_type
from gateway.config import SensorConfig
from gateway.sampling.readings import RunContext
from gateway.sampling.sampler import MOST_RETRIES, Retries, Sampler
from gateway.sampling.supervisor import Supervisor
from tests.support.clocks import SteppingClock
from tests.support.masts import fitted, replayed
from tests.support.sampling import run_of
from tests.support.servers import eventually
from tests.unit.gateway.sampling.test_hung_drivers import Cup, Field
from tests.unit.gateway.sampling.test_sampler import (
    SECOND_NS,
    T0_NS,
    NoOptions,
    ScriptedDriver,
    answer,
    failure,
)

Answers = list[Callable[[], float]]
FAIL = failure(ReadError("timed out"))
BAD_SUM = failure(ChecksumError("bad frame"))


class LateDriver(ScriptedDriver):
    """Answers with what the request before began."""

    def __init__(self, clock: SteppingClock, answers: Answers) -> None:
        super().__init__(clock, answers)
        self.primed_at: list[int] = []
        self.prime_fails = False

    def prime(self) -> None:
        self.primed_at.append(self.clock.time_ns - T0_NS)
        if self.prime_fails:
            raise ReadError("nothing answers")


class Station:
    """One sampler, its readings and what was counted; a retry comes at half its jitter."""

    def __init__(
        self, driver: ScriptedDriver, interval_s: float, spacing_s: float | None = 2.0, jitter: float = 0.5
    ) -> None:
        self.readings: list[Reading] = []
        self.mast = run_of(driver.clock, self.readings, jitter=lambda: jitter)
        config = SensorConfig("cup", "hall-anemometer", interval_s, options=NoOptions())
        self.sampler = Sampler(config, driver, self.mast, retry_after_s=spacing_s)

    def run(self) -> Station:
        self.sampler.run()
        return self

    def emitted(self) -> list[tuple[float, float | None, tuple[str, ...]]]:
        """Time in s, value, reasons of each reading."""
        return [
            ((reading.time_us * 1000 - T0_NS) / SECOND_NS, reading.value, reading.reasons)
            for reading in self.readings
        ]


def clock(seconds: float) -> SteppingClock:
    return SteppingClock(T0_NS, T0_NS + round(seconds * SECOND_NS))


def seconds(times_ns: list[int]) -> list[float]:
    return [time_ns / SECOND_NS for time_ns in times_ns]


def test_a_failed_read_is_tried_again_and_the_reading_keeps_its_time() -> None:
    driver = ScriptedDriver(clock(20), [FAIL, BAD_SUM, answer(3.0), answer(4.0)])
    station = Station(driver, 10.0).run()
    # Two seconds and an eighth of them apart.
    assert seconds(driver.read_at) == [0.0, 2.25, 4.5, 10.0]
    assert station.emitted() == [(0.0, 3.0, ()), (10.0, 4.0, ())]
    assert [reading.seq for reading in station.readings] == [1, 2]
    assert station.mast.retries == {"cup": 2}


def test_a_sensor_that_stays_silent_is_tried_four_times_and_gives_one_reading_a_period() -> None:
    driver = ScriptedDriver(clock(20), [FAIL, FAIL, FAIL, BAD_SUM, *[FAIL] * 4])
    station = Station(driver, 10.0).run()
    assert seconds(driver.read_at) == [0.0, 2.25, 4.5, 6.75, 10.0, 12.25, 14.5, 16.75]
    assert station.emitted() == [(0.0, None, ("CHECKSUM",)), (10.0, None, ("READ_ERROR",))]
    assert station.mast.retries == {"cup": 2 * MOST_RETRIES}


@pytest.mark.parametrize(("interval_s", "spacing_s"), [(2.0, 2.0), (3.0, 2.0), (1.0, None), (1500.0, None)])
def test_without_room_nothing_is_tried_again(interval_s: float, spacing_s: float | None) -> None:
    driver = ScriptedDriver(clock(2 * interval_s), [FAIL, answer(2.0)])
    station = Station(driver, interval_s, spacing_s).run()
    assert seconds(driver.read_at) == [0.0, interval_s]
    assert station.emitted() == [(0.0, None, ("READ_ERROR",)), (interval_s, 2.0, ())]
    assert station.mast.retries == {}


def test_counts_are_never_tried_again() -> None:
    driver = ScriptedDriver(clock(20), [FAIL, answer(2.0)], accumulates=True)
    assert Station(driver, 10.0).run().emitted() == [(0.0, None, ("READ_ERROR",)), (10.0, 2.0, ())]
    assert seconds(driver.read_at) == [10.0, 20.0]


def test_a_sampler_that_is_retired_waits_for_no_retry() -> None:
    driver = ScriptedDriver(clock(40), [])
    station = Station(driver, 10.0)

    def fail_and_retire() -> float:
        station.sampler.retire()
        raise ReadError("timed out")

    driver.answers = iter([fail_and_retire])
    station.run()
    assert station.emitted() == [(0.0, None, ("READ_ERROR",))]
    assert seconds(driver.read_at) == [0.0]


def test_a_clock_that_is_set_ends_the_tries_and_loses_no_reading() -> None:
    set_clock = SteppingClock(T0_NS, T0_NS + 40 * SECOND_NS, sets=[(11 * SECOND_NS, -300 * SECOND_NS, True)])
    driver = ScriptedDriver(set_clock, [FAIL, *[answer(2.0)] * 9])
    station = Station(driver, 10.0)
    station.run()
    assert station.emitted()[0] == (0.0, None, ("READ_ERROR",))
    assert station.emitted()[1][1] == 2.0
    assert station.mast.retries == {}


def test_only_the_last_failure_of_a_period_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    Station(ScriptedDriver(clock(10), [FAIL, answer(1.0)]), 10.0).run()
    assert caplog.messages == []
    Station(ScriptedDriver(clock(20), [*[FAIL] * 5, answer(1.0)]), 10.0).run()
    assert caplog.messages == [
        "event=sensor.silent sensor=cup error=timed out",
        "event=sensor.answers sensor=cup",
    ]


@pytest.mark.parametrize(("takes_s", "tries"), [(0.26, 3), (0.3, 3), (0.45, 2), (0.9, 1)])
def test_a_sensor_that_fails_slowly_is_tried_again_only_as_long_as_its_period_lasts(
    takes_s: float, tries: int
) -> None:
    """A converter that never ends its conversion costs a time-out each time: the next period isn't missed."""
    driver = ScriptedDriver(clock(5), [])

    def time_out() -> float:
        driver.clock.time_ns += round(takes_s * SECOND_NS)
        raise ReadError("never ends its conversion")

    driver.answers = iter([time_out] * 100)
    station = Station(driver, 1.0, 0.1).run()
    assert station.emitted() == [(float(n), None, ("READ_ERROR",)) for n in range(5)]
    assert len(driver.read_at) == 5 * tries


def test_a_late_sensor_gets_a_request_ahead_of_each_reading_but_the_first() -> None:
    driver = LateDriver(clock(30), [answer(1.0), answer(2.0), answer(3.0)])
    station = Station(driver, 10.0).run()
    assert seconds(driver.read_at) == [0.0, 10.0, 20.0]
    assert seconds(driver.primed_at) == [8.0, 18.0]
    assert [time_s for time_s, _, _ in station.emitted()] == [0.0, 10.0, 20.0]


def test_a_sensor_whose_request_ahead_fails_is_read_all_the_same() -> None:
    driver = LateDriver(clock(20), [answer(1.0), answer(2.0)])
    driver.prime_fails = True
    assert [value for _, value, _ in Station(driver, 10.0).run().emitted()] == [1.0, 2.0]


@given(
    interval_ms=st.integers(2000, 20_000),
    late=st.booleans(),
    fails=st.lists(st.booleans(), min_size=40, max_size=40),
    jitter=st.floats(0, 1),
)
def test_requests_are_never_closer_than_the_sensor_allows(
    *, interval_ms: int, late: bool, fails: list[bool], jitter: float
) -> None:
    interval_s = interval_ms / 1000
    # The grid counts from 1970: the first instant is wherever it falls.
    answers: Answers = [FAIL if failing else answer(1.0) for failing in fails]
    kind = LateDriver if late else ScriptedDriver
    driver = kind(clock(8 * interval_s), answers)
    station = Station(driver, interval_s, 2.0, jitter).run()
    requested = sorted([*driver.read_at, *(driver.primed_at if isinstance(driver, LateDriver) else [])])
    assert all(later - earlier >= 2 * SECOND_NS for earlier, later in pairwise(requested))
    times_us = [reading.time_us for reading in station.readings]
    assert times_us == [times_us[0] + at * interval_ms * 1000 for at in range(len(times_us))]
    assert len(times_us) >= 7


@given(st.integers(1, 10_000), st.integers(0, 10_000), st.floats(0, 1))
def test_a_retry_is_between_one_and_one_and_a_quarter_spacings_later(
    period: int, requested: int, jitter: float
) -> None:
    again = Retries(period, 100).again_ns(0, requested, 0, jitter)
    assert (again is None) == (requested + 100 > period - 100)
    if again is not None:
        assert requested + 100 <= again <= min(requested + 125, period - 100)


def test_a_dht11_read_every_ten_seconds_carries_the_row_two_seconds_back(tmp_path: Path) -> None:
    """Through the emulated line and the library's decoder, with the samplers of the gateway."""
    rows = "".join(
        f"2024-01-11T13:00:{second:02}Z,{10 + second / 10:.1f},{40 + second}\n" for second in range(40)
    )
    (tmp_path / "mast.csv").write_text("t,c,rh\n" + rows)
    sensor = fitted("dht", "dht11", pin=4)
    board = replayed(tmp_path / "mast.csv", [sensor], {"dht.temperature": "c", "dht.humidity": "rh"})
    readings: list[Reading] = []
    mast = run_of(board.clock, readings)
    kind = driver_type("dht11")
    config = SensorConfig("dht", "dht11", 10.0, options=sensor.options)
    sampler = Sampler(config, kind.make(board, sensor.options), mast, retry_after_s=kind.retry_after_s)
    supervisor = Supervisor([sampler], board.clock)
    supervisor.start()
    eventually(lambda: supervisor.ended)
    temperatures = [reading.value for reading in readings if reading.quantity == "temperature"]
    assert temperatures == [10.0, 10.8, 11.8, 12.8]
    assert {reading.quality for reading in readings} == {1}


def test_a_start_that_fails_leaves_nothing_to_request_ahead() -> None:
    driver = LateDriver(clock(20), [answer(1.0)] * 2)
    driver.broken_starts = 5
    Station(driver, 10.0).run()
    assert driver.primed_at == []


class LateCup(Cup):
    """Hangs at the request ahead."""

    def read(self) -> tuple[Measurement, ...]:
        return (Measurement("wind_speed", float(self.number), 1.0),)

    def prime(self) -> None:
        self._pass(self.hardware.gate)


class LateField(Field):
    def sampler(self, sensor: SensorConfig) -> Sampler:
        mast = RunContext("mast-07", "run", self.clock, self.sequences, self.emit, "boot")
        self.made[sensor.name] += 1
        cup = LateCup(self.made[sensor.name], self.hardware[sensor.name], self.clock)
        return Sampler(sensor, cup, mast, retry_after_s=2.0)


def test_a_sensor_that_hangs_while_it_is_primed_is_abandoned_and_no_period_is_emitted_twice() -> None:
    mast = LateField()
    mast.hardware["late"].accumulates = False
    with mast.watched(mast.named("late", 10.0)) as supervisor:
        mast.more("late", 3)
        mast.hang("late")
        assert [each.sensor for each in mast.check_for(supervisor, 32)] == ["late"]
        mast.hardware["late"].gate.set()
        mast.more("late", 5)
    mast.assert_dense("late", 10.0)
    assert [each.value for each in mast.readings["late"]].count(None) == 1
