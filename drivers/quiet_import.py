"""Imports hardware libraries without letting them write on standard output.

Away from a Raspberry Pi the Adafruit libraries print a warning there, in the middle of what ``--json`` says.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
import sys
import threading
from types import ModuleType

from drivers.interface import BoardError

_log = logging.getLogger(__name__)
_one_at_a_time = threading.Lock()


def quiet_import(module: str, remedy: str) -> ModuleType:
    """Import a hardware library; what it prints goes to the log. Raises BoardError naming the remedy."""
    with _one_at_a_time:
        if module in sys.modules:
            return importlib.import_module(module)
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                return importlib.import_module(module)
        except (ImportError, RuntimeError, NotImplementedError, AttributeError, OSError) as error:
            raise BoardError(f"{module} can't be loaded ({error}): {remedy}") from error
        finally:
            if printed.getvalue():
                _log.debug("event=driver.import module=%s said=%r", module, printed.getvalue().strip())
