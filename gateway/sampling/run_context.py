"""What all samplers of one run share, with others' readings that drivers need (a CO2 sensor the pressure)."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cloud.wire.reading_records import GOOD, NOT_EVALUATED, Reading
from drivers.interface import Compensated, Driver
from drivers.registry import driver_type
from gateway.config import SensorConfig
from gateway.ports import Clock
from gateway.quality.minute_means import MinuteMeans
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
