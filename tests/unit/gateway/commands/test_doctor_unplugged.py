"""A station whose wires come off, each in turn: doctor reports where, and nothing of the others."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from drivers.boards.registry import BOARDS, open_board
from drivers.emulation.environment import Fault
from drivers.interface import Board
from gateway.commands.doctor.command import hardware
from gateway.config import Config, load
from gateway.sampling.one_shot import OneShotRead
from gateway.sampling.sampler import fitted_sensors
from tests.support.station import DEVICES, UNPLUGGED, off, station_text
from tests.unit.gateway.commands.doctor_cases import START, Machine


def station(directory: Path) -> Config:
    """The station, each sensor read once a second."""
    path = directory / "gateway.toml"
    # Without the intervals of 10 s and a minute that the slow ones have.
    path.write_text(station_text({}, (10, 60)))
    return load(path, {})


def opened(config: Config, *faults: Fault) -> Board:
    """Its board."""
    options = BOARDS["simulated"](seed=1, speed=1_000_000.0, start=START, faults=faults)
    return open_board(options, fitted_sensors(config), Path(), config.gateway)


def found(directory: Path, *faults: Fault) -> list[tuple[str, str]]:
    """State and words of what isn't well with the station's sensors."""
    machine = Machine().host(directory / "pi")
    return [
        (each.severity, each.what)
        for each in hardware(station(directory), machine, lambda config: opened(config, *faults))
        if each.area == "sensor" and each.severity != "ok"
    ]


def test_all_is_well(tmp_path: Path) -> None:
    assert found(tmp_path) == []


@pytest.mark.parametrize("sensor", [sensor for sensor in UNPLUGGED if sensor != "rain"])
def test_each_wire_that_is_off_is_named(tmp_path: Path, sensor: str) -> None:
    problems = found(tmp_path, Fault(sensor, off(sensor)))
    names = DEVICES.get(sensor, (sensor,))
    assert {text.partition(": ")[0] for _, text in problems} == set(names)
    for name in names:
        words = [text for state, text in problems if state == UNPLUGGED[name].state]
        assert any(text.startswith(f"{name}: ") and UNPLUGGED[name].words in text for text in words), problems
    if sensor.startswith("wind"):
        assert any("has no voltage" in text and "or the wire of the wiper" in text for _, text in problems)


def test_an_open_rain_gauge_is_dry_weather(tmp_path: Path) -> None:
    assert found(tmp_path, Fault("rain", off("rain"))) == []


@pytest.mark.parametrize("sensor", UNPLUGGED)
def test_its_readings_are_flagged_and_no_others(tmp_path: Path, sensor: str) -> None:
    config, names = station(tmp_path), DEVICES.get(sensor, (sensor,))
    with closing(opened(config, Fault(sensor, off(sensor)))) as board:
        results = OneShotRead("mast-07", config.sensors, board).run(20.0)
    for result in results:
        wanted = UNPLUGGED[result.sensor] if result.sensor in names else UNPLUGGED["rain"]
        assert {(each.quality, each.reasons) for each in result.readings} == {
            (wanted.quality, wanted.reasons)
        }
