"""Makes a sensor's readings of its measurements: flagged, numbered, with the calibration in force.

``RunContext`` is what all samplers of one run share, with others' readings that drivers need (a CO2 sensor
the pressure).
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from cloud.wire.quantities import kind_field
from cloud.wire.reading_records import (
    CLOCK_UNSYNCED,
    GOOD,
    MISSING,
    NOT_EVALUATED,
    SUSPECT,
    SYNCED,
    UNSYNCED,
    Reading,
)
from drivers.interface import Channel, Compensated, Driver, Measurement
from drivers.registry import driver_type
from gateway.calibration.record import configured, expiry_field, expiry_reasons, in_range
from gateway.config import QualityRules, SensorConfig
from gateway.ports import Clock
from gateway.quality.qartod import MinuteMeans, QartodTests
from gateway.sampling.schedule import Period
from gateway.sequences import Sequences

LONGEST_S: Final = 600.0
"""An older reading isn't used. Pressure rarely changes by 1 hPa in that time, 0.1 % of a CO2 reading."""


class Compensation:
    """The latest good or not evaluated value of each channel, by the mast's monotonic time. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._latest: dict[str, tuple[float, float]] = {}

    def store(self, reading: Reading, now_s: float) -> None:
        """Store a reading's value, unless it is suspect, failed or missing."""
        if reading.value is None or reading.quality not in (GOOD, NOT_EVALUATED):
            return
        with self._lock:
            self._latest[reading.channel] = (reading.value, now_s)

    def apply(self, sensor: SensorConfig, driver: Driver, now_s: float) -> None:
        """Pass a driver the values it needs that are recent enough."""
        if not isinstance(driver, Compensated):
            return
        for need in driver_type(sensor.driver).needs(sensor.options):
            with self._lock:
                value, at_s = self._latest.get(f"{need.sensor}.{need.quantity}", (0.0, float("-inf")))
            if now_s - at_s <= LONGEST_S:
                driver.compensate(need.quantity, value)


@dataclass(frozen=True, slots=True)
class RunContext:
    """One run of a mast. ``emit`` receives a reading and its sensor's name; it may block.

    ``boot`` is the kernel's id of this boot; ``jitter`` returns random numbers from 0 to 1; ``retries``
    counts repeated reads by sensor. ``extra`` are fields that each reading gets.
    """

    gateway: str
    run: str
    clock: Clock
    sequences: Sequences
    emit: Callable[[Reading, str], None]
    boot: str
    minute_means: MinuteMeans = field(default_factory=MinuteMeans)
    jitter: Callable[[], float] = random.random
    retries: Counter[str] = field(default_factory=Counter)
    extra: Mapping[str, Any] = field(default_factory=dict)
    compensation: Compensation = field(default_factory=Compensation)


class Measuring(Protocol):
    """What is to be known of a driver to make readings of its measurements."""

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The channels of every read, in order."""

    @property
    def accumulates(self) -> bool:
        """True where a reading covers the time since the one before."""


class ReadingFactory:
    """One sensor's channels: each has a calibration record and quality tests.

    Owned by the sampler's thread, except ``set_quality``. ``period_ns`` is how long a reading stands for.
    """

    def __init__(self, sensor: SensorConfig, driver: Measuring, context: RunContext, period_ns: int) -> None:
        self._sensor = sensor.name
        self._context = context
        self._period_ms = period_ns // 1_000_000
        self._kinds = {name: kind_field(each) for name, each in sensor.own.items()}
        self._records = {each.quantity: each for each in configured(context.gateway, sensor, driver.channels)}
        self._tests = {
            channel.quantity: QartodTests(
                sensor,
                in_range(channel, self._records[channel.quantity]),
                context.minute_means,
                accumulates=driver.accumulates,
            )
            for channel in driver.channels
        }

    def set_quality(self, quality: Mapping[str, QualityRules]) -> None:
        """Replace the quality rules from the next reading on. Any thread."""
        for quantity, rules in quality.items():
            self._tests[quantity].rules = rules

    def make(self, channel: Channel, period: Period, measurement: Measurement | str) -> Reading:
        """The channel's next reading; ``measurement`` is a reason where there is none."""
        context, name = self._context, f"{self._sensor}.{channel.quantity}"
        calibration, tests = self._records[channel.quantity], self._tests[channel.quantity]
        unsynced = () if period.synced else (CLOCK_UNSYNCED,)
        value = raw = latitude = longitude = altitude_m = None
        if isinstance(measurement, str):
            quality, reasons = MISSING, (measurement, *unsynced)
            tests.missing(period.since_boot_ns)
        else:
            value, raw = measurement.value, measurement.raw
            # Nothing expires by a clock that was never set.
            expires = calibration.expires if period.synced else None
            expired = expiry_reasons(expires, period.begin_ns // 1000)
            flagged = tests.test(period.since_boot_ns, value, (*measurement.reasons, *expired))
            reasons = (*flagged.reasons, *unsynced)
            quality = max(flagged.quality, SUSPECT) if unsynced else flagged.quality
            if measurement.position is not None:
                latitude, longitude, altitude_m = measurement.position
        return Reading(
            gateway=context.gateway,
            channel=name,
            quantity=channel.quantity,
            unit=channel.unit,
            time_us=period.begin_ns // 1000,
            period_ms=self._period_ms,
            value=value,
            raw=raw,
            raw_unit=channel.raw_unit,
            quality=quality,
            reasons=reasons,
            run=context.run,
            seq=context.sequences.draw(name),
            clock=SYNCED if period.synced else UNSYNCED,
            cal=calibration.cal,
            latitude=latitude,
            longitude=longitude,
            altitude_m=altitude_m,
            boot=None if period.synced else context.boot,
            mono_ms=None if period.synced else period.mono_ms,
            extra={
                **context.extra,
                **self._kinds.get(channel.quantity, {}),
                **({} if period.synced else expiry_field(calibration)),
            }
            or None,
        )
