"""How many bodies of posted readings are in memory, and whose. Any thread may use it.

A device may have two at a time, so that slow ones of its own keep no other waiting. Where there are no tokens
nobody can tell clients apart (they are all of this machine): then whoever has been slow for two seconds
makes room for the next.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

MOST: Final = 8
MOST_OF_ONE: Final = 2
SLOW_S: Final = 2.0


class Place:
    """Of one body: of which device, and since when it comes."""

    def __init__(self, device: str | None, since_s: float) -> None:
        self.device = device
        self.since_s = since_s
        self.given_up = threading.Event()
        """It takes too long, and another one needs the place."""


class Bodies:
    """The places that there are."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        # The oldest first.
        self._taken: list[Place] = []
        self._lock = threading.Lock()

    @property
    def taken(self) -> int:
        """How many are taken."""
        return len(self._taken)

    def take(self, device: str | None) -> Place | None:
        """A place for a device's next body; None where it has to wait."""
        now_s = self._monotonic()
        with self._lock:
            if device is not None and sum(each.device == device for each in self._taken) >= MOST_OF_ONE:
                return None
            if len(self._taken) >= MOST:
                oldest = self._taken[0]
                if now_s < oldest.since_s + SLOW_S:
                    return None
                # It lets go of its bytes within half a second, so there are twice as many at most.
                oldest.given_up.set()
                del self._taken[0]
            place = Place(device, now_s)
            self._taken.append(place)
            return place

    def give_back(self, place: Place) -> None:
        """The body has been read, or never will be."""
        with self._lock:
            if place in self._taken:
                self._taken.remove(place)
