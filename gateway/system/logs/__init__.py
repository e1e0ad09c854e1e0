"""Where the daemon's log goes: the journal with fields, or standard error; bounded either way.

``journal`` speaks to systemd-journald, ``log_fields`` finds the fields in a line's template, ``bounded``
holds repetitions back, ``catalog`` says what each event means; ``set_up`` puts them together.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping

from gateway.system.logs.journal import SOCKET, Journal, goes_to_journal
from gateway.system.logs.rate_limit import Bounded

__all__ = ["Bounded", "set_up"]

_LINE = "%(asctime)s level=%(levelname)s %(name)s %(message)s"


def set_up(environ: Mapping[str, str] = os.environ, socket_path: str = SOCKET) -> Bounded:
    """Log from INFO on: to the journal where standard error is connected to it, else to standard error.

    The answer's ``tell_overdue`` has to be called every now and then.
    """
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(logging.Formatter(_LINE))
    journal = Journal(socket_path, lines) if goes_to_journal(environ) else None
    bounded = Bounded(journal or lines)
    logging.basicConfig(level=logging.INFO, handlers=[bounded])
    return bounded
