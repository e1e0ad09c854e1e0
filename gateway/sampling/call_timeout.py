"""One thread's calls of a driver, watched by another thread, which abandons one that hangs.

Both threads agree on the outcome of each call: either its result counts, or it was abandoned and its result
is discarded.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


class CallAbandoned(Exception):
    """The call returned after it was abandoned; its result is discarded and its thread ends."""


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One call of a driver, and the seconds after which it counts as hung."""

    timeout_s: float


class TimedCall:
    """The calls of one driver by one thread, watched by another.

    ``current`` is the call that has not returned yet. ``returning`` is set when an abandoned call returns,
    before the driver is stopped; ``released`` after that. Until then the hardware may still be the old
    driver's.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.current: Call | None = None
        self.abandoned = False
        self.returning = threading.Event()
        self.released = threading.Event()

    @contextmanager
    def call(self, timeout_s: float) -> Iterator[None]:
        """Call the driver in the body. Raises CallAbandoned, whatever the driver raised, once abandoned."""
        with self._lock:
            self.current = Call(timeout_s)
        try:
            yield
        finally:
            with self._lock:
                self.current = None
                abandoned = self.abandoned
            if abandoned:
                self.returning.set()
                raise CallAbandoned

    def abandon(self, call: Call) -> bool:
        """Abandon a call; False where it has returned."""
        with self._lock:
            if self.current is not call:
                return False
            self.abandoned = True
            return True
