"""Imports hardware libraries without letting them write on standard output.

Away from a Raspberry Pi the Adafruit libraries print a warning there, in the middle of what ``--json`` says.
Drivers import them in threads of their own: what other threads write meanwhile is let through.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
import sys
import threading
from types import ModuleType
from typing import Any, TextIO, cast

from drivers.interface import BoardError

_log = logging.getLogger(__name__)
_one_at_a_time = threading.Lock()


class _Aside:
    """Keeps what one thread writes, until it is done; in all else it is the stream it stands for."""

    def __init__(self, through: TextIO) -> None:
        self._through = through
        self._thread: int | None = threading.get_ident()
        self.said = io.StringIO()

    def write(self, text: str) -> int:
        mine = threading.get_ident() == self._thread
        return (self.said if mine else self._through).write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._through, name)

    def done(self) -> None:
        """Who still holds this writes through it."""
        self._thread = None


def quiet_import(module: str, remedy: str) -> ModuleType:
    """Import a hardware library; what it prints goes to the log. Raises BoardError naming the remedy."""
    with _one_at_a_time:
        if module in sys.modules:
            return importlib.import_module(module)
        aside = _Aside(sys.stdout)
        try:
            with contextlib.redirect_stdout(cast(TextIO, aside)):
                return importlib.import_module(module)
        except (ImportError, RuntimeError, NotImplementedError, AttributeError, OSError) as error:
            raise BoardError(f"{module} can't be loaded ({error}): {remedy}") from error
        finally:
            aside.done()
            if said := aside.said.getvalue().strip():
                _log.debug("event=driver.import module=%s said=%r", module, said)
