"""The RPi.GPIO interface, by RPi.GPIO itself or rpi-lgpio over lgpio, and falling edges counted through it.

Each edge is a callback from the library's own thread. RPi.GPIO 0.7.1 and rpi-lgpio 0.6 report neither when an
edge came nor whether one was lost. Debouncing is off: rpi-lgpio's ``bouncetime`` suppresses whole trains of
quick pulses.

Importing lgpio has side effects that this module contains: a named pipe in the working directory, or with
``LG_WD`` set another working directory for the whole process (lgpio 0.2.2.0).
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from drivers.hardware.quiet_import import quiet_import
from drivers.interface import BoardError, Edges, ReadError

_REMEDY: Final = (
    "pins need a Raspberry Pi; a kernel from 5.10 on counts pulses by itself, an older one needs RPi.GPIO "
    "(Debian's python3-rpi.gpio, or the extra 'pi-legacy'); "
    'elsewhere use [board] kind = "simulated" or "replay"'
)
_MODULE: Final = "RPi.GPIO"
_DEVICE_TREE: Final = Path("/proc/device-tree/model")
_one_at_a_time: Final = threading.Lock()


def gpio_library() -> Any:
    """The module. Raises BoardError away from a Pi, unless RPI_LGPIO_REVISION names one for rpi-lgpio."""
    with _one_at_a_time:
        if _MODULE in sys.modules:
            return sys.modules[_MODULE]
        if not _DEVICE_TREE.exists() and "RPI_LGPIO_REVISION" not in os.environ:
            raise BoardError(f"this machine has no GPIO pins: {_REMEDY}")
        if "LG_WD" not in os.environ:
            directory = tempfile.mkdtemp(prefix="fieldgate-lgpio-")
            atexit.register(shutil.rmtree, directory, ignore_errors=True)
            os.environ["LG_WD"] = directory
        home = Path.cwd()
        try:
            return quiet_import(_MODULE, _REMEDY)
        finally:
            os.chdir(home)


def gpio_errors() -> tuple[type[Exception], ...]:
    """What the library raises beside the usual: lgpio has an exception class of its own."""
    error = getattr(sys.modules.get("lgpio"), "error", None)
    return (error,) if isinstance(error, type) and issubclass(error, Exception) else ()


class CallbackCounter:
    """Counts one pin by callbacks. The count only grows; ``take`` returns the difference of two snapshots.

    Resetting the count after reading it would lose an edge between the two. ``gpio`` is the module RPi.GPIO;
    ``errors`` are what it raises beside RuntimeError, ValueError and OSError.
    """

    method = "RPi.GPIO callbacks"
    timed = False

    def __init__(self, gpio: Any, pin: int, errors: tuple[type[Exception], ...]) -> None:
        """Claim the pin. Raises BoardError."""
        self._gpio: Any = None
        self._pin = pin
        self._errors: tuple[type[Exception], ...] = (RuntimeError, ValueError, OSError, *errors)
        self._count = 0
        self._taken = 0
        try:
            gpio.setmode(gpio.BCM)
            gpio.setup(pin, gpio.IN, pull_up_down=gpio.PUD_UP)
            gpio.add_event_detect(pin, gpio.FALLING, callback=self._count_edge)
        except self._errors as error:
            self._release(gpio)
            raise BoardError(
                f"BCM pin {pin} can't be watched for edges ({error}): on kernels from 6.6 on and on a Pi 5"
                ' RPi.GPIO fails so: [board] counting = "kernel" counts without it, or rpi-lgpio in its'
                " place; else another program has the pin"
            ) from error
        self._gpio = gpio

    def take(self) -> Edges:
        """The edges since the call before."""
        count, before = self._count, self._taken
        self._taken = count
        return Edges(count - before)

    def total(self) -> int:
        """All edges since the pin was claimed."""
        return self._count

    def is_high(self) -> bool:
        """The pin's level now. Raises ReadError."""
        if self._gpio is None:
            raise ReadError(f"BCM pin {self._pin} has been released")
        try:
            return bool(self._gpio.input(self._pin))
        except self._errors as error:
            raise ReadError(f"the level of BCM pin {self._pin} can't be read ({error})") from error

    def close(self) -> None:
        """Release the pin."""
        gpio, self._gpio = self._gpio, None
        if gpio is not None:
            self._release(gpio)

    def _release(self, gpio: Any) -> None:
        # A library that never had the pin complains; there is nothing left to do about it.
        with suppress(*self._errors):
            gpio.remove_event_detect(self._pin)
            gpio.cleanup(self._pin)

    def _count_edge(self, _pin: int) -> None:
        # Only the library's one callback thread writes this.
        self._count += 1
