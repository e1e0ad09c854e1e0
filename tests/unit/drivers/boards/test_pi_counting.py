"""Cups on the Raspberry Pi board: through rpi-lgpio's real callbacks, and by the kernel's numbers."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from drivers.boards.pi import PiBoard
from drivers.boards.registry import BOARDS, PiOptions
from drivers.hall_anemometer import HallAnemometer, HallAnemometerOptions, fastest_hz
from drivers.interface import BoardError, Diagnoses, ReadError
from tests.unit.drivers.hardware.emulated_kernel import EmulatedKernel
from tests.unit.drivers.hardware.patched_lgpio import ALERT, FALLING, PULL_UP, PatchedLgpio, patched_lgpio

PINS = (17, 27, 22, 5, 6, 13)
NRG: dict[str, Any] = {"slope": 0.765, "offset": 0.35}
THIES: dict[str, Any] = {"slope": 0.0462, "offset": 0.21}
NO_CHIP = EmulatedKernel({})


@pytest.fixture
def lgpio(monkeypatch: pytest.MonkeyPatch) -> Iterator[PatchedLgpio]:
    with patched_lgpio(monkeypatch) as chip:
        yield chip


@dataclass
class Pins:
    """A Pi board with seconds moved by hand, and how to make edges on it."""

    board: PiBoard
    fall: Callable[..., None]
    settle: Callable[[], None]
    seconds: list[float] = field(default_factory=lambda: [100.0])

    def cup(self, pin: int = 17, **options: Any) -> HallAnemometer:
        return HallAnemometer(self.board, HallAnemometerOptions(pin, **(options or NRG)))

    def pass_s(self, seconds: float) -> None:
        self.settle()
        self.seconds[0] += seconds


def by_callbacks(lgpio: PatchedLgpio) -> Pins:
    seconds = [100.0]
    board = PiBoard(PiOptions("rpi-gpio"), NO_CHIP, lambda: seconds[0])
    return Pins(board, lgpio.fall, lgpio.settle, seconds)


def by_the_kernel() -> Pins:
    seconds = [100.0]
    kernel = EmulatedKernel()
    stamp_ns = [0]

    def fall(*pins: int) -> None:
        for pin in pins:
            stamp_ns[0] += 10_000_000
            kernel.fall(pin, [stamp_ns[0]])

    return Pins(PiBoard(PiOptions("kernel"), kernel, lambda: seconds[0]), fall, lambda: None, seconds)


@pytest.fixture(params=["rpi-gpio", "kernel"])
def pins(request: pytest.FixtureRequest) -> Pins:
    return by_callbacks(request.getfixturevalue("lgpio")) if request.param == "rpi-gpio" else by_the_kernel()


def test_a_pin_is_claimed_with_its_pull_up_for_falling_edges_and_without_debounce(
    lgpio: PatchedLgpio,
) -> None:
    cup = by_callbacks(lgpio).cup()
    cup.start()
    assert lgpio.claims == [("input", 17, 0, PULL_UP), ("alert", 17, FALLING, PULL_UP)]
    assert lgpio.gpio_get_mode(0, 17) & ALERT
    cup.stop()
    assert lgpio.gpio_get_mode(0, 17) == 0


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    st.lists(
        st.tuples(
            st.tuples(*[st.one_of(st.integers(0, 1082), st.just(1082))] * 6),
            st.floats(0.5, 2.0, allow_nan=False),
            st.integers(0, 2**32),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_six_cups_at_up_to_1082_hz_count_every_edge(
    lgpio: PatchedLgpio, seconds: list[tuple[tuple[int, ...], float, int]]
) -> None:
    pins = by_callbacks(lgpio)
    cups = [pins.cup(pin, **THIES) for pin in PINS]
    for cup in cups:
        cup.start()
    try:
        for pulses, elapsed_s, seed in seconds:
            train = [pin for pin, count in zip(PINS, pulses, strict=True) for _ in range(count)]
            random.Random(seed).shuffle(train)
            pins.fall(*train)
            before = pins.seconds[0]
            pins.pass_s(elapsed_s)
            elapsed = pins.seconds[0] - before
            assert [cup.read()[0].raw for cup in cups] == [count / elapsed for count in pulses]
    finally:
        for cup in cups:
            cup.stop()


def test_edges_that_come_while_cups_are_read_are_counted_once(lgpio: PatchedLgpio, full: bool) -> None:
    pins = by_callbacks(lgpio)
    cups = [pins.cup(pin, **THIES) for pin in PINS]
    for cup in cups:
        cup.start()
    turns = 20 * 1082 if full else 1082
    writer = threading.Thread(target=lambda: pins.fall(*PINS * turns))
    writer.start()
    counted = [0.0] * len(cups)

    def read() -> None:
        pins.seconds[0] += 1.0
        for position, cup in enumerate(cups):
            counted[position] += cup.read()[0].raw

    while writer.is_alive():
        read()
    writer.join(60)
    pins.settle()
    read()
    for cup in cups:
        cup.stop()
    assert counted == [turns] * len(cups)


def test_a_reading_is_the_pulses_over_the_measured_time(pins: Pins) -> None:
    cup = pins.cup()
    cup.start()
    pins.fall(*[17] * 9)
    pins.pass_s(1.0)
    assert cup.read()[0].raw == 9.0
    pins.fall(*[17] * 9)
    pins.pass_s(0.75)
    reading = cup.read()[0]
    assert (reading.raw, reading.value, reading.reasons) == (12.0, 0.765 * 12.0 + 0.35, ())
    cup.stop()


def test_pulses_while_stopped_dont_count_and_another_driver_can_take_over(pins: Pins) -> None:
    first, second = pins.cup(), pins.cup()
    with pytest.raises(ReadError, match="isn't started"):
        first.read()
    first.start()
    first.stop()
    first.stop()
    pins.fall(*[17] * 5)
    second.start()
    pins.fall(*[17] * 4)
    pins.pass_s(2.0)
    assert second.read()[0].raw == 2.0
    second.stop()
    first.start()
    pins.fall(17)
    pins.pass_s(1.0)
    assert first.read()[0].raw == 1.0
    first.stop()


def test_a_start_that_fails_gives_the_pin_back_for_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = EmulatedKernel()
    seconds = [100.0]
    cup = HallAnemometer(
        PiBoard(PiOptions("kernel"), kernel, lambda: seconds[0]), HallAnemometerOptions(17, **NRG)
    )
    requested = []

    def interrupts(number: int) -> list[int]:
        requested.append(number)
        if len(requested) == 2:
            raise OSError(5, "Input/output error")
        return [0, 0, 0, 0]

    monkeypatch.setattr(kernel, "interrupts", interrupts)
    with pytest.raises(ReadError, match="interrupts of BCM pin 17 can't be read"):
        cup.start()
    assert kernel.open_fds == {}
    cup.start()
    seconds[0] += 1.0
    assert cup.read()[0].value == 0.0
    cup.stop()
    assert kernel.open_fds == {}


def test_a_noise_burst_is_counted_flagged_and_reported(pins: Pins) -> None:
    cup = pins.cup()
    assert isinstance(cup, Diagnoses)
    cup.start()
    pins.fall(*[17] * 98)
    pins.pass_s(1.0)
    # 98 pulses enclose 97 of the 97.6 that 75 m/s have in a second.
    assert fastest_hz(HallAnemometerOptions(17, **NRG)) == pytest.approx(97.58, abs=0.01)
    assert cup.read()[0].reasons == ()
    pins.fall(*[17] * 5000)
    pins.pass_s(1.0)
    reading = cup.read()[0]
    assert (reading.raw, reading.value, reading.reasons) == (5000.0, 0.765 * 5000 + 0.35, ("NOISY",))
    (fault,) = cup.diagnose()
    assert "no wind makes (5000 Hz" in fault
    assert "pull-up is missing" in fault
    pins.fall(*[17] * 10)
    pins.pass_s(1.0)
    assert cup.read()[0].reasons == ()
    assert cup.diagnose() == ()
    cup.stop()
    assert cup.diagnose() == ()


def test_two_pulses_too_close_for_any_wind_are_noise_where_the_kernel_stamps_them() -> None:
    pins = by_the_kernel()
    kernel = pins.board._kernel
    assert isinstance(kernel, EmulatedKernel)
    cup = pins.cup()
    cup.start()
    # 75 m/s are a pulse each 10.25 ms; half of that is still a rotor with unevenly set magnets.
    kernel.fall(17, [0, 5_200_000, 100_000_000])
    pins.pass_s(1.0)
    assert cup.read()[0].reasons == ()
    kernel.fall(17, [1_000_000_000, 1_100_000_000, 1_100_400_000])
    pins.pass_s(1.0)
    reading = cup.read()[0]
    assert (reading.raw, reading.reasons) == (3.0, ("NOISY",))
    assert "1 times too close together" in cup.diagnose()[0]
    # Nor are there events of their own for pulses that the kernel can't separate.
    kernel.fall(17, [2_000_000_000])
    kernel.crowd(17, 3)
    pins.pass_s(1.0)
    reading = cup.read()[0]
    assert (reading.raw, reading.reasons) == (4.0, ("NOISY",))
    cup.stop()


def test_a_line_that_is_stuck_low_and_one_that_is_silent_are_distinguished(lgpio: PatchedLgpio) -> None:
    pins = by_callbacks(lgpio)
    cup = pins.cup()
    cup.start()
    pins.pass_s(12.0)
    cup.read()
    (silent,) = cup.diagnose()
    assert silent.startswith("No pulse has come on BCM pin 17 in 12 s: right for a cup at rest.")
    lgpio.levels[17] = 0
    (stuck,) = cup.diagnose()
    assert stuck.startswith("BCM pin 17 is low and no pulse comes: its signal wire touches ground")
    pins.fall(17)
    pins.pass_s(1.0)
    cup.read()
    assert cup.diagnose() == ()
    cup.stop()


def test_a_pin_that_another_program_has_is_a_board_error_with_a_remedy(lgpio: PatchedLgpio) -> None:
    lgpio.busy.add(17)
    with pytest.raises(BoardError, match=r"BCM pin 17 can't be watched for edges \('GPIO busy'\).*rpi-lgpio"):
        by_callbacks(lgpio).cup().start()


def test_the_kernel_counts_unless_the_config_says_otherwise() -> None:
    board = PiBoard(BOARDS["raspberry-pi"](), EmulatedKernel())
    cup = HallAnemometer(board, HallAnemometerOptions(17, 0.765))
    assert cup.description() == {}
    cup.start()
    assert cup.description() == {"counted_by": "the kernel's interrupt count"}


@pytest.mark.parametrize(
    ("kernel", "message"), [(NO_CHIP, "no /dev/gpiochip"), (EmulatedKernel(old=True), '"rpi-gpio"')]
)
def test_a_kernel_that_counts_no_pulses_is_an_error_with_a_remedy(
    kernel: EmulatedKernel, message: str
) -> None:
    cup = HallAnemometer(PiBoard(PiOptions(), kernel), HallAnemometerOptions(17, 0.765))
    with pytest.raises(BoardError, match=message):
        cup.start()


def test_lgpios_import_neither_moves_the_process_nor_leaves_a_pipe(
    tmp_path: Path, lgpio: PatchedLgpio
) -> None:
    program = """
import json, os
from drivers.hardware.rpi_gpio import gpio_library
gpio_library()
print(json.dumps([os.getcwd(), os.listdir("."), os.environ["LG_WD"]]))
"""
    environment = {**os.environ, "RPI_LGPIO_REVISION": "c03111", "TMPDIR": str(tmp_path)}
    environment.pop("LG_WD", None)
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    home = tmp_path / "home"
    home.mkdir()
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=60, env=environment, cwd=home
    )
    where, left, pipes = json.loads(done.stdout)
    assert (where, left) == (str(home), [])
    assert Path(pipes).parent == tmp_path
    assert not Path(pipes).exists()


def test_pulses_are_divided_by_a_time_that_no_time_server_slews(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "clock_gettime", {time.CLOCK_MONOTONIC_RAW: 5.0}.__getitem__)
    assert PiBoard().monotonic() == 5.0
