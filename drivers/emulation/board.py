"""A board whose chips, lines and pins stand in a world and run beneath the real libraries."""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Sequence

from drivers.driver_type import Claim
from drivers.emulation.by_driver import emulation
from drivers.emulation.environment import World
from drivers.emulation.faults import Fault, Faults
from drivers.emulation.gpio import EmulatedGpio
from drivers.emulation.gpsd import EmulatedGpsd
from drivers.emulation.hardware import Bench, TakeOff
from drivers.emulation.iio import EmulatedIio
from drivers.emulation.stepped_clock import SteppedClock
from drivers.hardware.bus_lock import SharedI2c
from drivers.interface import BoardError, FittedSensor
from drivers.registry import BrokenDriverError, driver_type, guarded

log = logging.getLogger(__name__)


class EmulatedBoard:
    """The sensors' hardware, emulated; the board owns the clock."""

    def __init__(
        self,
        world: World,
        sensors: Sequence[FittedSensor],
        clock: Callable[[Crossing], SteppedClock],
        faults: Sequence[Fault] = (),
    ) -> None:
        """Wire the sensors. Raises BoardError where two of them share a pin, an input or an address."""
        self._world = world
        self._bench = Bench(world, self._now_ns, Faults(faults, world.start_ns))
        self._shared_i2c = SharedI2c(self._bench.i2c)
        self._fitted: dict[str, tuple[FittedSensor, TakeOff]] = {}
        self._clock = clock(self._bench.cross)
        _check_claims(sensors)
        self._change(sensors)

    @property
    def clock(self) -> SteppedClock:
        """The world's time."""
        return self._clock

    def monotonic(self) -> float:
        """Event seconds since the world's start."""
        return self._clock.monotonic()

    def gpio(self) -> EmulatedGpio:
        """The pins."""
        return self._bench.gpio

    def i2c(self) -> SharedI2c:
        """The bus."""
        return self._shared_i2c

    def dht_edges(self, pin: int) -> Callable[[], array[int]]:
        """The data line of the DHT11 at a pin; silent where none is fitted."""
        return self._bench.dht_edges(pin)

    def connect_gpsd(self, host: str, port: int) -> EmulatedGpsd:
        """A connection to the emulated gpsd. Raises ReadError where no receiver is fitted."""
        return self._bench.connect_gpsd(host, port)

    def iio(self) -> EmulatedIio:
        """The kernel's IIO devices."""
        return self._bench.iio

    def refit(self, sensors: Sequence[FittedSensor]) -> Callable[[], None]:
        """Check another set of sensors; what it gives rewires. Raises BoardError.

        The others' chips and pulse trains go on as they are.
        """
        _check_claims(sensors)
        change_world = self._world.refit(sensors)

        def change() -> None:
            change_world()
            self._change(sensors)

        return change

    def close(self) -> None:
        """Stop the clock."""
        self._clock.stop()

    def _now_ns(self) -> int:
        return self._clock.now_ns()

    def _change(self, sensors: Sequence[FittedSensor]) -> None:
        new = {sensor.name: sensor for sensor in sensors}
        stays: dict[str, tuple[FittedSensor, TakeOff]] = {}
        for name, (sensor, take_off) in self._fitted.items():
            if new.get(name) == sensor:
                stays[name] = sensor, take_off
            else:
                take_off()
        for name, sensor in new.items():
            fit = emulation(sensor.driver)
            if name in stays or fit is None:
                continue
            try:
                with guarded(sensor.driver):
                    stays[name] = sensor, fit(self._bench, sensor)
            except BrokenDriverError as error:
                # Nothing answers this sensor's driver then; the others have their hardware.
                log.error("event=emulation.broken sensor=%s error=%s", name, error)
        self._fitted = stays


def _check_claims(sensors: Sequence[FittedSensor]) -> None:
    """Raise BoardError where two sensors share a part of the board, or one can't be emulated."""
    taken: list[tuple[Claim, str]] = []
    for sensor in sensors:
        if emulation(sensor.driver) is None:
            raise BoardError(f"sensor {sensor.name!r}: driver {sensor.driver!r} can't be emulated")
        claims = tuple(driver_type(sensor.driver).claims(sensor.options))
        for claim in claims:
            for other, owner in taken:
                if claim.clashes(other):
                    raise BoardError(f"sensors {owner!r} and {sensor.name!r} are both wired to {claim.part}")
        taken += ((claim, sensor.name) for claim in claims)


Crossing = Callable[[int, int], None]
