"""One sensor's loop: waits for its periods (``schedule.py``), reads, emits the readings.

A reading's time is the start of the period it stands for. Pulse counters are read at the period's end,
everything else at its start. A failed read has readings too: value null, with the reason; before that, it is
repeated as far as its period has room, which changes no reading's time.

The supervisor's thread watches the calls of the driver (``TimedCall``) and abandons one that hangs. Both
threads agree on the outcome of each call: either its result counts, or it is discarded. The sampler that
replaces this one emits READ_ERROR for the period that hung and all since, so that every period of the grid
has its reading, and continues with a driver of its own.

The log says that a sensor begins to fail, fails in another way, and answers again. One that fails
now and then (a DHT11 has some per cent of damaged frames) would log both all day long: the limit on repeated
lines (``system/logs.py``) counts them.

Times are in nanoseconds of event time. A sensor has a least time between two requests; a period has room for
some, or for none: a DHT11 (2 s) read every 2 s is never read twice, one read every 10 s is.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from cloud.wire.bounds import is_within
from drivers.boards.registry import open_board
from drivers.interface import (
    AnswersLate,
    Board,
    BoardError,
    Channel,
    ChecksumError,
    Compensated,
    CountsPulses,
    DescribesItself,
    DriverError,
    FittedSensor,
    Measurement,
    ReadError,
)
from drivers.registry import driver_type, guarded
from gateway.config import Config, QualityRules, SensorConfig
from gateway.ports import Driver
from gateway.sampling.readings import ReadingFactory, RunContext
from gateway.sampling.schedule import Boundary, Period, Schedule


class CallAbandoned(Exception):
    """The call returned after it was abandoned; its result is discarded and its thread ends."""


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One call of a driver, and the seconds after which it counts as hung."""

    timeout_s: float


class TimedCall:
    """The calls of one driver by one thread, watched by another.

    ``current`` is the call that has not returned yet. ``returning`` is set when an abandoned call returns,
    before the driver is stopped; ``released`` after that. Until then the hardware may still be the old
    driver's.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.current: Call | None = None
        self.abandoned = False
        self.returning = threading.Event()
        self.released = threading.Event()

    @contextmanager
    def call(self, timeout_s: float) -> Iterator[None]:
        """Call the driver in the body. Raises CallAbandoned, whatever the driver raised, once abandoned."""
        with self._lock:
            self.current = Call(timeout_s)
        try:
            yield
        finally:
            with self._lock:
                self.current = None
                abandoned = self.abandoned
            if abandoned:
                self.returning.set()
                raise CallAbandoned

    def abandon(self, call: Call) -> bool:
        """Abandon a call; False where it has returned."""
        with self._lock:
            if self.current is not call:
                return False
            self.abandoned = True
            return True


MOST_RETRIES: Final = 3
_JITTER: Final = 0.25
"""A retry is up to a quarter of the spacing late: a periodic disturbance needn't hit it too."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Retries:
    """The retries that one sensor's period has room for.

    ``spacing_ns`` is the least between the beginnings of two requests, None where a failed read isn't
    repeated. A ``late`` answer is the measurement that the previous request began, so one request is
    made ahead of each reading.
    """

    period_ns: int
    spacing_ns: int | None
    late: bool = False

    def ahead_ns(self) -> int | None:
        """How long before a reading its measurement is begun; None where the previous reading begins it."""
        if not self.late or self.spacing_ns is None or self.period_ns < 2 * self.spacing_ns:
            return None
        return self.spacing_ns

    def again_ns(self, begin_ns: int, requested_ns: int, retries: int, jitter: float) -> int | None:
        """When to repeat a request of ``requested_ns`` in the period from ``begin_ns``; None: no more.

        ``jitter`` is a random number from 0 to 1.
        """
        if self.spacing_ns is None or retries >= MOST_RETRIES:
            return None
        earliest_ns = requested_ns + self.spacing_ns
        # The next request must not come too soon after.
        latest_ns = begin_ns + self.period_ns - (self.ahead_ns() or 0) - self.spacing_ns
        if earliest_ns > latest_ns:
            return None
        return earliest_ns + round(jitter * min(self.spacing_ns * _JITTER, latest_ns - earliest_ns))

    def has_room(self, begin_ns: int, requested_ns: int, again_ns: int, now_ns: int) -> bool:
        """Whether a request at ``again_ns`` that takes as long as the last one would end in the period.

        That one was made at ``requested_ns`` and failed at ``now_ns``. After a sensor's time-out a repeated
        request could make the next period late, and its reading missing.
        """
        end_ns = max(again_ns, now_ns) + now_ns - requested_ns
        return end_ns <= begin_ns + self.period_ns - (self.ahead_ns() or 0)


