"""Where the daemon's log goes: the journal with fields, or standard error; bounded, by a thread of its own.

``fields`` finds the fields in a line's template, ``background`` is the queue and its thread, ``rate_limit``
limits repetitions, ``journal`` writes entries; ``set_up`` puts them together.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from gateway.system.logs.background import LogQueue, LogThread
from gateway.system.logs.journal import Journal, goes_to_journal
from gateway.system.logs.rate_limit import RateLimit

LINE: Final = "%(asctime)s level=%(levelname)s %(name)s %(message)s"


@contextmanager
def set_up(environ: Mapping[str, str] = os.environ) -> Iterator[None]:
    """Log from INFO on: to the journal where standard error is connected to it, else to standard error.

    At the end what is queued is written, within two seconds.
    """
    stderr = logging.StreamHandler(sys.stderr)
    stderr.setFormatter(logging.Formatter(LINE))
    queued = LogQueue()
    write = Journal(stderr).write if goes_to_journal(environ) else stderr.handle
    thread = LogThread(queued, RateLimit(write))
    root = logging.getLogger()
    root.setLevel(logging.INFO)
    root.addHandler(queued)
    thread.start()
    try:
        yield
    finally:
        root.removeHandler(queued)
        thread.stop()
