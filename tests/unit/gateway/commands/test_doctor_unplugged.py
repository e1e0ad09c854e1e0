"""A station whose wires come off, each in turn: doctor reports where, and nothing of the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from drivers.boards.registry import BOARDS, open_board
from drivers.emulation.faults import Fault
from drivers.interface import Board
from gateway.commands.doctor.examine import hardware
from gateway.config import Config, load
from gateway.sampling.sensors import fitted_sensors
from tests.unit.gateway.commands.doctor_cases import START, Machine

RIVER = Path(__file__).parents[4] / "docs" / "examples" / "river.toml"


def found(directory: Path, *faults: Fault) -> list[tuple[str, str]]:
    """State and words of what isn't well with the example's sensors, read once a second."""
    path = directory / "gateway.toml"
    path.write_text(RIVER.read_text().replace("interval_s = 60\n", "").replace("interval_s = 10\n", ""))

    def opened(config: Config) -> Board:
        options = BOARDS["simulated"](seed=1, speed=1_000_000.0, start=START, faults=faults)
        return open_board(options, fitted_sensors(config), Path(), config.gateway)

    machine = Machine().host(directory / "pi")
    return [
        (each.state, each.found)
        for each in hardware(load(path, {}), machine, opened)
        if each.subject == "sensor" and each.state != "ok"
    ]


def test_all_is_well(tmp_path: Path) -> None:
    assert found(tmp_path) == []


@pytest.mark.parametrize(
    ("sensor", "state", "words"),
    [
        ("level", "error", "0 mA is less than 3.6: the loop is broken or has no supply"),
        ("wind", "warning", "no voltage: the vane points into its dead band, or the wire of the wiper"),
        ("water", "error", "no thermometer answers on a 1-Wire bus: check its wires"),
    ],
)
def test_each_wire_that_is_off_is_named(tmp_path: Path, sensor: str, state: str, words: str) -> None:
    problems = found(tmp_path, Fault(sensor, "open-input"))
    assert all(text.startswith(f"{sensor}: ") for _, text in problems), problems
    assert any((each, words in text) == (state, True) for each, text in problems), problems
