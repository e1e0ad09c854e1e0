"""Runs sensors for a moment, as the daemon would, for ``read``, ``doctor`` and commissioning.

The readings come out of the daemon's own sampler, so raw, value and quality are those it would publish.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from cloud.wire.reading_records import MISSING, Reading
from drivers.interface import Board, Diagnoses, Driver
from drivers.registry import driver_type
from gateway.clock.system_clock import SystemClock
from gateway.config import SensorConfig
from gateway.sampling.readings import RunContext
from gateway.sampling.sampler import Sampler, make_driver
from gateway.sampling.supervisor import Supervisor
from gateway.sequences import Sequences, new_run

_COUNT_S: Final = 2.0
"""How long pulses are counted for one reading."""
_POINT_S: Final = 1.0
_STOP_S: Final = 2.0
# Some sensors answer with the measurement that the previous request began.
_TWICE_UP_TO_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class SensorResult:
    """A sensor's last readings by channel, the error where there is no value, and its wiring faults."""

    sensor: str
    readings: tuple[Reading, ...]
    trouble: str | None
    diagnosis: tuple[str, ...]


class _SensorRead:
    """One sensor while it is read."""

    def __init__(self, sensor: SensorConfig, board: Board, period_s: float | None) -> None:
        self.driver: Driver = make_driver(sensor, board)
        kind = driver_type(sensor.driver)
        usual_s = _COUNT_S if self.driver.accumulates else _POINT_S
        self.sensor = replace(sensor, interval_s=max(period_s or usual_s, kind.min_interval_s))
        self.longest_read_s = kind.longest_read_s
        twice = not self.driver.accumulates and self.sensor.interval_s <= _TWICE_UP_TO_S
        self.wanted = 2 if twice else 1
        self.readings: dict[str, Reading] = {}
        self.rounds = 0
        self.diagnosis: tuple[str, ...] = ()

    @property
    def done(self) -> bool:
        """Its readings are in, or one more try has failed too."""
        missing = any(each.quality == MISSING for each in self.readings.values())
        return self.rounds >= self.wanted + (1 if missing and self.wanted > 1 else 0)


class OneShotRead:
    """Some sensors on a board of their own. ``on_reading`` is called by the sensors' threads."""

    def __init__(
        self,
        gateway: str,
        sensors: Sequence[SensorConfig],
        board: Board,
        period_s: float | None = None,
        on_reading: Callable[[Reading, str], None] = lambda reading, sensor: None,
    ) -> None:
        self._reads = {sensor.name: _SensorRead(sensor, board, period_s) for sensor in sensors}
        self._on_reading = on_reading
        self._changed = threading.Condition()
        clock = board.clock or SystemClock("always")
        context = RunContext(gateway, new_run(), clock, Sequences(), self._receive, "")
        self._supervisor = Supervisor(
            [
                Sampler(read.sensor, read.driver, context, read.longest_read_s)
                for read in self._reads.values()
            ],
            clock,
        )

    def run(self, timeout_s: float) -> list[SensorResult]:
        """Until each sensor has answered, or the time is over; in the order given."""
        self.start()
        with self._changed:
            self._changed.wait_for(lambda: all(read.done for read in self._reads.values()), timeout_s)
            troubles = self.troubles
            results = [
                SensorResult(
                    name,
                    tuple(read.readings.values()),
                    troubles.get(name) or (None if read.readings else f"no answer within {timeout_s:g} s"),
                    read.diagnosis,
                )
                for name, read in self._reads.items()
            ]
        self.stop()
        return results

    def start(self) -> None:
        """Report every reading until ``stop``."""
        self._supervisor.start()

    def stop(self) -> None:
        """Stop the sensors and release their hardware."""
        self._supervisor.stop(_STOP_S)

    @property
    def troubles(self) -> dict[str, str]:
        """The error of each sensor without a value, by name."""
        return self._supervisor.troubles

    def _receive(self, reading: Reading, sensor: str) -> None:
        """Called by the sensor's own thread, which may call the driver's ``diagnose``."""
        read = self._reads[sensor]
        self._on_reading(reading, sensor)
        if read.done:
            return
        last_channel = reading.quantity == read.driver.channels[-1].quantity
        diagnosis = read.driver.diagnose() if last_channel and isinstance(read.driver, Diagnoses) else ()
        with self._changed:
            read.readings[reading.channel] = reading
            if last_channel:
                read.rounds += 1
                read.diagnosis = diagnosis
                self._changed.notify_all()
