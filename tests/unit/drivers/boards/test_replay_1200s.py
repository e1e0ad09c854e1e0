"""1,200 s of a mast through pulses, codes and frames, sampled as the daemon does it: within the quantisation.

The file is recorded where this machine has it, and made from simulated weather in any case.
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cloud.wire.quantities import QUANTITIES
from cloud.wire.reading_records import Reading
from drivers.boards.registry import ReplayColumn
from drivers.generic.modbus import ModbusRegister
from drivers.iio import IioChannel
from drivers.interface import FittedSensor
from drivers.registry import driver_type
from gateway.config import SensorConfig
from gateway.sampling.readings import RunContext
from gateway.sampling.sampler import Sampler
from gateway.sampling.supervisor import Supervisor
from gateway.sequences import Sequences
from tests.support.masts import NRG_COLUMNS, NRG_MAST, fitted, replayed, sample
from tests.support.nrg_csv import write_nrg_csv
from tests.support.servers import eventually, shared_data

REAL_FILE = shared_data("mast_1s_20min.csv")
SECONDS = 1200
# One step of the converter, one tenth of a DHT11: the value is within half of it.
STEPS = {"baro.pressure": 0.0041, "sun.irradiance": 0.78125, "dht.temperature": 0.1, "dht.humidity": 0.1}


LINE: Mapping[str, Any] = {"driver": "modbus", "device": "/dev/ttyUSB0"}
MODBUS_MAST = (
    fitted("cup-a", **LINE, unit_id=1, registers=(ModbusRegister(QUANTITIES["wind_speed"], 0, "f32"),)),
    fitted(
        "baro",
        **LINE,
        unit_id=2,
        registers=(ModbusRegister(QUANTITIES["pressure"], 4, "u16", table="input", scale_address=2),),
    ),
    fitted(
        "sun",
        **LINE,
        unit_id=3,
        registers=(ModbusRegister(QUANTITIES["irradiance"], 2, "s32", word_order="little", slope=0.01),),
    ),
    fitted(
        "dht",
        **LINE,
        unit_id=4,
        registers=(
            ModbusRegister(QUANTITIES["temperature"], 0, "s16", slope=0.1),
            ModbusRegister(QUANTITIES["humidity"], 1, "u16", slope=0.1),
        ),
    ),
)
"""Four devices on one RTU line."""
MODBUS_STEPS = {"cup-a.wind_speed": 2**-19, "baro.pressure": 0.01, "sun.irradiance": 0.01} | {
    f"dht.{quantity}": 0.1 for quantity in ("temperature", "humidity")
}


@pytest.fixture
def made_file(tmp_path: Path) -> Path:
    path = tmp_path / "nrg.csv"
    write_nrg_csv(path, datetime(2024, 1, 11, 4, tzinfo=UTC), SECONDS, calms=((20, 92), (700, 24)))
    return path


@pytest.fixture(params=["simulated", "recorded"])
def mast_file(request: pytest.FixtureRequest, made_file: Path) -> Path:
    if request.param == "simulated":
        return made_file
    if REAL_FILE is None:
        pytest.skip("no shared data: mast_1s_20min.csv")
    return REAL_FILE


def sampled(path: Path, sensors: Sequence[FittedSensor], dht_s: float) -> dict[str, list[Reading]]:
    """Every reading by channel, through the gateway's own samplers."""
    board = replayed(path, sensors, NRG_COLUMNS)
    readings: dict[str, list[Reading]] = defaultdict(list)
    mast = RunContext(
        "m",
        "run",
        board.clock,
        Sequences(),
        lambda reading, _: readings[reading.channel].append(reading),
        "boot",
    )
    samplers = []
    for sensor in sensors:
        kind = driver_type(sensor.driver)
        interval_s = dht_s if sensor.driver == "dht11" else 1.0
        config = SensorConfig(sensor.name, sensor.driver, interval_s, options=sensor.options)
        driver = kind.make(board, sensor.options)
        samplers.append(Sampler(config, driver, mast, kind.longest_read_s, kind.retry_after_s))
    supervisor = Supervisor(samplers, board.clock)
    supervisor.start()
    eventually(lambda: supervisor.ended, 100)
    assert supervisor.restarts == 0
    assert mast.retries == {}
    return readings


