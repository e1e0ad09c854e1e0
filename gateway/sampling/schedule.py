"""One sensor's periods on the wall-clock grid, and the waits for their boundaries.

Lengths and lateness are measured in time since boot, so a clock that is set neither loses nor repeats a
period: the current period keeps its length and its beginning by the old clock, the next begins on the new
grid.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gateway.clock.system_clock import clock_was_set
from gateway.ports import Clock

log = logging.getLogger(__name__)

# A retired sampler ends its count of pulses where that takes no longer than this.
_LONGEST_LAST_PERIOD_NS: Final = 10_000_000_000


@dataclass(frozen=True, slots=True)
class Boundary:
    """Where a period will begin, and the clock's offset when that was computed."""

    begin_ns: int
    offset_ns: int


@dataclass(frozen=True, slots=True)
class Period:
    """One period, with the clock's offset at its beginning: it may be set before the reading is made."""

    begin_ns: int
    offset_ns: int
    synced: bool

    @property
    def since_boot_ns(self) -> int:
        """Nanoseconds from boot to the period's beginning."""
        return self.begin_ns - self.offset_ns

    @property
    def mono_ms(self) -> int:
        """Milliseconds from boot to the period's beginning."""
        return max(round(self.since_boot_ns / 1e6), 0)


class Schedule:
    """The periods of ``length_ns`` of one sensor, owned by its sampler's thread.

    ``at_end``: its reading is made when a period is over, not when it begins. ``moved`` is set when the
    clock was set, so that the grid is another; the caller resets it.
    """

    def __init__(self, sensor: str, clock: Clock, length_ns: int, *, at_end: bool) -> None:
        self.length_ns = length_ns
        self.moved = False
        self._sensor = sensor
        self._clock = clock
        self._at_end = at_end
        self._steps = 0
        self._waits_until_ns: int | None = None
        self._retired = threading.Event()
        self._interrupted = threading.Event()

    @property
    def steps(self) -> int | None:
        """Grows with each wait that is over; None while it waits for an instant to come. Any thread."""
        until_ns = self._waits_until_ns
        if until_ns is not None and self._clock.now_ns() < until_ns:
            return None
        return self._steps

    def retire(self, *, at_once: bool = False) -> None:
        """Begin no other period; don't wait for the end of a long one, nor with ``at_once``. Any thread."""
        self._retired.set()
        if at_once or self.length_ns > _LONGEST_LAST_PERIOD_NS:
            self._interrupted.set()
        self._clock.wake()

    def first(self) -> Boundary:
        """The next boundary from now on."""
        offset_ns = self._clock.offset_ns()
        return Boundary(self._next_ns(), offset_ns)

    def after(self, period: Period) -> Boundary:
        """The next boundary; periods that passed while a slow reading was made are skipped."""
        offset_ns = self._clock.offset_ns()
        passed_ns = self._passed_ns(period, offset_ns)
        late = passed_ns // self.length_ns - (1 if self._at_end else 0)
        if late > 0:
            log.warning("event=sampler.late sensor=%s missed=%d", self._sensor, late)
        begin_ns = period.begin_ns + (1 + max(late, 0)) * self.length_ns
        return self._on_new_grid(Boundary(begin_ns, offset_ns), period, passed_ns)

    def catch_up(self, hung: Period, emit: Callable[[Period], None]) -> Boundary:
        """Emit the period that hung, maybe of another grid, and all begun since; the next boundary."""
        offset_ns = self._clock.offset_ns()
        passed_ns = self._passed_ns(hung, offset_ns)
        # A reload may have changed the interval, and with it the grid.
        begin_ns = -(-hung.begin_ns // self.length_ns) * self.length_ns
        begun_ns = passed_ns - (begin_ns - hung.begin_ns)
        for _ in range(max(-(-begun_ns // self.length_ns), int(begin_ns == hung.begin_ns))):
            emit(Period(begin_ns, hung.offset_ns, hung.synced))
            begin_ns += self.length_ns
        return self._on_new_grid(Boundary(begin_ns, offset_ns), hung, passed_ns)

    def covers(self, begin_ns: int) -> bool:
        """Whether the clock has a whole period from there on."""
        return self._clock.covers(begin_ns, begin_ns + self.length_ns)

    def await_begin(self, boundary: Boundary) -> Period | None:
        """Wait for a period's beginning, the next of the new grid where the clock is set; None at the end."""
        clock, begin_ns, offset_ns = self._clock, boundary.begin_ns, boundary.offset_ns
        while not self._retired.is_set() and self.wait(begin_ns, offset_ns):
            # This order costs at most a needless repair, where the clock is synchronised in between.
            synced, now_offset_ns = clock.synced, clock.offset_ns()
            if clock_was_set(offset_ns, now_offset_ns, self.length_ns):
                self._log_set(offset_ns, now_offset_ns)
                begin_ns = self._next_ns()
            elif clock.now_ns() >= begin_ns:
                return Period(begin_ns, now_offset_ns, synced)
            offset_ns = now_offset_ns
        return None

    def await_end(self, period: Period) -> bool:
        """Wait until the period is over, even if the clock is set meanwhile; False if interrupted."""
        clock = self._clock
        end_boot_ns = period.since_boot_ns + self.length_ns
        while True:
            offset_ns = clock.offset_ns()
            if not self.wait(end_boot_ns + offset_ns, offset_ns, self._interrupted):
                return False
            if clock.now_ns() - clock.offset_ns() >= end_boot_ns:
                return True

    def wait(self, until_ns: int, offset_ns: int, unless: threading.Event | None = None) -> bool:
        """Wait for an instant by the clock with that offset; False once ``unless``, or else retired, is set.

        ``steps`` is None until then.
        """
        self._waits_until_ns = until_ns
        try:
            return self._clock.wait_until(until_ns, offset_ns, unless or self._retired)
        finally:
            self._steps += 1
            self._waits_until_ns = None

    def _next_ns(self) -> int:
        return -(-self._clock.now_ns() // self.length_ns) * self.length_ns

    def _passed_ns(self, period: Period, offset_ns: int) -> int:
        """Time since boot since a period began: a clock that is set makes nothing late."""
        return self._clock.now_ns() - offset_ns - period.since_boot_ns

    def _on_new_grid(self, boundary: Boundary, period: Period, passed_ns: int) -> Boundary:
        """The boundary, or the next one of the new grid where the clock was set since the period began."""
        if not clock_was_set(period.offset_ns, boundary.offset_ns, passed_ns):
            return boundary
        self._log_set(period.offset_ns, boundary.offset_ns)
        return Boundary(self._next_ns(), boundary.offset_ns)

    def _log_set(self, before_ns: int, now_ns: int) -> None:
        self.moved = True
        log.warning("event=clock.set sensor=%s by_s=%.3f", self._sensor, (now_ns - before_ns) / 1e9)