_RESTART_AFTER_S: Final = 10.0
# The first start on a small Pi imports libraries, one sensor after the other.
_START_TIMEOUT_S: Final = 60.0
# Several intervals, but bounded: an hourly sensor's read doesn't take hours.
_TIMEOUT_PERIODS: Final = 3
_LONGEST_TIMEOUT_S: Final = 30.0


def _is_value(measurement: Measurement) -> bool:
    return all(map(is_within, (measurement.value, measurement.raw, *(measurement.position or ()))))


class Sampler:
    """Reads one sensor until the clock ends; owned by one thread at a time.

    ``longest_read_s`` is the longest that the driver's reads take, ``retry_after_s`` the least time between
    two requests of its sensor. ``trouble`` is the driver's error of the last read, None where it succeeded;
    ``description`` what the sensor reported at its last start.
    """

    def __init__(
        self,
        sensor: SensorConfig,
        driver: Driver,
        context: RunContext,
        longest_read_s: float = 5.0,
        retry_after_s: float | None = None,
    ) -> None:
        self.sensor = sensor
        self._driver = driver
        self._context = context
        period_ns = round(sensor.interval_s * 1e9)
        self._schedule = Schedule(sensor.name, context.clock, period_ns, at_end=driver.accumulates)
        self._readings = ReadingFactory(sensor, driver, context, period_ns)
        self._retries = Retries(
            period_ns,
            None if retry_after_s is None or driver.accumulates else round(retry_after_s * 1e9),
            isinstance(driver, AnswersLate),
        )
        self._adds_up = any(sensor.kind_of(each.quantity) == "accumulated" for each in driver.channels)
        # Asking a protocol takes 10 µs and more.
        self._compensated = isinstance(driver, Compensated)
        self._started = False
        self._start_again_s = float("-inf")
        self._start_error = "the driver that hung may still have the sensor: this one isn't started yet"
        self._failure: str | None = None
        self.trouble: str | None = None
        self._period: Period | None = None
        self._timeout_s = max(longest_read_s, min(_TIMEOUT_PERIODS * sensor.interval_s, _LONGEST_TIMEOUT_S))
        self._hung_period: Period | None = None
        self._hung_calls: tuple[TimedCall, ...] = ()
        self.calls = TimedCall()
        self.description: Mapping[str, str | float | bool] = {}

    @property
    def steps(self) -> int | None:
        """Grows with each wait and each reading. Any thread.

        None while it waits for an instant to come, or for its driver, whose calls the supervisor watches.
        """
        return None if self.calls.current is not None else self._schedule.steps

    def pulses(self) -> int | None:
        """The pulse count since the driver was started; None where it counts none. Any thread."""
        if not isinstance(self._driver, CountsPulses):
            return None
        try:
            return self._driver.pulses()
        except DriverError as error:
            log.debug("event=sensor.pulses_unknown sensor=%s error=%s", self.sensor.name, error)
            return None

    def set_quality(self, quality: Mapping[str, QualityRules]) -> None:
        """Replace the quality rules from the next reading on, a successor's too. Any thread."""
        self.sensor = replace(self.sensor, quality=quality)
        self._readings.set_quality(quality)

    def retire(self, *, at_once: bool = False) -> None:
        """End at the boundary after the current period; don't wait for a long one, nor with ``at_once``.

        Any thread.
        """
        self._schedule.retire(at_once=at_once)

    def take_over(self, before: Sampler, pause_s: float = 0.0) -> None:
        """Continue for another sampler of this sensor, before ``run``.

        If that one was abandoned in a call of its driver, this one emits the periods since. The driver isn't
        started for ``pause_s``, unless the hung call returns before that.
        """
        self._hung_calls = before._hung_calls
        if before.calls.abandoned:
            self._hung_period = before._period
            self._hung_calls += (before.calls,)
            self._start_again_s = self._context.clock.monotonic() + pause_s

    def run(self) -> None:
        """Sample until the clock has no more time. Raises what a driver raises against its contract."""
        try:
            self._sample()
        except CallAbandoned:
            log.warning("event=sampler.returned sensor=%s", self.sensor.name)
        finally:
            self._started = False
            try:
                self._driver.stop()
            finally:
                if self.calls.abandoned:
                    self.calls.released.set()

    def _sample(self) -> None:
        # A first count begins on the grid, not whenever this thread happened to start.
        hung, self._hung_period = self._hung_period, None
        if hung is None:
            boundary = self._schedule.first()
        else:
            boundary = self._schedule.catch_up(hung, lambda period: self._emit(period, "READ_ERROR"))
        period = self._schedule.await_begin(boundary)
        if period is not None:
            self._period = period
            try:
                self._start()
            except (DriverError, OSError) as error:
                # Tried again while its readings have READ_ERROR.
                self._failed(error)
            period = period if self._schedule.covers(period.begin_ns) else None
        self._schedule.moved = False
        while period is not None:
            if self._driver.accumulates and not self._schedule.await_end(period):
                return
            self._emit(period, self._read_with_retries(period))
            period = self._next(period)

    def _next(self, period: Period) -> Period | None:
        """The next period; those that passed while a slow read was running have no readings."""
        following, boundary = None, self._schedule.after(period)
        if self._schedule.covers(boundary.begin_ns):
            self._prime(boundary)
            following = self._schedule.await_begin(boundary)
        self._period = following
        if following is not None and self._schedule.moved:
            self._schedule.moved = False
            if self._driver.accumulates and not self._adds_up:
                # The new grid's first count begins on it; pulses between the grids belong to no period. What
                # is summed up (rain) is in the next one: no sum may lack it.
                try:
                    self._read()
                except (DriverError, OSError) as error:
                    self._failed(error)
        return following

    def _prime(self, boundary: Boundary) -> None:
        """Begin the next period's measurement, where the sensor answers with the previous request's."""
        ahead_ns = self._retries.ahead_ns()
        if ahead_ns is None or not isinstance(self._driver, AnswersLate) or not self._started:
            return
        if not self._schedule.wait(boundary.begin_ns - ahead_ns, boundary.offset_ns):
            return
        # Should it hang, the period before has had its reading.
        self._period = Period(boundary.begin_ns, boundary.offset_ns, self._context.clock.synced)
        try:
            with self.calls.call(self._timeout_s):
                self._driver.prime()
        except (DriverError, OSError) as error:
            # The reading shows the effect.
            log.debug("event=sensor.not_primed sensor=%s error=%s", self.sensor.name, error)

    def _read_with_retries(self, period: Period) -> Mapping[str, Measurement] | str:
        """The measurements by quantity, or the reason why there are none.

        A failed read is repeated as often as the period has room for.
        """
        clock, retries = self._context.clock, 0
        while True:
            offset_ns, jitter = clock.offset_ns(), self._context.jitter()
            requested_ns = clock.now_ns()
            again_ns = self._retries.again_ns(period.begin_ns, requested_ns, retries, jitter)
            try:
                read = self._read()
            except (DriverError, OSError) as failure:
                error = failure
            else:
                self.trouble = None
                return read
            if (
                again_ns is None
                or not self._started
                or not self._retries.has_room(period.begin_ns, requested_ns, again_ns, clock.now_ns())
                or not self._schedule.wait(again_ns, offset_ns)
                or clock.now_ns() < again_ns
            ):
                self._failed(error)
                return "CHECKSUM" if isinstance(error, ChecksumError) else "READ_ERROR"
            log.debug("event=sensor.read_again sensor=%s error=%s", self.sensor.name, error)
            retries += 1
            self._context.retries[self.sensor.name] += 1

    def _read(self) -> Mapping[str, Measurement]:
        """The measurements by quantity. Raises DriverError, OSError."""
        self._reclaim()
        counting = self._started or not self._driver.accumulates
        self._start()
        if not counting:
            raise ReadError("the count has only begun")
        if self._compensated:
            self._context.compensation.apply(self.sensor, self._driver, self._context.clock.monotonic())
        with self.calls.call(self._timeout_s):
            read = self._driver.read()
        if any(calls.returning.is_set() for calls in self._hung_calls):
            raise ReadError("a read that hung has ended, and may have released the sensor meanwhile")
        return {measurement.quantity: measurement for measurement in read}

    def _start(self) -> None:
        if self._started:
            return
        now_s = self._context.clock.monotonic()
        if now_s < self._start_again_s:
            raise ReadError(self._start_error)
        self._start_again_s = now_s + _RESTART_AFTER_S
        try:
            with self.calls.call(max(self._timeout_s, _START_TIMEOUT_S)):
                self._driver.start()
                if isinstance(self._driver, DescribesItself):
                    self.description = self._driver.description()
        except (DriverError, OSError) as error:
            self._start_error = str(error)
            raise
        self._started = True
        self._start_again_s = float("-inf")

    def _reclaim(self) -> None:
        """Start again on hardware that an earlier driver, which hung, has released."""
        returning = [calls for calls in self._hung_calls if calls.returning.is_set()]
        if not returning:
            return
        if not all(calls.released.is_set() for calls in returning):
            raise ReadError("a read that hung has ended, and its driver is being stopped")
        self._hung_calls = tuple(calls for calls in self._hung_calls if calls not in returning)
        self._driver.stop()
        self._started, self._start_again_s = False, float("-inf")

    def _failed(self, error: Exception) -> None:
        self.trouble = str(error)
        # Numbers make no other kind: codes, voltages, seconds.
        kind = re.sub(r"\d+", "0", self.trouble)
        level = logging.DEBUG if kind == self._failure else logging.WARNING
        log.log(level, "event=sensor.silent sensor=%s error=%s", self.sensor.name, error)
        self._failure = kind

    def _emit(self, period: Period, read: Mapping[str, Measurement] | str) -> None:
        answered = not isinstance(read, str)
        for channel in self._driver.channels:
            measured = read if isinstance(read, str) else read.get(channel.quantity, "READ_ERROR")
            if isinstance(measured, Measurement) and not _is_value(measured):
                self._failed(ReadError(f"the sensor reports no value of {channel.quantity}"))
                measured, answered = "READ_ERROR", False
            reading = self._readings.make(channel, period, measured)
            self._context.compensation.store(reading, self._context.clock.monotonic())
            self._context.emit(reading, self.sensor.name)
        if answered and self._failure is not None:
            log.warning("event=sensor.answers sensor=%s", self.sensor.name)
            self._failure = None


