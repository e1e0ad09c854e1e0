"""Retries of writes that conflict with another commit (Delta's optimistic concurrency).

Each table has one writer job, but ``maintain``, ``replay`` and ``recalibrate`` work beside it. The second of
two commits that read or replace the same file is refused as a whole. Appends that read nothing never
conflict.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from typing import Final, TypeVar

# Without it conflicts come as plain Py4JJavaError: it has PySpark convert them.
import delta.exceptions.captured  # noqa: F401
from delta import exceptions

from cloud.backoff import backoff_s

log = logging.getLogger("fieldgate.jobs.delta")

CONFLICTS: Final = (
    exceptions.ConcurrentAppendException,
    exceptions.ConcurrentDeleteDeleteException,
    exceptions.ConcurrentDeleteReadException,
    exceptions.ConcurrentWriteException,
    exceptions.MetadataChangedException,
    exceptions.ProtocolChangedException,
)
"""Not ConcurrentTransactionException: two jobs with one app id are a mistake, not a matter of patience."""

_ATTEMPTS: Final = 8
"""Within 13 s. A compaction commits once and is done with these files: the second nearly always succeeds."""

_T = TypeVar("_T")


def retried(step: Callable[[], _T], what: str, sleep: Callable[[float], None] = time.sleep) -> _T:
    """The result of ``step``, done again where another commit came before its own.

    ``step`` reads the table each time. Raises the last conflict.
    """
    for attempt in range(1, _ATTEMPTS):
        try:
            return step()
        except CONFLICTS as conflict:
            # Two that wait equally long would meet again.
            pause_s = backoff_s(attempt, 0.1, 6.4) * random.uniform(0.5, 1.5)  # noqa: S311 - no secret
            figures = what, attempt, pause_s, type(conflict).__name__
            log.info("event=delta.conflict what=%s attempt=%d wait_s=%.2f kind=%s", *figures)
            sleep(pause_s)
    return step()
