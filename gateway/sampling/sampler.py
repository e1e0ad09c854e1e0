"""One sensor's loop: waits for its periods (``period_grid.py``), reads, hands the readings on.

A reading's time is the start of the period it stands for. Pulse counters are read at the period's end,
everything else at its start. A sensor that doesn't answer gives readings too: value null, with the reason;
before, it is asked again as far as its period has room (``retries.py``), which changes no reading's time.

A driver that hangs is given up by the supervisor (``calls``). The sampler that takes its place says
READ_ERROR for the period that hung and all since, so that every period of the grid has its reading, and goes
on with a driver of its own.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from drivers.interface import (
    AnswersLate,
    ChecksumError,
    CountsPulses,
    DescribesItself,
    DriverError,
    Measurement,
    ReadError,
)
from gateway.config import QualityRules, SensorConfig
from gateway.ports import Driver
from gateway.sampling.call_timeout import GivenUp, TimedCall
from gateway.sampling.failure_log import FailureLog
from gateway.sampling.read_retry import Retries
from gateway.sampling.readings import ReadingFactory
from gateway.sampling.run_context import Mast
from gateway.sampling.schedule import Boundary, Period, Schedule

log = logging.getLogger(__name__)

_RESTART_AFTER_S: Final = 10.0
# The first start on a small Pi imports libraries, one sensor after the other.
_START_PATIENCE_S: Final = 60.0
# Several intervals, but nobody waits for an hourly sensor's read for hours.
_PATIENCE_PERIODS: Final = 3
_LONGEST_PATIENCE_S: Final = 30.0


def _is_finite(measurement: Measurement) -> bool:
    position = (number for number in measurement.position or () if number is not None)
    return all(map(math.isfinite, (measurement.value, measurement.raw, *position)))


class Sampler:
    """Reads one sensor until the clock ends; owned by one thread at a time.

    ``longest_read_s`` is the driver's own word on what a read takes at most, ``retry_after_s`` the least
    between two requests of its sensor. ``trouble`` says in the driver's words why the last read gave nothing,
    None where it did.
    """

    def __init__(
        self,
        sensor: SensorConfig,
        driver: Driver,
        mast: Mast,
        longest_read_s: float = 5.0,
        retry_after_s: float | None = None,
    ) -> None:
        self.sensor = sensor
        self._driver = driver
        self._mast = mast
        period_ns = round(sensor.interval_s * 1e9)
        self._grid = Schedule(sensor.name, mast.clock, period_ns, at_end=driver.accumulates)
        self._readings = ReadingFactory(sensor, driver, mast, period_ns)
        self._retries = Retries(
            period_ns,
            None if retry_after_s is None or driver.accumulates else round(retry_after_s * 1e9),
            isinstance(driver, AnswersLate),
        )
        self._started = False
        self._start_again_s = float("-inf")
        self._start_trouble = "the driver that hung may still have the sensor: this one isn't started yet"
        self._complaints = FailureLog(sensor.name)
        self.trouble: str | None = None
        self._untold: Exception | None = None
        self._under_way: Period | None = None
        self._patience_s = max(
            longest_read_s, min(_PATIENCE_PERIODS * sensor.interval_s, _LONGEST_PATIENCE_S)
        )
        self._hung: Period | None = None
        self._hung_calls: tuple[TimedCall, ...] = ()
        self.calls = TimedCall()
        self.said: Mapping[str, str | float | bool] = {}
        """What the sensor told of itself when it was last started."""

    @property
    def steps(self) -> int | None:
        """Grows with each wait and each reading; any thread may ask.

        None while it waits for an instant to come, or for its driver: that one the supervisor watches.
        """
        return None if self.calls.under_way is not None else self._grid.steps

    @property
    def missed(self) -> int:
        """How many periods passed while a slow read was under way: not caught up, but counted."""
        return self._grid.missed

    def pulses(self) -> int | None:
        """How many pulses have come since the driver was started; None where it counts none. Any thread."""
        if not isinstance(self._driver, CountsPulses):
            return None
        try:
            return self._driver.pulses()
        except DriverError as error:
            log.debug("event=sensor.pulses_unknown sensor=%s error=%s", self.sensor.name, error)
            return None

    def judge_by(self, quality: Mapping[str, QualityRules]) -> None:
        """Let other rules hold from the next reading on, a successor's too; any thread may ask."""
        self.sensor = replace(self.sensor, quality=quality)
        self._readings.judge_by(quality)

    def retire(self, *, at_once: bool = False) -> None:
        """End at the border of the period under way; any thread may ask.

        What is counted over a long period isn't waited for, nor anything with ``at_once``.
        """
        self._grid.retire(at_once=at_once)

    def succeed(self, before: Sampler, pause_s: float = 0.0) -> None:
        """Take the place of another sampler of this sensor, before ``run``.

        If it was given up in a call of its driver, the periods since are this one's to account for. The
        driver isn't started for ``pause_s``, unless the hung call comes back before that.
        """
        self._hung_calls = before._hung_calls
        if before.calls.given_up:
            self._hung = before._under_way
            self._hung_calls += (before.calls,)
            self._start_again_s = self._mast.clock.monotonic() + pause_s

    def run(self) -> None:
        """Sample until the clock has no more time. Raises what a driver raises against its contract."""
        try:
            self._sample()
        except GivenUp:
            log.warning("event=sampler.returned sensor=%s", self.sensor.name)
        finally:
            self._started = False
            try:
                self._driver.stop()
            finally:
                if self.calls.given_up:
                    self.calls.released.set()

    def _sample(self) -> None:
        # A first count begins on the grid, not whenever this thread happened to start.
        hung, self._hung = self._hung, None
        if hung is None:
            border = self._grid.first()
        else:
            border = self._grid.catch_up(hung, lambda period: self._emit(period, "READ_ERROR"))
        period = self._grid.await_begin(border)
        if period is not None:
            self._under_way = period
            self._start_now()
            period = period if self._grid.covers(period.begin_ns) else None
        self._grid.moved = False
        while period is not None:
            if self._driver.accumulates and not self._grid.await_end(period):
                return
            self._emit(period, self._read_again(period))
            period = self._next(period)

    def _next(self, period: Period) -> Period | None:
        """The next period; those that passed while a slow read was under way are counted, not caught up."""
        following, border = None, self._grid.after(period)
        if self._grid.covers(border.begin_ns):
            self._begin_ahead(border)
            following = self._grid.await_begin(border)
        self._under_way = following
        if following is not None and self._grid.moved:
            self._grid.moved = False
            if self._driver.accumulates:
                # The new grid's first count begins on it; what lies between the grids belongs to no period.
                self._read()
        return following

    def _begin_ahead(self, border: Boundary) -> None:
        """Begin the next period's measurement, where the sensor answers with what was begun before."""
        ahead_ns = self._retries.ahead_ns()
        if ahead_ns is None or not isinstance(self._driver, AnswersLate) or not self._started:
            return
        if not self._grid.wait(border.begin_ns - ahead_ns, border.offset_ns):
            return
        # Should it hang, the period before has had its reading.
        self._under_way = Period(border.begin_ns, border.offset_ns, self._mast.clock.synced)
        try:
            with self.calls.call(self._patience_s):
                self._driver.prime()
        except (DriverError, OSError) as error:
            # What it costs shows in the reading.
            log.debug("event=sensor.not_primed sensor=%s error=%s", self.sensor.name, error)

    def _read_again(self, period: Period) -> Mapping[str, Measurement] | str:
        """What ``_read`` gives, tried again as often as the period has room for."""
        clock, retries = self._mast.clock, 0
        while True:
            offset_ns, jitter = clock.offset_ns(), self._mast.jitter()
            asked_ns = clock.now_ns()
            again_ns = self._retries.again_ns(period.begin_ns, asked_ns, retries, jitter)
            read = self._read(last=again_ns is None)
            if again_ns is None or not isinstance(read, str):
                return read
            if (
                not self._started
                or not self._retries.has_room(period.begin_ns, asked_ns, again_ns, clock.now_ns())
                or not self._grid.wait(again_ns, offset_ns)
                or clock.now_ns() < again_ns
            ):
                self._tell_untold()
                return read
            retries += 1
            self._mast.retries[self.sensor.name] += 1

    def _read(self, *, last: bool = True) -> Mapping[str, Measurement] | str:
        """The measurements by quantity, or the reason why there are none: news where nobody asks again."""
        try:
            self._take_back()
            counting = self._started or not self._driver.accumulates
            self._start()
            if not counting:
                raise ReadError("the count has only begun")
            self._mast.feeds.tell(self.sensor, self._driver, self._mast.clock.monotonic())
            with self.calls.call(self._patience_s):
                read = self._driver.read()
            if any(calls.returning.is_set() for calls in self._hung_calls):
                raise ReadError("a read that hung has ended, and may have let go of the sensor meanwhile")
            measurements = {measurement.quantity: measurement for measurement in read}
        except ChecksumError as error:
            self._failed(error, news=last)
            return "CHECKSUM"
        except (DriverError, OSError) as error:
            self._failed(error, news=last)
            return "READ_ERROR"
        self.trouble = None
        return measurements

    def _start(self) -> None:
        if self._started:
            return
        now_s = self._mast.clock.monotonic()
        if now_s < self._start_again_s:
            raise ReadError(self._start_trouble)
        self._start_again_s = now_s + _RESTART_AFTER_S
        try:
            with self.calls.call(max(self._patience_s, _START_PATIENCE_S)):
                self._driver.start()
                if isinstance(self._driver, DescribesItself):
                    self.said = self._driver.description()
        except (DriverError, OSError) as error:
            self._start_trouble = str(error)
            raise
        self._started = True
        self._start_again_s = float("-inf")

    def _take_back(self) -> None:
        """Start again on hardware that an earlier driver, which hung, has let go of."""
        returning = [calls for calls in self._hung_calls if calls.returning.is_set()]
        if not returning:
            return
        if not all(calls.released.is_set() for calls in returning):
            raise ReadError("a read that hung has ended, and its driver is being stopped")
        self._hung_calls = tuple(calls for calls in self._hung_calls if calls not in returning)
        self._driver.stop()
        self._started, self._start_again_s = False, float("-inf")

    def _start_now(self) -> None:
        """Start the driver; one that won't is tried again while its readings say READ_ERROR."""
        try:
            self._start()
        except (DriverError, OSError) as error:
            self._failed(error)

    def _failed(self, error: Exception, *, news: bool = True) -> None:
        self.trouble = str(error)
        self._untold = None if news else error
        if news:
            self._complaints.failed(error, self._mast.clock.monotonic())
        else:
            log.debug("event=sensor.asked_again sensor=%s error=%s", self.sensor.name, error)

    def _tell_untold(self) -> None:
        """The period's last failure was meant to be followed by another try, and isn't."""
        untold, self._untold = self._untold, None
        if untold is not None:
            self._complaints.failed(untold, self._mast.clock.monotonic())

    def _emit(self, period: Period, read: Mapping[str, Measurement] | str) -> None:
        answered = not isinstance(read, str)
        for channel in self._driver.channels:
            measured = read if isinstance(read, str) else read.get(channel.quantity, "READ_ERROR")
            if isinstance(measured, Measurement) and not _is_finite(measured):
                self._failed(ReadError(f"{channel.quantity} is not a finite number"))
                measured, answered = "READ_ERROR", False
            reading = self._readings.make(channel, period, measured)
            self._mast.feeds.note(reading, self._mast.clock.monotonic())
            self._mast.emit(reading, self.sensor.name)
        if answered:
            self._complaints.answered()
