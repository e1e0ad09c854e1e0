"""Runs sensors for a moment, as the daemon would, and tells what they say: for ``read`` and ``doctor``.

The readings come out of the daemon's own sampler, so raw, value and quality are those it would publish.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from cloud.wire.schema import MISSING, Reading
from drivers.interface import Board, Diagnoses, Driver
from drivers.registry import driver_type
from gateway.clock.system_clock import SystemClock
from gateway.config import SensorConfig
from gateway.sampling.run_context import Mast
from gateway.sampling.sampler import Sampler
from gateway.sampling.sensors import make_driver
from gateway.sampling.supervisor import Supervisor
from gateway.sequences import Sequences, new_run

COUNT_S: Final = 2.0
"""How long pulses are counted for one reading."""
_POINT_S: Final = 1.0
_STOP_S: Final = 2.0
# Some sensors answer with what they measured when they were asked the time before.
_TWICE_UP_TO_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Seen:
    """What a sensor said: its channels' last readings, why there is no value, what its wiring looks like."""

    sensor: str
    readings: tuple[Reading, ...]
    trouble: str | None
    diagnosis: tuple[str, ...]


class _One:
    """One sensor while it is looked at."""

    def __init__(self, sensor: SensorConfig, board: Board, period_s: float | None) -> None:
        self.driver: Driver = make_driver(sensor, board)
        known = driver_type(sensor.driver)
        usual_s = COUNT_S if self.driver.accumulates else _POINT_S
        self.sensor = replace(sensor, interval_s=max(period_s or usual_s, known.min_interval_s))
        self.longest_read_s = known.longest_read_s
        twice = not self.driver.accumulates and self.sensor.interval_s <= _TWICE_UP_TO_S
        self.wanted = 2 if twice else 1
        self.channels = len(self.driver.channels)
        self.readings: dict[str, Reading] = {}
        self.rounds = 0
        self.diagnosis: tuple[str, ...] = ()
        self.sampler: Sampler | None = None

    @property
    def done(self) -> bool:
        """Enough is known: its readings are in, or one more try has failed too."""
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
        self._ones = {sensor.name: _One(sensor, board, period_s) for sensor in sensors}
        self._on_reading = on_reading
        self._changed = threading.Condition()
        clock = board.clock or SystemClock("always")
        mast = Mast(gateway, new_run(), clock, Sequences(), self._note, "")
        for one in self._ones.values():
            one.sampler = Sampler(one.sensor, one.driver, mast, one.longest_read_s)
        samplers = [one.sampler for one in self._ones.values() if one.sampler is not None]
        self._supervisor = Supervisor(samplers, clock)

    @property
    def counts(self) -> tuple[str, ...]:
        """The sensors that count over ``COUNT_S``."""
        return tuple(name for name, one in self._ones.items() if one.driver.accumulates)

    def run(self, timeout_s: float) -> list[Seen]:
        """Until each sensor has answered, or the time is over; in the order given."""
        self._supervisor.start()
        with self._changed:
            self._changed.wait_for(lambda: all(one.done for one in self._ones.values()), timeout_s)
            seen = [self._seen(one, timeout_s) for one in self._ones.values()]
        self._supervisor.stop(_STOP_S)
        return seen

    def follow(self, seconds: float | None) -> None:
        """Tell every reading, for so many seconds or until interrupted."""
        self.start()
        try:
            threading.Event().wait(seconds)
        finally:
            self.stop()

    def start(self) -> None:
        """Tell every reading until ``stop``."""
        self._supervisor.start()

    def stop(self) -> None:
        """End, and give back what the sensors had."""
        self._supervisor.stop(_STOP_S)

    @property
    def troubles(self) -> dict[str, str]:
        """Why a sensor gives no value, by name."""
        return self._supervisor.troubles

    def _seen(self, one: _One, timeout_s: float) -> Seen:
        trouble = one.sampler.trouble if one.sampler is not None else None
        if not one.readings:
            trouble = trouble or f"no answer within {timeout_s:g} s"
        return Seen(one.sensor.name, tuple(one.readings.values()), trouble, one.diagnosis)

    def _note(self, reading: Reading, sensor: str) -> None:
        """Called by the sensor's own thread, where a driver may be asked for its diagnosis."""
        one = self._ones[sensor]
        self._on_reading(reading, sensor)
        if one.done:
            return
        last_channel = reading.quantity == one.driver.channels[-1].quantity
        diagnosis = one.driver.diagnose() if last_channel and isinstance(one.driver, Diagnoses) else ()
        with self._changed:
            one.readings[reading.channel] = reading
            if last_channel:
                one.rounds += 1
                one.diagnosis = diagnosis
                self._changed.notify_all()
