"""A clock that moves in lock-step with its samplers.

Event time stands still while any joined sampler works. Once all of them wait, it moves to the earliest
instant waited for, and the pulses in between are made before a sampler wakes. So elapsed time is exact, and
no reading depends on how the threads are scheduled. One lock guards everything; a waiting thread makes the
step. The samplers of an instant go one after the other, unless one hangs: together, each would wait for
the interpreter's lock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

Crossing = Callable[[int, int], None]
"""Called with (t0, t1) before event time moves across [t0, t1)."""

_LONGEST_TURN_S: Final = 2.0
"""A sampler whose turn doesn't come for so long of real time begins beside the others."""


class SteppedClock:
    """Event time from ``start_ns`` to ``end_ns`` (for ever if None), at most ``speed`` times real time.

    The schedule is absolute, from ``anchor_s`` (``time.monotonic()``) or the first step on: time lost to slow
    samplers is caught up. Event time never runs ahead of ``now_ns`` (real time), where that is given: nothing
    can be sampled in the future.
    """

    synced = True

    def __init__(
        self,
        start_ns: int,
        end_ns: int | None,
        speed: float,
        crossing: Crossing,
        now_ns: Callable[[], int] | None = None,
        anchor_s: float | None = None,
    ) -> None:
        self._start_ns: Final = start_ns
        self._end_ns: Final = end_ns
        self._speed: Final = speed
        self._crossing: Final = crossing
        self._real_now_ns: Final = now_ns
        self._event_ns = start_ns
        self._anchor_s = anchor_s
        self._lock = threading.RLock()
        self._joined = 0
        # Each waits on a condition of its own. Those released are in ``_due`` until it is their turn.
        self._waiting: dict[threading.Condition, int] = {}
        self._due: list[threading.Condition] = []
        self._pacing: threading.Condition | None = None
        self._stopped = False

    def now_ns(self) -> int:
        """Event time."""
        return self._event_ns

    def offset_ns(self) -> int:
        """Event time at the start, where ``monotonic`` is 0; constant, as this clock is never set."""
        return self._start_ns

    def monotonic(self) -> float:
        """Event seconds since the start."""
        return (self._event_ns - self._start_ns) / 1e9

    def join(self) -> None:
        """Count one more sampler."""
        with self._lock:
            self._joined += 1

    def leave(self) -> None:
        """Count one sampler less; the others may go on without it."""
        with self._lock:
            self._joined -= 1
            self._end_turn()
            self._notify_all()

    def covers(self, start_ns: int, end_ns: int) -> bool:
        """Whether the environment has all of [start_ns, end_ns)."""
        return self._end_ns is None or end_ns <= self._end_ns

    def wait_until(
        self, time_ns: int, offset_ns: int | None = None, unless: threading.Event | None = None
    ) -> bool:
        """Block until event time has come; False at once beyond the environment's end."""
        with self._lock:
            if not self.covers(time_ns, time_ns):
                return False
            if time_ns > self._event_ns:
                self._await_release(time_ns, unless)
            return time_ns <= self._event_ns and not self._stopped

    def wake(self) -> None:
        """Make every waiter check its ``unless``."""
        with self._lock:
            self._notify_all()

    def stop(self) -> None:
        """Wake every waiter with False, for good."""
        with self._lock:
            self._stopped = True
            self._notify_all()

    def _await_release(self, time_ns: int, unless: threading.Event | None) -> None:
        waiter = threading.Condition(self._lock)
        self._waiting[waiter] = time_ns
        self._end_turn()
        if self._pacing is not None:
            # This instant may be earlier than the one paced for.
            self._pacing.notify()
        try:
            while (
                (waiter in self._waiting or waiter in self._due)
                and not self._stopped
                and not (unless is not None and unless.is_set())
            ):
                if waiter in self._due or self._pacing is not None or len(self._waiting) < self._joined:
                    if not waiter.wait(_LONGEST_TURN_S) and waiter in self._due:
                        # The one before hangs in its driver.
                        break
                else:
                    self._pace_or_step(waiter)
        finally:
            self._waiting.pop(waiter, None)
            if waiter in self._due:
                self._due.remove(waiter)

    def _pace_or_step(self, waiter: threading.Condition) -> None:
        target_ns = min(self._waiting.values())
        delay_s = self._delay_s(target_ns)
        if delay_s > 0:
            self._pacing = waiter
            try:
                waiter.wait(delay_s)
            finally:
                self._pacing = None
            return
        self._crossing(self._event_ns, target_ns)
        self._event_ns = target_ns
        self._due = [each for each, until_ns in self._waiting.items() if until_ns <= target_ns]
        for released in self._due:
            del self._waiting[released]
        if waiter in self._due:
            # It is awake: its turn is the first.
            self._due.remove(waiter)
        else:
            self._end_turn()

    def _end_turn(self) -> None:
        """A sampler has done its work of this instant: the next one's turn."""
        if self._due:
            self._due.pop(0).notify()

    def _notify_all(self) -> None:
        for each in (*self._waiting, *self._due):
            each.notify()

    def _delay_s(self, target_ns: int) -> float:
        now = time.monotonic()
        if self._anchor_s is None:
            self._anchor_s = now
        delay_s = self._anchor_s + (target_ns - self._start_ns) / 1e9 / self._speed - now
        if self._real_now_ns is not None:
            delay_s = max(delay_s, (target_ns - self._real_now_ns()) / 1e9)
        return delay_s
