"""One sensor's loop: waits for its instants on the wall-clock grid, reads, flags, hands the readings on.

A reading's time is the start of the period it stands for. Pulse counters are read at the period's end,
everything else at its start. A sensor that doesn't answer gives readings too: value null, with the reason;
before, it is asked again as far as its period has room (``retries.py``), which changes no reading's time.

A driver that hangs is given up by the supervisor (``calls``). The sampler that takes its place says
READ_ERROR for the period that hung and all since, so that every period of the grid has its reading, and goes
on with a driver of its own.

Lengths and lateness are measured in time since boot, so a clock that is set loses and doubles nothing: the
period under way keeps its length and its beginning by the old clock, the next begins on the new grid.
"""

from __future__ import annotations

import logging
import math
import random
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from cloud.schema import CLOCK_UNSYNCED, MISSING, SUSPECT, SYNCED, UNSYNCED, Reading
from drivers.interface import (
    AnswersLate,
    Channel,
    ChecksumError,
    CountsPulses,
    DescribesItself,
    DriverError,
    Measurement,
    ReadError,
)
from gateway.calibration import configured, expiry_reasons, in_range, unjudged_expiry
from gateway.clock import clock_was_set
from gateway.complaints import Complaints
from gateway.config import QualityRules, SensorConfig
from gateway.driver_calls import DriverCalls, GivenUp
from gateway.feeds import Feeds
from gateway.identity import Sequences
from gateway.ports import Clock, Driver
from gateway.quality.judge import Judge
from gateway.quality.mates import Mates
from gateway.retries import Retries

log = logging.getLogger(__name__)

_RESTART_AFTER_S: Final = 10.0
# The first start on a small Pi imports libraries, one sensor after the other.
_START_PATIENCE_S: Final = 60.0
# Several intervals, but nobody waits for an hourly sensor's read for hours.
_PATIENCE_PERIODS: Final = 3
_LONGEST_PATIENCE_S: Final = 30.0
# A retired sampler ends its count of pulses where that takes no longer than this.
_LONGEST_LAST_PERIOD_NS: Final = 10_000_000_000


@dataclass(frozen=True, slots=True)
class Mast:
    """What all samplers of one run share. ``emit`` takes a reading and its sensor's name; it may block.

    ``boot`` is the kernel's id of this boot; ``mates`` is what its channels know of one another; ``jitter``
    gives random numbers from 0 to 1; ``retries`` counts, by sensor, what was asked again.
    ``boot`` is the kernel's id of this boot; ``mates`` is what its channels know of one another, ``feeds``
    what drivers are told of others' readings.
    """

    gateway: str
    run: str
    clock: Clock
    sequences: Sequences
    emit: Callable[[Reading, str], None]
    boot: str
    mates: Mates = field(default_factory=Mates)
    jitter: Callable[[], float] = random.random
    retries: Counter[str] = field(default_factory=Counter)
    feeds: Feeds = field(default_factory=Feeds)


