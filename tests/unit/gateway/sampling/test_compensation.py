"""Values that drivers receive of others: good, recent, and from the sensor that the config names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cloud.wire.reading_records import Reading
from drivers.emulation.board import EmulatedBoard
from drivers.emulation.parts import EmulatedScd4x
from drivers.scd4x import Scd4x, Scd4xOptions
from gateway.config import SensorConfig, check
from gateway.sampling.readings import LONGEST_S, Compensation, RunContext
from gateway.sampling.sampler import make_sampler, open_fitted_board
from gateway.sampling.supervisor import Supervisor
from gateway.sequences import Sequences
from tests.support.config import Table, baro, config_text, sensor, write_config
from tests.support.masts import simulated
from tests.support.servers import eventually

GOOD = Reading(
    gateway="mast-07", channel="baro.pressure", quantity="pressure", unit="kPa",
    time_us=1_772_337_600_000_000, period_ms=1000, value=78.5, raw=3.1, raw_unit="V", quality=1, reasons=(),
    run="9f3c21ab04de", seq=1, clock="synced", cal="5d1c0a7e",
)  # fmt: skip
AIR = SensorConfig(name="air", driver="scd4x", options=Scd4xOptions(pressure_from="baro"))


class Recorder(Scd4x):
    """A real one that records what it receives."""

    def __init__(self, options: Scd4xOptions) -> None:
        super().__init__(simulated([]), options)
        self.received: list[tuple[str, float]] = []

    def compensate(self, quantity: str, value: float) -> None:
        self.received.append((quantity, value))


def received(compensation: Compensation, now_s: float, sensor: SensorConfig = AIR) -> list[tuple[str, float]]:
    driver = Recorder(sensor.options)
    compensation.apply(sensor, driver, now_s)
    return driver.received


def test_the_latest_good_value_of_the_sensor_that_is_named() -> None:
    compensation = Compensation()
    assert received(compensation, 0.0) == []
    compensation.store(GOOD, 100.0)
    assert received(compensation, 100.0) == [("pressure", 78.5)]
    compensation.store(replace(GOOD, value=78.6, quality=2), 101.0)
    compensation.store(replace(GOOD, channel="other.pressure", value=50.0), 102.0)
    assert received(compensation, 103.0) == [("pressure", 78.6)]
    assert received(compensation, 103.0, replace(AIR, options=Scd4xOptions())) == []


@pytest.mark.parametrize(("quality", "value"), [(3, 78.9), (4, 12.0), (9, None)])
def test_suspect_failed_and_missing_ones_are_not_passed(quality: int, value: float | None) -> None:
    compensation = Compensation()
    compensation.store(GOOD, 100.0)
    compensation.store(replace(GOOD, quality=quality, value=value), 200.0)
    assert received(compensation, 201.0) == [("pressure", 78.5)]


def test_an_old_one_is_not_passed() -> None:
    assert LONGEST_S == 600
    compensation = Compensation()
    compensation.store(GOOD, 100.0)
    assert received(compensation, 700.0) == [("pressure", 78.5)]
    assert received(compensation, 700.1) == []


def mast(source: str, **sections: Table) -> str:
    """A barometer, a pyranometer, and a CO2 sensor that takes its pressure from ``source``."""
    co2 = sensor("air", "scd4x", pressure_from=source)
    return config_text(baro(), sensor("sun", "pyranometer"), co2, **sections)


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("baro", None),
        ("barro", 'there is no sensor "barro" (did you mean "baro"?)'),
        ("sun", '"sun" measures irradiance, not pressure'),
        ("air", '"air" measures co2, not pressure'),
    ],
)
def test_a_config_names_a_sensor_that_measures_it(tmp_path: Path, source: str, problem: str | None) -> None:
    path = write_config(tmp_path, mast(source))
    found = [str(each) for each in check(path)[1]]
    line = 1 + path.read_text().splitlines().index(f'pressure_from = "{source}"')
    assert found == ([] if problem is None else [f'{path}:{line}: sensor["air"].pressure_from: {problem}'])


def test_on_a_mast_the_barometers_pressure_reaches_the_chip(tmp_path: Path) -> None:
    text = mast("baro", board={"start": "2026-03-01T00:00:00Z", "speed": 1000})
    config, _ = check(write_config(tmp_path, text))
    assert config is not None
    board = open_fitted_board(config)
    assert isinstance(board, EmulatedBoard)
    readings: dict[str, list[Reading]] = {"baro": [], "sun": [], "air": []}
    context = RunContext(
        "mast-07", "run", board.clock, Sequences(), lambda one, name: readings[name].append(one), "boot"
    )
    supervisor = Supervisor((make_sampler(sensor, board, context) for sensor in config.sensors), board.clock)
    supervisor.start()
    eventually(lambda: len(readings["air"]), until=lambda count: count >= 5)
    supervisor.stop()
    chip = board._i2c.devices[0x62]
    assert isinstance(chip, EmulatedScd4x)
    # Threads of one instant come in any order: it may be the reading of the second before.
    hpa = [round((one.value or 0) * 10) for one in readings["baro"]]
    assert 700 < chip.settings["pressure_hpa"] < 1020
    assert chip.settings["pressure_hpa"] in hpa
    assert {one.reasons for one in readings["air"]} == {("WARMING_UP",)}
    assert {one.quality for one in readings["air"]} == {3}