def figures(path: Path) -> dict[str, list[float]]:
    """Each channel's column, in its unit."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == SECONDS
    columns: Mapping[str, tuple[str, float]] = {
        "cup-a.wind_speed": ("wind_speed_primary_m_s", 1.0),
        "cup-b.wind_speed": ("wind_speed_redundant_m_s", 1.0),
        "cup-s1.wind_speed": ("wind_speed_s1_m_s", 1.0),
        "baro.pressure": ("air_pressure_hpa", 0.1),
        "sun.irradiance": ("solar_irradiance_w_m2", 1.0),
        "dht.temperature": ("air_temperature_c", 1.0),
        "dht.humidity": ("relative_humidity_pct", 1.0),
    }
    return {channel: [float(row[name]) * scale for row in rows] for channel, (name, scale) in columns.items()}


@pytest.mark.parametrize("dht_s", [2, 10])
def test_every_channel_comes_back_within_its_quantisation(
    mast_file: Path, dht_s: int, record_property: Callable[[str, object], None]
) -> None:
    readings, truth = sampled(mast_file, NRG_MAST, float(dht_s)), figures(mast_file)
    assert set(readings) == set(truth)
    begin_us = readings["baro.pressure"][0].time_us
    worst = {}
    for channel, values in truth.items():
        period_s = dht_s if channel.startswith("dht.") else 1
        # A DHT11 gives the conversion begun two seconds before, the first time that of row 0.
        expected = values if period_s == 1 else [values[max(at - 2, 0)] for at in range(0, SECONDS, dht_s)]
        got = readings[channel]
        assert [reading.time_us for reading in got] == [
            begin_us + at * period_s * 1_000_000 for at in range(SECONDS // period_s)
        ]
        measured = [math.nan if reading.value is None else reading.value for reading in got]
        worst[channel] = max(abs(one - other) for one, other in zip(measured, expected, strict=True))
        if channel in STEPS:
            assert worst[channel] <= STEPS[channel] / 2 * (1 + 1e-3)
        else:
            # Whole pulses, and the file's speed to its four digits.
            assert [round(one, 9) for one in measured] == expected
            assert all(reading.raw == round(reading.raw or 0.0) for reading in got)
    for channel, deviation in worst.items():
        record_property(channel, f"{deviation:.2g}")
        print(f"{mast_file.name} {channel}: {deviation:.3g}")  # noqa: T201 - with pytest -s, for the docs


def test_every_modbus_register_comes_back_within_its_quantisation(made_file: Path) -> None:
    readings, truth = sampled(made_file, MODBUS_MAST, 1.0), figures(made_file)
    assert set(readings) == set(MODBUS_STEPS)
    for channel, step in MODBUS_STEPS.items():
        measured = [math.nan if reading.value is None else reading.value for reading in readings[channel]]
        worst = max(abs(one - other) for one, other in zip(measured, truth[channel], strict=True))
        assert worst <= step / 2 * (1 + 1e-9)
        print(f"{made_file.name} Modbus {channel}: {worst:.3g}")  # noqa: T201 - with pytest -s, for the docs


OTHERS = (
    fitted("air", "scd4x"),
    fitted("gps", "gpsd", latitude=27.7, longitude=85.5),
    fitted(
        "baro",
        "iio",
        device="ads1015",
        channels=(IioChannel(QUANTITIES["pressure"], "in_voltage0", slope=21.79, offset=10.55),),
    ),
)
OTHER_COLUMNS: Mapping[str, str | ReplayColumn] = {
    "air": ReplayColumn("solar_irradiance_w_m2", offset=400.0),
    "gps": "wind_speed_primary_m_s",
    "baro": NRG_COLUMNS["baro"],
}
OTHER_STEPS = {"air": 1.0, "gps": 1e-6, "baro": 21.79 * 0.003}
"""Whole ppm, doubles of degrees, 3 mV of an ADS1015 at 6.144 V."""


def test_every_reading_of_chips_and_receivers_comes_back(made_file: Path) -> None:
    truth = figures(made_file)
    expected = {
        "air": [400 + value for value in truth["sun.irradiance"][::5]],
        "gps": truth["cup-a.wind_speed"],
        "baro": truth["baro.pressure"],
    }
    samples = sample(replayed(made_file, OTHERS, OTHER_COLUMNS), OTHERS, {"air": 5.0})
    for name, step in OTHER_STEPS.items():
        values = [one.value for one in samples[name]]
        worst = max(abs(one - other) for one, other in zip(values, expected[name], strict=True))
        assert worst <= step / 2 * (1 + 1e-9)
        print(f"{made_file.name} {name}: {worst:.3g}")  # noqa: T201 - with pytest -s, for the docs
