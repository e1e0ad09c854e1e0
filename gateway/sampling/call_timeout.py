"""Which call of a driver is under way, seen from outside; and who has the last word on it.

A call that hangs is given up once, at a moment the two threads agree on: either the call's result counts, or
it was given up and whatever it still says is thrown away.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


class GivenUp(Exception):
    """The call came back after it was given up: its thread has nothing more to say."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a driver, and how many seconds it may take before it counts as hung."""

    number: int
    patience_s: float


class TimedCall:
    """The calls of one driver by one thread, watched by another.

    ``returning`` is set when a call that was given up comes back, before the driver is stopped; ``released``
    after that. In between, and before, the hardware may still be the old driver's.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._number = 0
        self._under_way: Call | None = None
        self.given_up = False
        self.returning = threading.Event()
        self.released = threading.Event()

    @property
    def under_way(self) -> Call | None:
        """The call that has not come back yet."""
        return self._under_way

    @contextmanager
    def call(self, patience_s: float) -> Iterator[None]:
        """Call the driver in here. Raises GivenUp, whatever the driver raised, if nobody waits any more."""
        with self._lock:
            self._number += 1
            self._under_way = Call(self._number, patience_s)
        try:
            yield
        finally:
            with self._lock:
                self._under_way = None
                given_up = self.given_up
            if given_up:
                self.returning.set()
                raise GivenUp

    def give_up(self, call: Call) -> bool:
        """Wait for this call no longer; False where it has come back."""
        with self._lock:
            if self._under_way != call:
                return False
            self.given_up = True
            return True
