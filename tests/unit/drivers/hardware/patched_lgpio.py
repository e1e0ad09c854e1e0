"""rpi-lgpio and lgpio as they are, over pins that don't exist.

Only lgpio's calls into its C library are replaced. Edges go the real way: as reports through the named pipe
that lgpio made, to its thread, which takes them apart and calls rpi-lgpio, which calls what
``add_event_detect`` was given.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import struct
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from drivers.hardware.rpi_gpio import gpio_library

REPORT: Final = struct.Struct("QBBBBI")
INPUT, ALERT, PULL_UP, FALLING = 0x100, 0x400, 0x20, 2
_PI_4B = "c03111"
_SENTINEL_PIN = 53
_CHIP = 0
_REPLACED: Final = (
    "gpiochip_open", "gpio_get_mode", "gpio_read", "gpio_claim_input", "gpio_claim_alert", "gpio_free",
    "gpio_set_debounce_micros",
)  # fmt: skip


class PatchedLgpio:
    """The chip beneath lgpio. ``claims`` lists the requests: kind, pin, edges, bias."""

    def __init__(self, lgpio: Any) -> None:
        self.lgpio = lgpio
        self.claims: list[tuple[str, int, int, int]] = []
        self.levels: dict[int, int] = {}
        self.busy: set[int] = set()
        self._modes: dict[int, int] = {}
        pipe = Path(os.environ["LG_WD"]) / f".lgd-nfy{lgpio._notify_thread._notify}"
        self._pipe = os.open(pipe, os.O_WRONLY)
        self._arrived = threading.Event()
        self._sentinel = lgpio.callback(_CHIP, _SENTINEL_PIN, func=lambda *_report: self._arrived.set())

    def fall(self, *pins: int) -> None:
        """One falling edge for each pin named, in this order; only claimed pins are reported."""
        reports = (REPORT.pack(0, _CHIP, pin, 0, 0, 0) for pin in pins if self._modes.get(pin, 0) & ALERT)
        self._write(b"".join(reports))

    def settle(self) -> None:
        """Wait until all edges so far have been called back."""
        self._arrived.clear()
        self._write(REPORT.pack(0, _CHIP, _SENTINEL_PIN, 0, 0, 0))
        assert self._arrived.wait(60), "lgpio's thread doesn't read its pipe"

    def close(self) -> None:
        self._sentinel.cancel()
        os.close(self._pipe)

    def _write(self, reports: bytes) -> None:
        while reports:
            # What fits into the pipe at once is written whole.
            written = os.write(self._pipe, reports[:4096])
            reports = reports[written:]

    def gpiochip_open(self, _number: int) -> int:
        return _CHIP

    def gpio_get_mode(self, _chip: int, pin: int) -> int:
        return self._modes.get(pin, 0)

    def gpio_read(self, _chip: int, pin: int) -> int:
        return self.levels.get(pin, 1)

    def gpio_claim_input(self, _chip: int, pin: int, bias: int = 0) -> int:
        self._check_free(pin)
        self.claims.append(("input", pin, 0, bias))
        self._modes[pin] = INPUT | bias
        return 0

    def gpio_claim_alert(self, _chip: int, pin: int, edges: int, bias: int = 0, _notify: Any = None) -> int:
        self._check_free(pin)
        self.claims.append(("alert", pin, edges, bias))
        self._modes[pin] = ALERT | bias | edges << 17
        return 0

    def gpio_set_debounce_micros(self, _chip: int, pin: int, micros: int) -> int:
        self.claims.append(("debounce", pin, micros, 0))
        return 0

    def gpio_free(self, _chip: int, pin: int) -> int:
        self._modes.pop(pin, None)
        return 0

    def _check_free(self, pin: int) -> None:
        if pin in self.busy:
            raise self.lgpio.error("GPIO busy")


@contextmanager
def patched_lgpio(monkeypatch: pytest.MonkeyPatch) -> Iterator[PatchedLgpio]:
    """rpi-lgpio on a Pi 4 whose chip is ours. CI may not lack it: its environment is as new as the lock."""
    if importlib.util.find_spec("lgpio") is None and (sys.version_info >= (3, 13) or "CI" not in os.environ):
        pytest.skip(
            "rpi-lgpio isn't installed: run make setup (there is no wheel of its lgpio for Python 3.13)"
        )
    monkeypatch.setenv("RPI_LGPIO_REVISION", _PI_4B)
    gpio: Any = gpio_library()
    lgpio = importlib.import_module("lgpio")
    chip = PatchedLgpio(lgpio)
    for name in _REPLACED:
        monkeypatch.setattr(lgpio, name, getattr(chip, name))
    try:
        yield chip
    finally:
        chip.busy.clear()
        if gpio.getmode() is not None:
            gpio.cleanup(list(range(28)))
        chip.close()
        for name in ("RPi.GPIO", "RPi"):
            sys.modules.pop(name, None)
