"""Lets a query be stopped between two batches.

Spark stops a query by interrupting whatever it does; the work would be repeated at the next start, which is
harmless but slow, and says it with pages of stack traces.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from pyspark.sql import DataFrame

from spark_jobs.errors import JobError

Batch = Callable[[DataFrame, int], None]

_PATIENCE_S: Final = 20.0
"""A batch that takes longer than this to end is interrupted after all."""


class StoppingError(JobError):
    """Raised by a batch that comes after the gate was shut: it must not count as done."""


class Gate:
    """Open while a query may run batches."""

    def __init__(self) -> None:
        self._shut = False
        self._busy = threading.Lock()

    def guard(self, batch: Batch) -> Batch:
        """The batch function, refused once the gate is shut."""

        def guarded(frame: DataFrame, number: int) -> None:
            with self._busy:
                if self._shut:
                    raise StoppingError("stopping")
                batch(frame, number)

        return guarded

    def shut(self) -> None:
        """Lets no further batch begin."""
        self._shut = True

    def close(self) -> None:
        """Lets no further batch begin and waits for the one under way, at most 20 s."""
        self._shut = True
        if self._busy.acquire(timeout=_PATIENCE_S):
            self._busy.release()
