"""The library that offers the RPi.GPIO interface here: RPi.GPIO itself, or rpi-lgpio over lgpio.

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
from pathlib import Path
from typing import Any, Final

from drivers.hardware.quiet_import import quiet_import
from drivers.interface import BoardError

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
