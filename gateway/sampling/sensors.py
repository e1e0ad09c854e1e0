"""Builds what is sampled from the config: the board with its sensors, their drivers and samplers."""

from __future__ import annotations

from drivers.boards.registry import open_board
from drivers.interface import Board, BoardError, Channel, DriverError, FittedSensor, Measurement, ReadError
from drivers.registry import driver_type, guarded
from gateway.config import Config, SensorConfig
from gateway.ports import Driver
from gateway.sampling.run_context import RunContext
from gateway.sampling.sampler import Sampler


class FailedDriver:
    """Stands for a driver whose own code fails where it is made: READ_ERROR for its readings, no crash."""

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
        return FailedDriver(sensor.channels, str(error))


def make_sampler(sensor: SensorConfig, board: Board, context: RunContext) -> Sampler:
    """A sampler with a driver of its own."""
    kind = driver_type(sensor.driver)
    return Sampler(sensor, make_driver(sensor, board), context, kind.longest_read_s, kind.retry_after_s)


def open_fitted_board(config: Config) -> Board:
    """The board with its sensors. Raises BoardError."""
    return open_board(config.board.options, fitted_sensors(config), config.base_dir, config.gateway)


def fitted_sensors(config: Config) -> list[FittedSensor]:
    """The config's sensors as the board sees them."""
    return [
        FittedSensor(sensor.name, sensor.driver, sensor.options, sensor.channels, sensor.height_m)
        for sensor in config.sensors
    ]
