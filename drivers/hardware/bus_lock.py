"""Locks of what several sensors share, a bus or a chip: no thread waits for ever behind one that hangs."""

from __future__ import annotations

import errno
import math
import threading
import time
from typing import Final

from drivers.interface import I2cBus

LONGEST_HOLD_S: Final = 2.0
"""The Pi's I2C controller aborts a stuck transaction after a second; all others take milliseconds."""


class TimedLock:
    """A lock that is refused once its holder keeps it too long. Any thread."""

    def __init__(self, longest_s: float = LONGEST_HOLD_S) -> None:
        self._longest_s = longest_s
        self._lock = threading.Lock()
        # Infinite while it is free, and until its new holder has set it.
        self._acquired_s = math.inf

    def acquire(self) -> bool:
        """Wait for the lock; False where its holder has had it for ``longest_s`` of real time."""
        timeout_s = self._acquired_s + self._longest_s - time.monotonic()
        if not self._lock.acquire(timeout=min(max(timeout_s, 0.0), self._longest_s)):
            return False
        self._acquired_s = time.monotonic()
        return True

    def release(self) -> None:
        """Release the lock."""
        self._acquired_s = math.inf
        self._lock.release()


class SharedI2c:
    """An I2C bus under a TimedLock; a transaction that hangs costs the other sensors an OSError each.

    Adafruit's drivers spin on ``try_lock`` until it is True: behind a hung thread they would use up the
    processor, so it blocks here and raises.
    """

    def __init__(self, bus: I2cBus) -> None:
        self._lock = TimedLock()
        self.writeto = bus.writeto
        self.readfrom_into = bus.readfrom_into
        self.writeto_then_readfrom = bus.writeto_then_readfrom

    def try_lock(self) -> bool:
        """Wait for the bus. Raises OSError (EBUSY) where another sensor's transaction doesn't end."""
        if not self._lock.acquire():
            raise OSError(errno.EBUSY, "the I2C bus is held by another sensor's transaction that doesn't end")
        return True

    def unlock(self) -> None:
        """Release the bus."""
        self._lock.release()
