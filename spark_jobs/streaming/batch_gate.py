"""Stops a query between two batches.

Spark stops a query by interrupting its batch, which would be repeated at the next start: harmless, but slow,
and logged with pages of stack traces.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from pyspark.sql import DataFrame

from spark_jobs.platform.errors import JobError

Batch = Callable[[DataFrame, int], None]

PATIENCE_S: Final = 15.0
"""How long batches under way may take to end once the jobs are to stop; then they are interrupted."""


class BatchGate:
    """Open while a query may run batches; once it ``is_shut`` no further one begins.

    ``failure`` is what the last one raised, as it was raised.
    """

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self.is_shut = False
        self._busy = threading.Lock()

    def guard(self, batch: Batch) -> Batch:
        """The batch function, refused once the gate is shut."""

        def guarded(rows: DataFrame, number: int) -> None:
            with self._busy:
                if self.is_shut:
                    # It would count as done otherwise.
                    raise JobError("stopping")
                try:
                    batch(rows, number)
                except Exception as error:
                    # Spark's account of it is a page in which this is one line.
                    self.failure = error
                    raise

        return guarded

    def shut(self) -> None:
        """Lets no further batch begin."""
        self.is_shut = True

    def wait(self, deadline: float) -> bool:
        """Waits for the batch under way until this monotonic second; whether it has ended."""
        if not self._busy.acquire(timeout=max(0.0, deadline - time.monotonic())):
            return False
        self._busy.release()
        return True

    def close(self) -> None:
        """Lets no further batch begin and waits for the one under way, at most PATIENCE_S."""
        self.shut()
        self.wait(time.monotonic() + PATIENCE_S)
