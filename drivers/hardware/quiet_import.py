"""Imports hardware libraries without letting them write on standard output.

Away from a Raspberry Pi the Adafruit libraries print a warning there, in the middle of ``--json`` output.
Drivers import them in threads of their own: other threads' output passes meanwhile.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
import sys
import threading
from types import ModuleType
from typing import Any, Final, TextIO, cast

from drivers.interface import BoardError

_log = logging.getLogger(__name__)
_one_at_a_time = threading.Lock()

INSTALL: Final = "install fieldgate with the extra 'pi'"


class _Capture:
    """Captures one thread's output until ``done``; passes everything else to the stream."""

    def __init__(self, through: TextIO) -> None:
        self._through = through
        self._thread: int | None = threading.get_ident()
        self.captured = io.StringIO()

    def write(self, text: str) -> int:
        mine = threading.get_ident() == self._thread
        return (self.captured if mine else self._through).write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._through, name)

    def done(self) -> None:
        """Pass all output from now on: a library may have kept this stream."""
        self._thread = None


def quiet_import(module: str, remedy: str) -> ModuleType:
    """Import a hardware library; what it prints goes to the log. Raises BoardError naming the remedy."""
    with _one_at_a_time:
        if module in sys.modules:
            return importlib.import_module(module)
        capture = _Capture(sys.stdout)
        try:
            with contextlib.redirect_stdout(cast(TextIO, capture)):
                return importlib.import_module(module)
        except (ImportError, RuntimeError, NotImplementedError, AttributeError, OSError) as error:
            raise BoardError(f"{module} can't be loaded ({error}): {remedy}") from error
        finally:
            capture.done()
            if printed := capture.captured.getvalue().strip():
                _log.debug("event=driver.import module=%s printed=%r", module, printed)
