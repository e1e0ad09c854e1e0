"""What drivers are told of other sensors' readings: a CO2 sensor the barometer's pressure."""

from __future__ import annotations

import threading
from typing import Final

from cloud.wire.schema import GOOD, NOT_EVALUATED, Reading
from drivers.interface import Compensated, Driver
from drivers.registry import driver_type
from gateway.config import SensorConfig

LONGEST_S: Final = 600.0
"""An older reading isn't handed on. Pressure rarely changes by 1 hPa in that time, 0.1 % of a CO2 reading."""


class Compensation:
    """The latest good or not evaluated value of each channel, by the mast's monotonic time. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._latest: dict[str, tuple[float, float]] = {}

    def note(self, reading: Reading, now_s: float) -> None:
        """Remember a reading that others may rely on; suspect, failed and missing ones are none."""
        if reading.value is None or reading.quality not in (GOOD, NOT_EVALUATED):
            return
        with self._lock:
            self._latest[reading.channel] = (reading.value, now_s)

    def tell(self, sensor: SensorConfig, driver: Driver, now_s: float) -> None:
        """Hand a driver what it needs, as far as it is there and young enough."""
        if not isinstance(driver, Compensated):
            return
        for need in driver_type(sensor.driver).needs(sensor.options):
            with self._lock:
                value, at_s = self._latest.get(f"{need.sensor}.{need.quantity}", (0.0, float("-inf")))
            if now_s - at_s <= LONGEST_S:
                driver.compensate(need.quantity, value)
