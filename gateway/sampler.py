"""One sensor's loop: waits for its instants on the wall-clock grid, reads, flags, hands the readings on.

A reading's time is the start of the period it stands for. Pulse counters are read at the period's end,
everything else at its start. A sensor that doesn't answer gives readings too: value null, with the reason.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Final

from cloud.schema import MISSING, Reading
from drivers.interface import Channel, ChecksumError, DriverError, Measurement, ReadError
from gateway.config import SensorConfig
from gateway.identity import Sequences, calibration_id
from gateway.ports import Clock, Driver
from gateway.quality import flag, range_reasons

log = logging.getLogger(__name__)

_RESTART_AFTER_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Mast:
    """What all samplers of one run share. ``emit`` takes a reading and its sensor's name; it may block."""

    gateway: str
    run: str
    clock: Clock
    sequences: Sequences
    emit: Callable[[Reading, str], None]


def _is_finite(measurement: Measurement) -> bool:
    position = (number for number in measurement.position or () if number is not None)
    return all(map(math.isfinite, (measurement.value, measurement.raw, *position)))


class Sampler:
    """Reads one sensor until the clock ends; owned by one thread at a time."""

    def __init__(self, sensor: SensorConfig, driver: Driver, mast: Mast) -> None:
        self.sensor = sensor
        self._driver = driver
        self._mast = mast
        self._period_ns = round(sensor.interval_s * 1e9)
        self._cal = calibration_id(
            {
                "driver": sensor.driver,
                "model": sensor.model,
                "serial": sensor.serial,
                "options": asdict(sensor.options),
            }
        )
        self._started = False
        self._start_again_s = float("-inf")
        self._failing = False
        self.missed = 0

    def run(self) -> None:
        """Sample until the clock has no more time. Raises what a driver raises against its contract."""
        clock, period_ns = self._mast.clock, self._period_ns
        begin_ns = -(-clock.now_ns() // period_ns) * period_ns
        try:
            # A first count begins on the grid, not whenever this thread happened to start.
            if clock.wait_until(begin_ns):
                self._start_now()
            while clock.covers(begin_ns, begin_ns + period_ns):
                due_ns = begin_ns + period_ns if self._driver.accumulates else begin_ns
                if not clock.wait_until(due_ns):
                    return
                self._emit(begin_ns, self._read())
                begin_ns = self._next(begin_ns, due_ns)
        finally:
            self._driver.stop()
            self._started = False

    def _next(self, begin_ns: int, due_ns: int) -> int:
        """The next period; those that passed while a slow read was under way are counted, not caught up."""
        now_ns = self._mast.clock.now_ns()
        if now_ns < due_ns:
            # The clock was set back while we waited: go on from where it is now.
            log.warning("event=clock.set_back sensor=%s by_s=%.1f", self.sensor.name, (due_ns - now_ns) / 1e9)
            return -(-now_ns // self._period_ns) * self._period_ns
        late = (now_ns - due_ns) // self._period_ns
        if late > 0:
            self.missed += late
            log.warning("event=sampler.late sensor=%s missed=%d", self.sensor.name, late)
        return begin_ns + (1 + max(late, 0)) * self._period_ns

    def _read(self) -> Mapping[str, Measurement] | str:
        """The measurements by quantity, or the reason why there are none."""
        try:
            self._start()
            measurements = {measurement.quantity: measurement for measurement in self._driver.read()}
        except ChecksumError as error:
            self._failed(error)
            return "CHECKSUM"
        except (DriverError, OSError) as error:
            self._failed(error)
            return "READ_ERROR"
        if self._failing:
            self._failing = False
            log.warning("event=sensor.answers sensor=%s", self.sensor.name)
        return measurements

    def _start(self) -> None:
        if self._started:
            return
        now_s = self._mast.clock.monotonic()
        if now_s < self._start_again_s:
            raise ReadError("the sensor could not be started and is tried again soon")
        self._start_again_s = now_s + _RESTART_AFTER_S
        self._driver.start()
        self._started = True
        self._start_again_s = float("-inf")

    def _start_now(self) -> None:
        """Start the driver; one that won't is tried again while its readings say READ_ERROR."""
        try:
            self._start()
        except (DriverError, OSError) as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        # The first failure is news, its repetitions are not: the readings say READ_ERROR each time.
        level = logging.DEBUG if self._failing else logging.WARNING
        self._failing = True
        log.log(level, "event=sensor.silent sensor=%s error=%s", self.sensor.name, error)

    def _emit(self, begin_ns: int, read: Mapping[str, Measurement] | str) -> None:
        for channel in self._driver.channels:
            measured = read if isinstance(read, str) else read.get(channel.quantity, "READ_ERROR")
            if isinstance(measured, Measurement) and not _is_finite(measured):
                self._failed(ReadError(f"{channel.quantity} is not a finite number"))
                measured = "READ_ERROR"
            self._mast.emit(self._reading(channel, begin_ns, measured), self.sensor.name)

    def _reading(self, channel: Channel, begin_ns: int, measurement: Measurement | str) -> Reading:
        mast, name = self._mast, f"{self.sensor.name}.{channel.quantity}"
        synced = mast.clock.synced
        reasons = () if synced else ("CLOCK_UNSYNCED",)
        value = raw = latitude = longitude = altitude_m = None
        if isinstance(measurement, str):
            quality, reasons = MISSING, (measurement, *reasons)
        else:
            value, raw = measurement.value, measurement.raw
            reasons = (*range_reasons(value, channel), *reasons)
            quality = flag(reasons)
            if measurement.position is not None:
                latitude, longitude, altitude_m = measurement.position
        return Reading(
            gateway=mast.gateway,
            channel=name,
            quantity=channel.quantity,
            unit=channel.unit,
            time_us=begin_ns // 1000,
            period_ms=self._period_ns // 1_000_000,
            value=value,
            raw=raw,
            raw_unit=channel.raw_unit,
            quality=quality,
            reasons=reasons,
            run=mast.run,
            seq=mast.sequences.draw(name),
            clock="synced" if synced else "unsynced",
            cal=self._cal,
            latitude=latitude,
            longitude=longitude,
            altitude_m=altitude_m,
        )
