"""Runs one thread per sampler and replaces those that die.

A sampler that raises is a defect of its driver: it is logged with its traceback, its thread replaced after a
pause that grows, and the other sensors never notice.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable
from typing import Final

from gateway.ports import Clock
from gateway.sampler import Sampler

log = logging.getLogger(__name__)

_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0
# A period under way may last ten seconds (sampler.py), and its read a little.
_RETIRE_S: Final = 15.0
_INTERRUPT_S: Final = 3.0


class _Retirement:
    """Several samplers that end. When the last one does, the clock is held until their successors wait."""

    def __init__(self, clock: Clock, count: int) -> None:
        self._clock = clock
        self._left = count
        self._held = False
        self._lock = threading.Lock()
        self.over = threading.Event()
        if not count:
            self.hold()

    def ended(self) -> None:
        """One more has ended; it has not left the clock yet."""
        with self._lock:
            self._left -= 1
        if not self._left:
            self.hold()

    def hold(self) -> None:
        """Hold the clock, once."""
        with self._lock:
            if not self._held:
                self._held = True
                self._clock.join()
        self.over.set()


class _Supervised:
    """One sampler and the thread that runs it now."""

    def __init__(self, sampler: Sampler, clock: Clock) -> None:
        self._sampler = sampler
        self._clock = clock
        self._thread: threading.Thread | None = None
        self._failed = False
        self._pause_s = _FIRST_PAUSE_S
        self._again_s = 0.0
        self._lock = threading.Lock()
        self._running = False
        self._retirement: _Retirement | None = None
        self.restarts = 0

    @property
    def name(self) -> str:
        """The sensor's name."""
        return self._sampler.sensor.name

    @property
    def ended(self) -> bool:
        """True once the sampler came to its own end."""
        return self._thread is not None and not self._thread.is_alive() and not self._failed

    def start(self) -> None:
        """Run the sampler; its clock has been joined."""
        self._failed = False
        self._running = True
        self._thread = threading.Thread(target=self._run, name=f"sampler-{self.name}", daemon=True)
        self._thread.start()

    def retire(self, retirement: _Retirement) -> None:
        """End at a period's border and tell it; at once where no thread runs."""
        with self._lock:
            self._retirement = retirement
            running = self._running
        if running:
            self._sampler.retire()
        else:
            retirement.ended()

    def interrupt(self) -> None:
        """Don't wait for the border any longer."""
        self._sampler.retire(at_once=True)

    def abandon(self) -> bool:
        """Give up a thread that hangs in its driver; False where it has ended."""
        if not self._running:
            return False
        self._sampler.abandon()
        return True

    def replace_if_dead(self, now_s: float) -> None:
        """Start again what has failed, once its pause is over."""
        if (
            self._failed
            and self._thread is not None
            and not self._thread.is_alive()
            and now_s >= self._again_s
        ):
            self.restarts += 1
            self._clock.join()
            self.start()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread's end."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            self._sampler.run()
        except Exception:
            log.exception(
                "event=sampler.died sensor=%s again_in_s=%g", self._sampler.sensor.name, self._pause_s
            )
            self._again_s = time.monotonic() + self._pause_s
            self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
            self._failed = True
        finally:
            with self._lock:
                self._running = False
                retirement = self._retirement
            if retirement is not None:
                retirement.ended()
            self._clock.leave()


class Supervisor:
    """All samplers of the mast."""

    def __init__(
        self, samplers: Iterable[Sampler], clock: Clock, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._monotonic = monotonic
        self._supervised = [_Supervised(sampler, clock) for sampler in samplers]
        self._earlier_restarts = 0

    @property
    def ended(self) -> bool:
        """True once every sampler came to its own end (a replay's, or ``stop``)."""
        return all(one.ended for one in self._supervised)

    @property
    def restarts(self) -> int:
        """How many sampler threads were replaced."""
        return self._earlier_restarts + sum(one.restarts for one in self._supervised)

    def start(self) -> None:
        """Start all samplers together: a stepped clock must know of every one before it moves."""
        for _ in self._supervised:
            self._clock.join()
        for one in self._supervised:
            one.start()

    def replace(self, names: Collection[str], make: Callable[[], Iterable[Sampler]]) -> None:
        """Retire these sensors' samplers; when all have ended, start those that ``make`` gives.

        The others' threads go on. On a stepped clock no time passes between the last end and the start.
        """
        leaving = [one for one in self._supervised if one.name in names]
        retirement = _Retirement(self._clock, len(leaving))
        for one in leaving:
            one.retire(retirement)
        if not retirement.over.wait(_RETIRE_S):
            for one in leaving:
                one.interrupt()
            if not retirement.over.wait(_INTERRUPT_S):
                hung = [one.name for one in leaving if one.abandon()]
                log.error("event=sampler.abandoned sensors=%s", ",".join(hung))
                retirement.hold()
        self._supervised = [one for one in self._supervised if one not in leaving]
        self._earlier_restarts += sum(one.restarts for one in leaving)
        try:
            for sampler in make():
                one = _Supervised(sampler, self._clock)
                self._clock.join()
                one.start()
                self._supervised.append(one)
        finally:
            self._clock.leave()

    def check(self) -> None:
        """Replace dead threads; called every now and then by the main loop."""
        for one in self._supervised:
            one.replace_if_dead(self._monotonic())

    def stop(self, timeout_s: float = 5.0) -> None:
        """Stop sampling and wait for the threads; one that hangs in a driver dies with the process."""
        self._clock.stop()
        deadline_s = self._monotonic() + timeout_s
        for one in self._supervised:
            one.join(max(deadline_s - self._monotonic(), 0.0))
