"""A relay on an emulated pin and on an emulated kernel's: levels, safe state, minimum times."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from drivers.boards.pi import PiBoard
from drivers.boards.registry import SimulatedOptions, open_board
from drivers.emulation.board import EmulatedBoard
from drivers.interface import BoardError
from drivers.relay import Relay, RelayOptions
from tests.unit.drivers.hardware.emulated_kernel import EmulatedKernel

PULL_UP, PULL_DOWN = 0x100, 0x200


class Time:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.mark.parametrize("active", ["high", "low"])
@pytest.mark.parametrize("safe", ["off", "on"])
def test_the_kernel_drives_the_safe_level_from_the_claim_on(active: str, safe: str) -> None:
    kernel = EmulatedKernel()
    relay = Relay(PiBoard(kernel=kernel), RelayOptions(pin=23, active=active, safe=safe), Time())  # type: ignore[arg-type]
    level = (safe == "on") == (active == "high")
    relay.start()
    assert (kernel.driven, kernel.taken) == ({23: [level]}, {23: "fieldgate-23"})
    # Where a released pin becomes an input, its pull keeps the safe level.
    assert kernel.pulls == {23: PULL_UP if level else PULL_DOWN}
    assert relay.switch(safe == "off")
    relay.stop()
    assert kernel.driven[23] == [level, not level, level]
    assert (relay.on, kernel.taken, kernel.open_fds) == (None, {}, {})


def test_a_pin_that_another_program_has_is_named_with_it() -> None:
    relay = Relay(PiBoard(kernel=EmulatedKernel(taken={23: "fan-control"})), RelayOptions(pin=23), Time())
    with pytest.raises(BoardError, match="BCM pin 23 is in use by 'fan-control': use another pin"):
        relay.start()
    assert relay.on is None
    relay.stop()


def test_a_pin_that_cannot_be_driven_is_released() -> None:
    kernel = EmulatedKernel()
    relay = Relay(PiBoard(kernel=kernel), RelayOptions(pin=23), Time())
    relay.start()
    kernel.broken = True
    with pytest.raises(BoardError, match="the level of BCM pin 23 can't be set"):
        relay.switch(True)
    assert (relay.on, kernel.open_fds) == (None, {})
    kernel.broken = False
    relay.start()
    assert relay.switch(True)


def test_who_has_a_pin_is_seen_without_claiming_it() -> None:
    kernel = EmulatedKernel(taken={23: "w1", 24: ""})
    board = PiBoard(kernel=kernel)
    assert [board.pin_user(pin) for pin in (22, 23, 24)] == [None, "'w1'", "another program"]
    assert (kernel.open_fds, kernel.driven) == ({}, {})
    old = EmulatedKernel(old=True)
    with pytest.raises(BoardError, match=r"BCM pin 23 can't be driven by this kernel, before 5\.10"):
        PiBoard(kernel=old).pin_user(23)
    assert old.open_fds == {}


def simulated(directory: Path, file: str | None = None) -> EmulatedBoard:
    board = open_board(SimulatedOptions(pins_file=file), (), directory)
    assert isinstance(board, EmulatedBoard)
    return board


def test_minimum_times_count_from_the_last_switching_and_from_the_start(tmp_path: Path) -> None:
    time = Time()
    board = simulated(tmp_path)
    relay = Relay(board, RelayOptions(pin=23, min_on_s=60, min_off_s=10), time)
    relay.start()
    time.now_s += 9.9
    assert not relay.switch(True)
    time.now_s += 0.1
    assert relay.switch(True)
    assert board.outputs.high == {23: True}
    time.now_s += 59
    assert not relay.switch(False)
    assert relay.switch(False, at_once=True)
    assert board.outputs.high == {23: False}


def test_an_emulated_pin_is_claimed_once_and_never_as_both(tmp_path: Path) -> None:
    board = simulated(tmp_path)
    counter = board.count_edges(17)
    output = board.drive(23, high=True, pull_up=True)
    for pin in (17, 23):
        with pytest.raises(BoardError, match=f"BCM pin {pin} is in use"):
            board.drive(pin, high=True, pull_up=True)
    assert [board.pin_user(pin) for pin in (17, 23, 24)] == ["this process", "this process", None]
    counter.close()
    output.close()
    board.drive(17, high=False, pull_up=False)
    assert board.outputs.high == {23: True, 17: False}


def test_levels_are_seen_from_outside_and_outlive_the_process(tmp_path: Path) -> None:
    simulated(tmp_path, "pins.json").drive(23, high=True, pull_up=True)
    assert json.loads((tmp_path / "pins.json").read_text()) == {"23": True}
    board = simulated(tmp_path, "pins.json")
    assert board.outputs.high == {23: True}
    (tmp_path / "pins.json").write_text("[]")
    with pytest.raises(BoardError, match=r"pins.json: holds no pins' levels .*: delete it"):
        simulated(tmp_path, "pins.json")
