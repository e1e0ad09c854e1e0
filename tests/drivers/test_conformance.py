"""What every driver must do, on the simulated board."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import pytest

from drivers.interface import FittedSensor, ReadError
from drivers.registry import DRIVERS, driver_type
from tests.drivers.masts import ALL_KINDS, simulated

BY_NAME = pytest.mark.parametrize("sensor", ALL_KINDS, ids=lambda sensor: sensor.driver)


def test_every_registered_driver_is_here() -> None:
    assert {sensor.driver for sensor in ALL_KINDS} == set(DRIVERS)


@BY_NAME
def test_a_read_answers_for_every_channel_within_the_sensors_range(sensor: FittedSensor) -> None:
    board = simulated([sensor])
    driver = driver_type(sensor.driver).make(board, sensor.options)
    assert driver.channels == driver_type(sensor.driver).channels_of(sensor.options)
    driver.start()
    for _ in range(3):
        assert board.clock.wait_until(board.clock.now_ns() + 10_000_000_000)
        measurements = driver.read()
        assert [one.quantity for one in measurements] == [channel.quantity for channel in driver.channels]
        for one, channel in zip(measurements, driver.channels, strict=True):
            assert channel.lower <= one.value <= channel.upper
            assert math.isfinite(one.raw)
            assert (one.position is not None) == (channel.quantity == "location")
    driver.stop()


@BY_NAME
def test_construction_touches_nothing_and_a_read_before_start_is_a_read_error(sensor: FittedSensor) -> None:
    driver = driver_type(sensor.driver).make(simulated([]), sensor.options)
    if sensor.driver != "gpsd":
        with pytest.raises(ReadError, match="isn't started"):
            driver.read()
    driver.stop()


@BY_NAME
def test_start_stop_and_start_again(sensor: FittedSensor) -> None:
    board = simulated([sensor])
    driver = driver_type(sensor.driver).make(board, sensor.options)
    values = []
    for _ in range(2):
        driver.start()
        assert board.clock.wait_until(board.clock.now_ns() + 10_000_000_000)
        values.append(driver.read()[0].value)
        driver.stop()
        driver.stop()
    assert all(math.isfinite(value) for value in values)


@BY_NAME
def test_a_second_driver_can_take_over_a_stopped_ones_sensor(sensor: FittedSensor) -> None:
    board = simulated([sensor])
    make = driver_type(sensor.driver).make
    first, second = make(board, sensor.options), make(board, sensor.options)
    first.start()
    first.stop()
    second.start()
    assert board.clock.wait_until(board.clock.now_ns() + 5_000_000_000)
    assert len(second.read()) == len(second.channels)
    second.stop()


def test_the_libraries_write_nothing_on_standard_output() -> None:
    program = """
import json
from tests.drivers.masts import ALL_KINDS, simulated
from drivers.registry import driver_type
board = simulated(ALL_KINDS)
for sensor in ALL_KINDS:
    driver = driver_type(sensor.driver).make(board, sensor.options)
    driver.start()
    driver.stop()
print(json.dumps({"started": len(ALL_KINDS)}))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert json.loads(done.stdout) == {"started": len(ALL_KINDS)}
