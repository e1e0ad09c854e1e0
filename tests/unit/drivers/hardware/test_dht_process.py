"""The process that times a DHT's line: the real one, with the real library, on pins that aren't there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from drivers.boards.registry import BOARDS, open_board
from drivers.dht11 import Dht11, Dht11Options
from drivers.emulation.board import dht11_frame, frame_edges
from drivers.hardware.lines import DhtLine
from drivers.interface import BoardError, ReadError
from tests.support.servers import eventually

HARDWARE = Path(__file__).parent / "dht_hardware"
ROOT = Path(__file__).parents[4]


@pytest.fixture(autouse=True)
def pins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Pins for processes to come; each that requests a conversion leaves a file."""
    # A child imports from where its parent does.
    monkeypatch.setattr(sys, "path", [str(HARDWARE), *sys.path])
    monkeypatch.setenv("DHT_ASKED", str(tmp_path / "asked"))
    yield tmp_path
    for name in ("board", "digitalio"):
        # This process may have imported them too, where no test before it did.
        if str(HARDWARE) in str(getattr(sys.modules.get(name), "__file__", "")):
            del sys.modules[name]


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def lines() -> Iterator[list[DhtLine]]:
    opened: list[DhtLine] = []
    yield opened
    for line in opened:
        line.close()


def opened(lines: list[DhtLine], pin: int, answer_s: float = 20.0, clock: Clock | None = None) -> DhtLine:
    line = DhtLine(pin, answer_s, clock or Clock())
    lines.append(line)
    line.open()
    return line


def gone(pid: int | None) -> bool:
    assert pid is not None
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_a_sensor_is_read_through_its_process_again_and_again(lines: list[DhtLine]) -> None:
    line = opened(lines, 4)
    pid = line.pid
    sent = frame_edges(dht11_frame(21.7, 55.0))
    for _ in range(3):
        edges = line.edges()
        assert len(edges) == 81
        # A reading of the pin takes a microsecond, two a round.
        assert all(abs(received - own) <= 4 for received, own in zip(edges, sent, strict=True))
    assert line.pid == pid
    line.close()
    assert gone(pid)
    line.close()


def test_the_driver_on_real_pins_reads_through_it(pins: Path) -> None:
    board = open_board(BOARDS["raspberry-pi"](), [], Path())
    sensor = Dht11(board, Dht11Options(4))
    sensor.start()
    try:
        first, second = sensor.read(), sensor.read()
    finally:
        sensor.stop()
    assert [one.value for one in first] == [one.value for one in second] == [21.7, 55.0]
    # The age of a sensor's first answer is unknown.
    assert [one.reasons for one in (*first, *second)] == [("WARMING_UP",)] * 2 + [()] * 2
    assert len(list(pins.glob("asked-*"))) == 1


def test_a_silent_line_is_an_empty_answer(lines: list[DhtLine]) -> None:
    assert len(opened(lines, 5).edges()) == 0


def test_what_libraries_print_is_no_answer(lines: list[DhtLine]) -> None:
    line = opened(lines, 13)
    for _ in range(2):
        assert len(line.edges()) == 0


def test_an_error_of_the_library_is_a_read_error_and_the_process_goes_on(lines: list[DhtLine]) -> None:
    line = opened(lines, 16)
    pid = line.pid
    for _ in range(2):
        with pytest.raises(ReadError, match="pin 16 can't be read: Timed out waiting for PulseIn message"):
            line.edges()
    assert line.pid == pid


def test_a_pin_that_isnt_there_is_a_board_error_with_the_remedy(lines: list[DhtLine]) -> None:
    with pytest.raises(BoardError, match=r"pin 26 can't be opened \(.*D26.*\): the DHT11 needs a Raspberry"):
        opened(lines, 26)
    assert lines[0].pid is None


def test_a_process_that_hangs_is_ended_and_started_again(lines: list[DhtLine]) -> None:
    clock = Clock()
    line = opened(lines, 17, 20.0, clock)
    pid = line.pid
    assert len(line.edges()) == 81
    line._answer_s = 0.2
    with pytest.raises(ReadError, match=r"pin 17 hasn't answered for 0\.2 s; it is started again"):
        line.edges()
    assert gone(pid)
    assert line.pid is None
    clock.now_s += 4.0
    with pytest.raises(ReadError, match="started again in 6 s"):
        line.edges()
    clock.now_s += 6.0
    line._answer_s = 20.0
    assert len(line.edges()) == 81
    assert line.pid not in (None, pid)


def test_a_process_that_was_killed_between_two_reads_is_started_again(lines: list[DhtLine]) -> None:
    clock = Clock()
    line = opened(lines, 4, 20.0, clock)
    assert line.pid is not None
    os.kill(line.pid, signal.SIGKILL)
    with pytest.raises(ReadError, match="has died"):
        line.edges()
    clock.now_s += 10.0
    assert len(line.edges()) == 81


GATEWAY = """
import sys
from drivers.hardware.lines import DhtLine
line = DhtLine(4)
line.open()
print(line.pid, flush=True)
sys.stdin.read()
"""


def test_the_process_ends_with_a_gateway_that_is_killed() -> None:
    gateway = subprocess.Popen(
        [sys.executable, "-c", GATEWAY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HARDWARE), str(ROOT)])},
    )  # fmt: skip
    assert gateway.stdin is not None
    assert gateway.stdout is not None
    pid = int(gateway.stdout.readline())
    gateway.kill()
    gateway.wait()
    eventually(lambda: gone(pid))
    gateway.stdin.close()
    gateway.stdout.close()


def test_ctrl_c_in_a_terminal_is_not_the_processs(lines: list[DhtLine]) -> None:
    line = opened(lines, 4)
    assert line.pid is not None
    assert os.getsid(line.pid) == line.pid
