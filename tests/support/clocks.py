"""Clocks that tests move."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable


class SteppingClock:
    """Event time jumps to whatever is waited for, but for ``sets``, which happen on the way.

    Each of ``sets`` is (nanoseconds since boot, by how many nanoseconds the clock is set then, whether it is
    synchronised from then on). Boot was ten seconds before the first moment.
    """

    def __init__(
        self, now_ns: int, end_ns: int, *, synced: bool = True, sets: Iterable[tuple[int, int, bool]] = ()
    ) -> None:
        self.time_ns = now_ns
        self.end_ns = end_ns
        self.synced = synced
        self.joined = 0
        self.boot_ns = now_ns - 10_000_000_000
        self.sets = deque(sets)

    def now_ns(self) -> int:
        return self.time_ns

    def offset_ns(self) -> int:
        return self.boot_ns

    def monotonic(self) -> float:
        return (self.time_ns - self.boot_ns) / 1e9

    def set_by(self, by_ns: int) -> None:
        """Sets the clock; the end stays where it is in time since boot."""
        self.time_ns += by_ns
        self.boot_ns += by_ns
        self.end_ns += by_ns

    def join(self) -> None:
        self.joined += 1

    def leave(self) -> None:
        self.joined -= 1

    def covers(self, start_ns: int, end_ns: int) -> bool:
        return end_ns <= self.end_ns

    def wait_until(
        self, time_ns: int, offset_ns: int | None = None, unless: threading.Event | None = None
    ) -> bool:
        if unless is not None and unless.is_set():
            return False
        if offset_ns is not None and offset_ns != self.boot_ns:
            return True
        if time_ns > self.end_ns:
            return False
        if self.sets and self.sets[0][0] <= time_ns - self.boot_ns:
            since_boot_ns, by_ns, self.synced = self.sets.popleft()
            self.time_ns = max(self.time_ns, self.boot_ns + since_boot_ns)
            self.set_by(by_ns)
            return True
        self.time_ns = max(self.time_ns, time_ns)
        return True

    def wake(self) -> None:
        pass

    def stop(self) -> None:
        self.end_ns = self.time_ns


class SkippingTime:
    """Monotonic time that runs, and that a test can move on by a minute."""

    def __init__(self) -> None:
        self._skipped_s = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self._skipped_s

    def skip(self, seconds: float) -> None:
        self._skipped_s += seconds
