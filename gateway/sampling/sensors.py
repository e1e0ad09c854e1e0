"""What stands for a driver whose own code fails where it is made: READ_ERROR for its readings, no crash."""

from __future__ import annotations

from drivers.interface import Board, BoardError, Channel, DriverError, Measurement, ReadError
from drivers.registry import driver_type, guarded
from gateway.config import SensorConfig
from gateway.ports import Driver


class FailedDriver:
    """A sensor that never starts, and says why."""

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
        return FailedDriver(known.channels_of(sensor.options), str(error))
