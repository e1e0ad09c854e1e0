"""What a job does every so many seconds, though its tick comes more often."""

from __future__ import annotations

import time


class Timer:
    """Due every ``every_s`` seconds; the first time at once, or not before they have passed."""

    def __init__(self, every_s: float, *, at_once: bool = True) -> None:
        self._every_s = every_s
        self._next_s = 0.0 if at_once else time.monotonic() + every_s

    def due(self) -> bool:
        """Whether it is due; if so, the next time is ``every_s`` seconds from now."""
        now_s = time.monotonic()
        if now_s < self._next_s:
            return False
        self._next_s = now_s + self._every_s
        return True

    def rest(self, seconds: float) -> None:
        """Isn't due for so long, whatever ``every_s`` is."""
        self._next_s = max(self._next_s, time.monotonic() + seconds)
