"""Turns at what several sensors share: a bus, a chip. Nobody waits for ever behind a thread that hangs."""

from __future__ import annotations

import errno
import math
import threading
import time
from typing import Final

from drivers.interface import I2cBus

LONGEST_TURN_S: Final = 2.0
"""The Pi's I2C controller gives a stuck transaction up after a second; all others take milliseconds."""


class Turns:
    """A lock that is refused, not waited for, once the one who has it keeps it too long. Any thread."""

    def __init__(self, longest_s: float = LONGEST_TURN_S) -> None:
        self._longest_s = longest_s
        self._lock = threading.Lock()
        # Infinite while nobody has it, and until the one who has just taken it says when.
        self._taken_at = math.inf

    def take(self) -> bool:
        """Wait for one's turn; False where the holder has had it for ``longest_s`` of real time."""
        patience_s = self._taken_at + self._longest_s - time.monotonic()
        if not self._lock.acquire(timeout=min(max(patience_s, 0.0), self._longest_s)):
            return False
        self._taken_at = time.monotonic()
        return True

    def give(self) -> None:
        """End one's turn."""
        self._taken_at = math.inf
        self._lock.release()


class SharedI2c:
    """An I2C bus whose users take turns; one that hangs in a transaction costs the others an OSError each.

    Adafruit's drivers spin on ``try_lock`` until it is True: behind a hung thread they would use up the
    processor, so it blocks here and raises.
    """

    def __init__(self, bus: I2cBus) -> None:
        self._turns = Turns()
        self.writeto = bus.writeto
        self.readfrom_into = bus.readfrom_into
        self.writeto_then_readfrom = bus.writeto_then_readfrom

    def try_lock(self) -> bool:
        """Wait for the bus. Raises OSError (EBUSY) where another sensor's transaction doesn't end."""
        if not self._turns.take():
            raise OSError(errno.EBUSY, "the I2C bus is held by another sensor's transaction that doesn't end")
        return True

    def unlock(self) -> None:
        """Give the bus back."""
        self._turns.give()
