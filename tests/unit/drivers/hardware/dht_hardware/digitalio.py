"""A pin in place of Blinka's, beneath Adafruit's real library: its line changes in a time of its own.

Each reading of the clock or of the pin takes a microsecond of it, so what the library measures doesn't
depend on how busy this machine is.
"""

from __future__ import annotations

import os
import sys
import time
from bisect import bisect_right
from pathlib import Path
from types import TracebackType
from typing import Any

import board

from drivers.emulation.board import dht11_frame
from tests.unit.drivers.dht_lines import level_changes

_STEP_S = 1e-6
_now_s = 1000.0
_really_sleep = time.sleep
_asked = 0


def _monotonic() -> float:
    global _now_s
    _now_s += _STEP_S
    return _now_s


def _sleep(seconds: Any) -> None:
    global _now_s
    _now_s += seconds


# Only in the process of the sensor: in one that runs other tests after it, waits would have no end.
if Path(sys.argv[0]).name == "dht_process.py":
    time.monotonic = _monotonic
    time.sleep = _sleep


class Direction:
    OUTPUT = "output"
    INPUT = "input"


class Pull:
    UP = "up"


class DigitalInOut:
    def __init__(self, pin: str) -> None:
        self._pin = pin
        self._changes_us = level_changes(dht11_frame(21.7, 55.0)) if pin in (board.D4, board.D17) else []
        self._released_s = 0.0
        self.pull: str | None = None
        Path(f"{os.environ['DHT_ASKED']}-{os.getpid()}").touch()

    def __enter__(self) -> DigitalInOut:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    @property
    def direction(self) -> str:
        raise NotImplementedError

    @direction.setter
    def direction(self, direction: str) -> None:
        global _asked
        if direction == Direction.OUTPUT:
            _asked += 1
            return
        self._released_s = _now_s
        if self._pin == board.D6 or (self._pin == board.D17 and _asked == 2):
            _really_sleep(600)
        elif self._pin == board.D12:
            os._exit(9)
        elif self._pin == board.D13:
            sys.stdout.write("WARNING: edges 1 2 3\n")
            sys.stdout.flush()
            os.system("echo edges 4 5 6")  # noqa: S605 - a library's own child, on the same standard output
        elif self._pin == board.D16:
            raise RuntimeError("Timed out\nwaiting for PulseIn message")

    @property
    def value(self) -> bool:
        global _now_s
        _now_s += _STEP_S
        passed_us = (_now_s - self._released_s) * 1e6
        return bisect_right(self._changes_us, passed_us) % 2 == 0

    @value.setter
    def value(self, level: bool) -> None:
        pass