class FailedDriver:
    """Stands for a driver whose own code fails where it is made: READ_ERROR for its readings, no crash."""

    accumulates = False

    def __init__(self, channels: tuple[Channel, ...], problem: str) -> None:
        self.channels = channels
        self._problem = problem

    def start(self) -> None:
        """Raises BoardError."""
        raise BoardError(self._problem)

    def read(self) -> tuple[Measurement, ...]:
        """Raises ReadError."""
        raise ReadError(self._problem)

    def stop(self) -> None:
        """Nothing was started."""


def make_driver(sensor: SensorConfig, board: Board) -> Driver:
    """A sensor's driver, or what stands for it where a package's code fails."""
    known = driver_type(sensor.driver)
    try:
        with guarded(sensor.driver):
            return known.make(board, sensor.options)
    except DriverError as error:
        return FailedDriver(sensor.channels, str(error))


def make_sampler(sensor: SensorConfig, board: Board, context: RunContext) -> Sampler:
    """A sampler with a driver of its own."""
    kind = driver_type(sensor.driver)
    return Sampler(sensor, make_driver(sensor, board), context, kind.longest_read_s, kind.retry_after_s)


def open_fitted_board(config: Config) -> Board:
    """The board with its sensors. Raises BoardError."""
    return open_board(config.board.options, fitted_sensors(config), config.base_dir, config.gateway)


def fitted_sensors(config: Config) -> list[FittedSensor]:
    """The config's sensors as the board sees them."""
    return [
        FittedSensor(sensor.name, sensor.driver, sensor.options, sensor.channels, sensor.height_m)
        for sensor in config.sensors
    ]
