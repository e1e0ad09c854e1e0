"""When a sensor is read, its readings, and those of a sensor that doesn't answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest

from cloud.wire.reading_records import Reading
from drivers.interface import BoardError, Channel, ChecksumError, Measurement, ReadError
from gateway.config import SensorConfig
from gateway.sampling.sampler import Sampler
from gateway.sampling.supervisor import Supervisor
from tests.support.clocks import SteppingClock
from tests.support.sampling import run_of
from tests.support.servers import eventually

SECOND_NS = 1_000_000_000
T0_NS = 1_795_246_500 * SECOND_NS
WIND = Channel("wind_speed", "m/s", "Hz", 0.0, 75.0)


@dataclass(frozen=True)
class NoOptions:
    """A driver without options."""


class ScriptedDriver:
    """Answers each read by calling the next of its answers."""

    def __init__(
        self, clock: SteppingClock, answers: list[Callable[[], float]], *, accumulates: bool = False
    ) -> None:
        self.channels: tuple[Channel, ...] = (WIND,)
        self.accumulates = accumulates
        self.clock = clock
        self.answers = iter(answers)
        self.started_at: list[int] = []
        self.read_at: list[int] = []
        self.stops = 0
        self.broken_starts = 0

    def start(self) -> None:
        if self.broken_starts:
            self.broken_starts -= 1
            raise BoardError("nothing answers at 0x48")
        self.started_at.append(self.clock.time_ns - T0_NS)

    def read(self) -> tuple[Measurement, ...]:
        self.read_at.append(self.clock.time_ns - T0_NS)
        value = next(self.answers)()
        return (Measurement(self.channels[0].quantity, value, 9.0),)

    def stop(self) -> None:
        self.stops += 1


def answer(value: float) -> Callable[[], float]:
    return lambda: value


def failure(error: Exception) -> Callable[[], float]:
    def fail() -> float:
        raise error

    return fail


def sampler(driver: ScriptedDriver, readings: list[Reading], interval_s: float = 1.0) -> Sampler:
    config = SensorConfig("cup", "hall-anemometer", interval_s, options=NoOptions())
    return Sampler(config, driver, run_of(driver.clock, readings))


def run(driver: ScriptedDriver, interval_s: float = 1.0) -> list[Reading]:
    readings: list[Reading] = []
    sampler(driver, readings, interval_s).run()
    return readings


def test_a_point_sensor_is_read_at_the_start_of_its_period() -> None:
    clock = SteppingClock(T0_NS - 400_000_000, T0_NS + 3 * SECOND_NS)
    driver = ScriptedDriver(clock, [answer(1.0), answer(2.0), answer(3.0)])
    readings = run(driver)
    assert driver.read_at == [0, SECOND_NS, 2 * SECOND_NS]
    assert [reading.time_us * 1000 - T0_NS for reading in readings] == driver.read_at
    assert [(reading.value, reading.seq, reading.quality) for reading in readings] == [
        (1.0, 1, 1),
        (2.0, 2, 1),
        (3.0, 3, 1),
    ]
    assert (readings[0].channel, readings[0].period_ms, readings[0].raw_unit) == (
        "cup.wind_speed",
        1000,
        "Hz",
    )


def test_a_counter_starts_on_the_grid_and_is_read_at_the_end_of_its_period() -> None:
    clock = SteppingClock(T0_NS - 400_000_000, T0_NS + 3 * SECOND_NS)
    driver = ScriptedDriver(clock, [answer(1.0), answer(2.0), answer(3.0)], accumulates=True)
    readings = run(driver)
    assert driver.started_at == [0]
    assert driver.read_at == [SECOND_NS, 2 * SECOND_NS, 3 * SECOND_NS]
    assert [reading.time_us * 1000 - T0_NS for reading in readings] == [0, SECOND_NS, 2 * SECOND_NS]


def test_a_period_that_reaches_beyond_the_end_is_not_sampled() -> None:
    driver = ScriptedDriver(SteppingClock(T0_NS, T0_NS + 5 * SECOND_NS), [answer(1.0)] * 9)
    assert len(run(driver, interval_s=2.0)) == 2
    assert driver.stops == 1


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ReadError("timed out"), "READ_ERROR"),
        (OSError(121, "Remote I/O error"), "READ_ERROR"),
        (ChecksumError("bad frame"), "CHECKSUM"),
    ],
)
def test_a_sensor_that_fails_gives_a_missing_value_with_the_reason(error: Exception, reason: str) -> None:
    clock = SteppingClock(T0_NS, T0_NS + 3 * SECOND_NS)
    readings = run(ScriptedDriver(clock, [answer(1.0), failure(error), answer(3.0)]))
    assert [(reading.value, reading.raw, reading.quality, reading.reasons) for reading in readings] == [
        (1.0, 9.0, 1, ()),
        (None, None, 9, (reason,)),
        (3.0, 9.0, 1, ()),
    ]
    assert [reading.seq for reading in readings] == [1, 2, 3]


def test_a_sensor_that_cannot_be_started_is_tried_again_while_its_readings_fail() -> None:
    clock = SteppingClock(T0_NS, T0_NS + 12 * SECOND_NS)
    driver = ScriptedDriver(clock, [answer(1.0)] * 12)
    driver.broken_starts = 1
    readings = run(driver)
    assert [reading.quality for reading in readings] == [9] * 10 + [1, 1]
    assert driver.started_at == [10 * SECOND_NS]


@pytest.mark.parametrize(("set_by_s", "begun"), [(0, [0, 1, 4, 5]), (-3600, [0, 1, -3596, -3595])])
def test_periods_missed_by_a_slow_read_are_counted_and_not_caught_up(
    set_by_s: int, begun: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    """A clock that is set meanwhile hides no lateness."""
    clock = SteppingClock(T0_NS, T0_NS + 6 * SECOND_NS)

    def slow() -> float:
        clock.time_ns += 2_500_000_000
        if set_by_s:
            clock.set_by(set_by_s * SECOND_NS)
        return 2.0

    readings = run(ScriptedDriver(clock, [answer(1.0), slow, answer(3.0), answer(4.0)]))
    assert [(reading.time_us * 1000 - T0_NS) / SECOND_NS for reading in readings] == begun
    assert caplog.messages.count("event=sampler.late sensor=cup missed=2") == 1
    assert [reading.seq for reading in readings] == [1, 2, 3, 4]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_driver_that_gives_no_number_gives_a_missing_value_and_takes_one_seq(value: float) -> None:
    clock = SteppingClock(T0_NS, T0_NS + 3 * SECOND_NS)
    readings = run(ScriptedDriver(clock, [answer(1.0), answer(value), answer(3.0)]))
    assert [(reading.value, reading.seq, reading.quality) for reading in readings] == [
        (1.0, 1, 1),
        (None, 2, 9),
        (3.0, 3, 1),
    ]


HOUR_NS = 3600 * SECOND_NS


@pytest.mark.parametrize("accumulates", [False, True])
@pytest.mark.parametrize("by_ns", [-3 * HOUR_NS, -700_000_000, 700_000_000, 3 * HOUR_NS + 250_000_000])
def test_a_clock_that_is_set_loses_and_doubles_nothing(
    by_ns: int, caplog: pytest.LogCaptureFixture, *, accumulates: bool
) -> None:
    """Set in the middle of the third period: that one keeps its length, the next is on the new grid."""
    clock = SteppingClock(
        T0_NS, T0_NS + 8 * SECOND_NS, synced=False, sets=[(12 * SECOND_NS + SECOND_NS // 2, by_ns, True)]
    )
    driver = ScriptedDriver(clock, list(map(answer, range(9))), accumulates=accumulates)
    readings: list[Reading] = []
    station = sampler(driver, readings)
    station.run()
    assert "event=sampler.late" not in caplog.text
    assert [reading.seq for reading in readings] == list(range(1, len(readings) + 1))
    before, after = readings[:3], readings[3:]
    assert [
        ((reading.time_us * 1000 - T0_NS) // SECOND_NS, reading.clock, reading.boot, reading.mono_ms)
        for reading in before
    ] == [(n, "unsynced", "boot-1", 10_000 + 1000 * n) for n in range(3)]
    assert {(reading.clock, reading.boot, reading.mono_ms) for reading in after} == {("synced", None, None)}
    since_boot = [(reading.time_us * 1000 - T0_NS - by_ns) / 1e9 for reading in after]
    assert all(reading.time_us % 1_000_000 == 0 for reading in after)
    assert since_boot == [since_boot[0] + n for n in range(len(after))]
    # Whole periods up to the end, and less than one without a reading.
    assert len(after) in (4, 5)
    assert 2.5 < since_boot[0] < 4.0
    if accumulates:
        # Each period has its full length, and what was counted between the grids is in none.
        assert [reading.value for reading in readings] == [0, 1, 2, *range(4, 4 + len(after))]
    else:
        assert [reading.value for reading in readings] == list(range(len(readings)))


def test_no_rain_is_lost_when_the_clock_is_set() -> None:
    clock = SteppingClock(
        T0_NS, T0_NS + 8 * SECOND_NS, sets=[(12 * SECOND_NS + SECOND_NS // 2, 700_000_000, True)]
    )
    counted_s = begin_s = clock.monotonic()

    def tips() -> float:
        nonlocal counted_s
        before_s, counted_s = counted_s, clock.monotonic()
        return counted_s - before_s

    driver = ScriptedDriver(clock, [tips] * 9, accumulates=True)
    driver.channels = (Channel("precipitation", "mm", "1", 0.0, 75.0),)
    values = [reading.value or 0.0 for reading in run(driver)]
    # What came between the grids is in the first reading of the new one.
    assert values == pytest.approx([1.0, 1.0, 1.0, 1.3, 1.0, 1.0, 1.0])
    assert sum(values) == pytest.approx(counted_s - begin_s)


def test_an_hourly_sensor_goes_on_with_the_new_clocks_next_hour() -> None:
    """Set back by a day and 20 minutes while it waits: it does not wait for the old hour to come again."""
    by_ns = -(24 * HOUR_NS + 1200 * SECOND_NS)
    start_ns = T0_NS // HOUR_NS * HOUR_NS + SECOND_NS
    clock = SteppingClock(start_ns, start_ns + 3 * HOUR_NS, sets=[(1810 * SECOND_NS, by_ns, True)])
    readings = run(ScriptedDriver(clock, [answer(1.0), answer(2.0)]), interval_s=3600.0)
    # 00:00:01, half an hour later 00:30:01 became 00:10:01 of the day before: the next hour is 01:00.
    assert [reading.time_us * 1000 - start_ns for reading in readings] == [-23 * HOUR_NS - SECOND_NS]


DAY_NS = 86_400 * SECOND_NS
MIDNIGHT_NS = T0_NS // DAY_NS * DAY_NS + DAY_NS


def sampled(clock: SteppingClock, **calibration: Any) -> list[Reading]:
    readings: list[Reading] = []
    config = SensorConfig("cup", "hall-anemometer", options=NoOptions(), **calibration)
    Sampler(config, ScriptedDriver(clock, [answer(5.0)] * 9), run_of(clock, readings)).run()
    return readings


def test_a_calibration_expires_at_midnight_after_its_last_day() -> None:
    clock = SteppingClock(MIDNIGHT_NS - 2 * SECOND_NS, MIDNIGHT_NS + 2 * SECOND_NS)
    readings = sampled(clock, expires=date(2026, 11, 21))
    assert [(reading.value, reading.quality, reading.reasons) for reading in readings] == [
        (5.0, 1, ()),
        (5.0, 1, ()),
        (5.0, 3, ("CALIBRATION_EXPIRED",)),
        (5.0, 3, ("CALIBRATION_EXPIRED",)),
    ]
    assert {reading.extra for reading in readings} == {None}


def test_a_clock_that_is_not_set_expires_nothing_and_readings_carry_the_day() -> None:
    clock = SteppingClock(MIDNIGHT_NS, MIDNIGHT_NS + SECOND_NS, synced=False)
    (reading,) = sampled(clock, expires=date(2026, 11, 20))
    assert (reading.quality, reading.reasons) == (3, ("CLOCK_UNSYNCED",))
    assert reading.extra == {"cal_expires": "2026-11-20"}


def test_a_sampler_that_dies_is_replaced_and_its_numbers_go_on() -> None:
    clock = SteppingClock(T0_NS, T0_NS + 4 * SECOND_NS)
    readings: list[Reading] = []
    now_s = 0.0
    driver = ScriptedDriver(clock, [answer(1.0), failure(ZeroDivisionError()), *map(answer, (3.0, 4.0, 5.0))])
    supervisor = Supervisor([sampler(driver, readings)], clock, monotonic=lambda: now_s)
    supervisor.start()
    eventually(lambda: clock.joined, until=lambda joined: joined == 0)
    assert not supervisor.ended
    supervisor.check()
    assert supervisor.restarts == 0
    now_s = float("inf")
    supervisor.check()
    eventually(lambda: supervisor.ended)
    assert supervisor.restarts == 1
    assert [(reading.value, reading.seq) for reading in readings] == [(1.0, 1), (3.0, 2), (4.0, 3), (5.0, 4)]
    assert clock.joined == 0
