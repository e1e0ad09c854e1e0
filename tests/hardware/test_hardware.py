"""The checks of every driver on the sensors of a config: ``pytest --hardware gateway.toml tests/hardware``.

On a Raspberry Pi with those sensors wired, and the daemon stopped; anywhere on a simulated board's. Without
the option there is nothing to check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from drivers.conformance import ON_HARDWARE, Subject
from drivers.interface import Board
from drivers.registry import driver_type
from gateway.config import Config, SensorConfig, load
from gateway.sampling.sampler import open_fitted_board

_NONE = pytest.param(None, marks=pytest.mark.skip(reason="needs sensors: --hardware gateway.toml"))


def _config(options: pytest.Config) -> Config | None:
    path = options.getoption("--hardware")
    return None if path is None else load(Path(path))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    config = _config(metafunc.config)
    sensors = [_NONE] if config is None else [pytest.param(each, id=each.name) for each in config.sensors]
    metafunc.parametrize("sensor", sensors)


@pytest.fixture(scope="module")
def board(pytestconfig: pytest.Config) -> Iterator[Board]:
    config = _config(pytestconfig)
    assert config is not None
    board = open_fitted_board(config)
    yield board
    board.close()


@pytest.mark.parametrize("check", ON_HARDWARE, ids=lambda check: check.__name__)
def test_a_wired_sensor(sensor: SensorConfig, check: Callable[[Subject], None], board: Board) -> None:
    check(Subject(driver_type(sensor.driver), sensor.options, board, sensor.interval_s))