@dataclass(frozen=True, slots=True)
class _Period:
    """One period, and the clock as it was when the period began: it may be set before the reading is made."""

    begin_ns: int
    offset_ns: int
    synced: bool

    @property
    def since_boot_ns(self) -> int:
        """Nanoseconds from boot to the period's beginning."""
        return self.begin_ns - self.offset_ns

    @property
    def mono_ms(self) -> int:
        """Milliseconds from boot to the period's beginning."""
        return max(round(self.since_boot_ns / 1e6), 0)


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
        self._period_ns = round(sensor.interval_s * 1e9)
        self._retries = Retries(
            self._period_ns,
            None if retry_after_s is None or driver.accumulates else round(retry_after_s * 1e9),
            isinstance(driver, AnswersLate),
        )
        self._records = {each.quantity: each for each in configured(mast.gateway, sensor, driver.channels)}
        self._judges = {
            channel.quantity: Judge(
                sensor,
                in_range(channel, self._records[channel.quantity]),
                mast.mates,
                accumulates=driver.accumulates,
            )
            for channel in driver.channels
        }
        self._started = False
        self._start_again_s = float("-inf")
        self._start_trouble = "the driver that hung may still have the sensor: this one isn't started yet"
        self._complaints = Complaints(sensor.name)
        self.trouble: str | None = None
        self._untold: Exception | None = None
        self._steps = 0
        self._waits_until_ns: int | None = None
        self._set_meanwhile = False
        self._retired = threading.Event()
        self._interrupted = threading.Event()
        self._under_way: _Period | None = None
        self._patience_s = max(
            longest_read_s, min(_PATIENCE_PERIODS * sensor.interval_s, _LONGEST_PATIENCE_S)
        )
        self._hung: _Period | None = None
        self._hung_calls: tuple[DriverCalls, ...] = ()
        self.calls = DriverCalls()
        self.missed = 0
        self.said: Mapping[str, str | float | bool] = {}
        """What the sensor told of itself when it was last started."""

    @property
    def steps(self) -> int | None:
        """Grows with each wait and each reading; any thread may ask.

        None while it waits for an instant to come, or for its driver: that one the supervisor watches.
        """
        until_ns = self._waits_until_ns
        if self.calls.under_way is not None or (
            until_ns is not None and self._mast.clock.now_ns() < until_ns
        ):
            return None
        return self._steps

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
        for quantity, rules in quality.items():
            self._judges[quantity].rules = rules

    def retire(self, *, at_once: bool = False) -> None:
        """End at the border of the period under way; any thread may ask.

        What is counted over a long period isn't waited for, nor anything with ``at_once``.
        """
        self._retired.set()
        if at_once or self._period_ns > _LONGEST_LAST_PERIOD_NS:
            self._interrupted.set()
        self._mast.clock.wake()

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
        begin_ns, offset_ns = self._first() if hung is None else self._catch_up(hung)
        period = self._await(begin_ns, offset_ns)
        if period is not None:
            self._under_way = period
            self._start_now()
            period = self._covered(period)
        self._set_meanwhile = False
        while period is not None:
            if self._driver.accumulates and not self._await_end(period):
                return
            self._emit(period, self._read_again(period))
            period = self._next(period)

    def _first(self) -> tuple[int, int]:
        offset_ns = self._mast.clock.offset_ns()
        return self._grid_ns(), offset_ns

    def _catch_up(self, hung: _Period) -> tuple[int, int]:
        """READ_ERROR for the period that hung and all begun since; where to go on, by which clock."""
        clock = self._mast.clock
        offset_ns = clock.offset_ns()
        passed_ns = clock.now_ns() - offset_ns - (hung.begin_ns - hung.offset_ns)
        # A reload may have changed the interval, and with it the grid.
        begin_ns = -(-hung.begin_ns // self._period_ns) * self._period_ns
        begun_ns = passed_ns - (begin_ns - hung.begin_ns)
        for _ in range(max(-(-begun_ns // self._period_ns), int(begin_ns == hung.begin_ns))):
            self._emit(_Period(begin_ns, hung.offset_ns, hung.synced), "READ_ERROR")
            begin_ns += self._period_ns
        if clock_was_set(hung.offset_ns, offset_ns, passed_ns):
            self._tell_set(hung.offset_ns, offset_ns)
            begin_ns = self._grid_ns()
        return begin_ns, offset_ns

    def _grid_ns(self) -> int:
        """The next instant of the grid."""
        return -(-self._mast.clock.now_ns() // self._period_ns) * self._period_ns

    def _covered(self, period: _Period) -> _Period | None:
        end_ns = period.begin_ns + self._period_ns
        return period if self._mast.clock.covers(period.begin_ns, end_ns) else None

    def _await(self, begin_ns: int, offset_ns: int) -> _Period | None:
        """Wait for a period's beginning, the next of the new grid where the clock is set; None at the end.

        ``offset_ns`` is the clock's at the time ``begin_ns`` was chosen.
        """
        clock = self._mast.clock
        while not self._retired.is_set() and self._wait(begin_ns, offset_ns, self._retired):
            # In this order: a clock that is synchronised in between only makes a right time repaired.
            synced, now_offset_ns = clock.synced, clock.offset_ns()
            if clock_was_set(offset_ns, now_offset_ns, self._period_ns):
                self._tell_set(offset_ns, now_offset_ns)
                begin_ns = self._grid_ns()
            elif clock.now_ns() >= begin_ns:
                return _Period(begin_ns, now_offset_ns, synced)
            offset_ns = now_offset_ns
        return None

    def _await_end(self, period: _Period) -> bool:
        """Wait until the period has had its length, though the clock be set meanwhile."""
        clock = self._mast.clock
        end_boot_ns = period.begin_ns + self._period_ns - period.offset_ns
        while True:
            offset_ns = clock.offset_ns()
            if not self._wait(end_boot_ns + offset_ns, offset_ns, self._interrupted):
                return False
            if clock.now_ns() - clock.offset_ns() >= end_boot_ns:
                return True

    def _next(self, period: _Period) -> _Period | None:
        """The next period; those that passed while a slow read was under way are counted, not caught up."""
        clock = self._mast.clock
        offset_ns = clock.offset_ns()
        # Time since boot: a clock that is set makes nothing late.
        passed_ns = clock.now_ns() - offset_ns - (period.begin_ns - period.offset_ns)
        late = passed_ns // self._period_ns - (1 if self._driver.accumulates else 0)
        if late > 0:
            self.missed += late
            log.warning("event=sampler.late sensor=%s missed=%d", self.sensor.name, late)
        begin_ns = period.begin_ns + (1 + max(late, 0)) * self._period_ns
        if clock_was_set(period.offset_ns, offset_ns, passed_ns):
            self._tell_set(period.offset_ns, offset_ns)
            begin_ns = self._grid_ns()
        following = self._covered(_Period(begin_ns, offset_ns, synced=False))
        if following is not None:
            self._begin_ahead(begin_ns, offset_ns)
            following = self._await(begin_ns, offset_ns)
        self._under_way = following
        if following is not None and self._set_meanwhile:
            self._set_meanwhile = False
            if self._driver.accumulates:
                # The new grid's first count begins on it; what lies between the grids belongs to no period.
                self._read()
        return following

    def _wait(self, until_ns: int, offset_ns: int, unless: threading.Event) -> bool:
        """Wait by the clock, so that the watchdog sees until when."""
        self._waits_until_ns = until_ns
        try:
            return self._mast.clock.wait_until(until_ns, offset_ns, unless)
        finally:
            self._steps += 1
            self._waits_until_ns = None

    def _tell_set(self, before_ns: int, now_ns: int) -> None:
        self._set_meanwhile = True
        log.warning("event=clock.set sensor=%s by_s=%.3f", self.sensor.name, (now_ns - before_ns) / 1e9)

    def _begin_ahead(self, begin_ns: int, offset_ns: int) -> None:
        """Begin the next period's measurement, where the sensor answers with what was begun before."""
        clock, ahead_ns = self._mast.clock, self._retries.ahead_ns()
        if ahead_ns is None or not isinstance(self._driver, AnswersLate) or not self._started:
            return
        if not self._wait(begin_ns - ahead_ns, offset_ns, self._retired):
            return
        # Should it hang, the period before has had its reading.
        self._under_way = _Period(begin_ns, offset_ns, clock.synced)
        try:
            with self.calls.call(self._patience_s):
                self._driver.prime()
        except (DriverError, OSError) as error:
            # What it costs shows in the reading.
            log.debug("event=sensor.not_primed sensor=%s error=%s", self.sensor.name, error)

    def _read_again(self, period: _Period) -> Mapping[str, Measurement] | str:
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
                or not self._wait(again_ns, offset_ns, self._retired)
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

    def _emit(self, period: _Period, read: Mapping[str, Measurement] | str) -> None:
        answered = not isinstance(read, str)
        for channel in self._driver.channels:
            measured = read if isinstance(read, str) else read.get(channel.quantity, "READ_ERROR")
            if isinstance(measured, Measurement) and not _is_finite(measured):
                self._failed(ReadError(f"{channel.quantity} is not a finite number"))
                measured, answered = "READ_ERROR", False
            reading = self._reading(channel, period, measured)
            self._mast.feeds.note(reading, self._mast.clock.monotonic())
            self._mast.emit(reading, self.sensor.name)
        if answered:
            self._complaints.answered()

    def _reading(self, channel: Channel, period: _Period, measurement: Measurement | str) -> Reading:
        mast, name = self._mast, f"{self.sensor.name}.{channel.quantity}"
        calibration, judge = self._records[channel.quantity], self._judges[channel.quantity]
        unsynced = () if period.synced else (CLOCK_UNSYNCED,)
        value = raw = latitude = longitude = altitude_m = None
        if isinstance(measurement, str):
            quality, reasons = MISSING, (measurement, *unsynced)
            judge.missing(period.since_boot_ns)
        else:
            value, raw = measurement.value, measurement.raw
            expired = expiry_reasons(calibration, period.begin_ns // 1000, known=period.synced)
            verdict = judge.judge(period.since_boot_ns, value, (*measurement.reasons, *expired))
            reasons = (*verdict.reasons, *unsynced)
            quality = max(verdict.quality, SUSPECT) if unsynced else verdict.quality
            if measurement.position is not None:
                latitude, longitude, altitude_m = measurement.position
        return Reading(
            gateway=mast.gateway,
            channel=name,
            quantity=channel.quantity,
            unit=channel.unit,
            time_us=period.begin_ns // 1000,
            period_ms=self._period_ns // 1_000_000,
            value=value,
            raw=raw,
            raw_unit=channel.raw_unit,
            quality=quality,
            reasons=reasons,
            run=mast.run,
            seq=mast.sequences.draw(name),
            clock=SYNCED if period.synced else UNSYNCED,
            cal=calibration.cal,
            latitude=latitude,
            longitude=longitude,
            altitude_m=altitude_m,
            boot=None if period.synced else mast.boot,
            mono_ms=None if period.synced else period.mono_ms,
            extra=None if period.synced else unjudged_expiry(calibration),
        )
