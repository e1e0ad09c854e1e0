"""Runs one thread per sampler and replaces those that die or hang.

A sampler that raises is a defect of its driver: it is logged with its traceback, and its thread is replaced
after a pause that grows; the other sensors aren't affected.

A thread can't be ended from outside. One that hangs in its driver is abandoned: another with a driver of its
own replaces it, and a late result of the hung one is discarded. Three times in a run, then no more: each
costs a thread and what it holds, which only a new process frees.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from cloud.backoff import Backoff
from gateway.config import QualityRules, SensorConfig
from gateway.ports import Clock
from gateway.sampling.sampler import Call, Sampler
from gateway.system.watchdog import Heartbeat

log = logging.getLogger(__name__)

_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0
# The current period may last ten seconds (schedule.py), and its read a little.
_RETIRE_S: Final = 15.0
_INTERRUPT_S: Final = 3.0

MOST_ABANDONED: Final = 3
"""After so many abandoned threads a run starts no more drivers of sensors that hang."""
# The first successor starts at once, the next one of the same sensor later.
_SECOND_TRY_S: Final = 30.0
# Time in which this process was starved or stopped doesn't count against a driver.
_LONGEST_TICK_S: Final = 2.0
_STEP_PERIODS: Final = 0.5
# A single hung thread may hold a bus: its sensors then need a new process.
_LONG_HUNG_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class AbandonedThread:
    """A sampler's thread that was abandoned after its driver had not returned for ``after_s``."""

    sensor: str
    after_s: float
    total: int


class _Handover:
    """Several samplers that end; after the last one the clock is held until their successors wait."""

    def __init__(self, clock: Clock, count: int) -> None:
        self._clock = clock
        self._left = count
        self._lock = threading.Lock()
        self.complete = threading.Event()
        if not count:
            self.hold_clock()

    def ended(self) -> None:
        """One more has ended; it has not left the clock yet."""
        with self._lock:
            self._left -= 1
        if not self._left:
            self.hold_clock()

    def hold_clock(self) -> None:
        """Join the clock, once."""
        with self._lock:
            if not self.complete.is_set():
                self._clock.join()
                self.complete.set()


class _Supervised:
    """One sampler and the thread that runs it now; ``running`` until that has ended, hung or not."""

    def __init__(self, sampler: Sampler, clock: Clock, restarts: int = 0) -> None:
        self.sampler = sampler
        self.name = sampler.sensor.name
        self.running = False
        self.abandoned_for_s = 0.0
        self.restarts = restarts
        self._clock = clock
        self._thread: threading.Thread | None = None
        self._failed = False
        self._backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        self._again_s = 0.0
        self._lock = threading.Lock()
        self._handover: _Handover | None = None
        self._left = True
        self._watched: Call | None = None
        self._watched_s = 0.0

    @property
    def ended(self) -> bool:
        """True once the sampler came to its own end."""
        return self._thread is not None and not self._thread.is_alive() and not self._failed

    def start(self) -> None:
        """Join the clock and run the sampler."""
        self._clock.join()
        self.run()

    def run(self) -> None:
        """Run the sampler; its clock has been joined."""
        self._failed = False
        self.running = True
        self._left = False
        self._thread = threading.Thread(target=self._run, name=f"sampler-{self.name}", daemon=True)
        self._thread.start()

    def retire(self, handover: _Handover) -> None:
        """End at a period's boundary, or at once where no thread runs, and report it."""
        with self._lock:
            self._handover = handover
            running = self.running
        if running:
            self.sampler.retire()
        else:
            handover.ended()

    def hung_for_s(self, passed_s: float) -> float | None:
        """How long the driver's call has lasted, where that is too long; called every ``passed_s``."""
        call = self.sampler.calls.current
        if call is None or call is not self._watched:
            self._watched, self._watched_s = call, 0.0
            return None
        self._watched_s += passed_s
        return self._watched_s if self._watched_s > call.timeout_s else None

    def abandon(self) -> bool:
        """Abandon a thread that hangs in its driver; False where the call has returned meanwhile."""
        call = self.sampler.calls.current
        return call is not None and self.sampler.calls.abandon(call)

    def leave(self) -> None:
        """Leave the clock, once: in the thread's own end or for one that hangs."""
        with self._lock:
            left, self._left = self._left, True
        if not left:
            self._clock.leave()

    @property
    def heartbeat(self) -> Heartbeat:
        """What the watchdog examines: a thread that has ended, failed or not, has nothing to do."""
        steps = self.sampler.steps if self.running else None
        thread = self._thread.native_id if self._thread is not None else None
        return Heartbeat(f"sampler-{self.name}", steps, _STEP_PERIODS, thread=thread)

    def replace_if_dead(self, now_s: float) -> None:
        """Start again what has failed, once its pause is over."""
        dead = self._failed and self._thread is not None and not self._thread.is_alive()
        if dead and now_s >= self._again_s:
            self.restarts += 1
            self.start()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread's end."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            self.sampler.run()
        except Exception:
            pause_s = self._backoff.next()
            log.exception("event=sampler.died sensor=%s again_in_s=%g", self.name, pause_s)
            self._again_s = time.monotonic() + pause_s
            self._failed = True
        finally:
            with self._lock:
                self.running = False
                handover = self._handover
            if handover is not None:
                handover.ended()
            self.leave()


class Supervisor:
    """All samplers of the mast."""

    def __init__(
        self,
        samplers: Iterable[Sampler],
        clock: Clock,
        monotonic: Callable[[], float] = time.monotonic,
        again: Callable[[SensorConfig], Sampler] | None = None,
    ) -> None:
        """``again`` makes another sampler with a driver of its own; without it hung ones stay."""
        self._clock = clock
        self._monotonic = monotonic
        self._again = again
        self._checked_s = monotonic()
        self._stopping = False
        self._hung: list[_Supervised] = []
        self._abandoned: Counter[str] = Counter()
        self._supervised = [_Supervised(sampler, clock) for sampler in samplers]
        self._earlier_restarts = 0

    @property
    def ended(self) -> bool:
        """True once every sampler came to its own end (a replay's, or by ``stop``)."""
        return all(one.ended for one in self._supervised)

    @property
    def restarts(self) -> int:
        """How many sampler threads were replaced."""
        return self._earlier_restarts + sum(one.restarts for one in self._supervised)

    @property
    def abandoned(self) -> int:
        """How many threads were abandoned."""
        return self._abandoned.total()

    @property
    def hung(self) -> tuple[str, ...]:
        """The sensors with a thread that still hangs."""
        return tuple(sorted({one.name for one in self._hung if one.running}))

    @property
    def troubles(self) -> dict[str, str]:
        """The error of each sensor's last read."""
        troubles = ((one.name, one.sampler.trouble) for one in self._supervised)
        return {name: trouble for name, trouble in troubles if trouble is not None}

    def pulses(self) -> dict[str, int]:
        """The count of each pulse sensor since its driver was started. Any thread."""
        counts = {one.name: one.sampler.pulses() for one in self._supervised}
        return {name: count for name, count in counts.items() if count is not None}

    @property
    def needs_new_process(self) -> bool:
        """True where threads hang and only a new process can help."""
        hung = [one for one in self._hung if one.running]
        long = any(one.abandoned_for_s > _LONG_HUNG_S for one in hung)
        return bool(hung) and not self._stopping and (self.abandoned >= MOST_ABANDONED or long)

    @property
    def descriptions(self) -> dict[str, Mapping[str, str | float | bool]]:
        """Returns what each sensor reported of itself at its last start."""
        return {one.name: one.sampler.description for one in self._supervised if one.sampler.description}

    def heartbeats(self) -> tuple[Heartbeat, ...]:
        """Each sampler's heartbeat, without the abandoned ones. Any thread."""
        return tuple(one.heartbeat for one in tuple(self._supervised))

    def start(self) -> None:
        """Start all samplers together: a stepped clock must count each before it moves."""
        for _ in self._supervised:
            self._clock.join()
        for one in self._supervised:
            one.run()

    def replace(self, names: Collection[str], make: Callable[[], Iterable[Sampler]]) -> None:
        """Retire these sensors' samplers; when all have ended, start those that ``make`` returns.

        The others' threads continue. No time passes on a stepped clock between the last end and the start.
        """
        leaving = [one for one in self._supervised if one.name in names]
        handover = _Handover(self._clock, len(leaving))
        # A stepped clock doesn't run on between the requests, for who ends first waits for who ends last.
        self._clock.join()
        for one in leaving:
            one.retire(handover)
        self._clock.leave()
        if not handover.complete.wait(_RETIRE_S):
            for one in leaving:
                one.sampler.retire(at_once=True)
            if not handover.complete.wait(_INTERRUPT_S):
                hung = [one for one in leaving if one.running]
                for one in hung:
                    if one.abandon():
                        self._count_abandoned(one)
                log.error("event=sampler.abandoned sensors=%s", ",".join(one.name for one in hung))
                handover.hold_clock()
                for one in hung:
                    one.leave()
        self._supervised = [one for one in self._supervised if one not in leaving]
        self._earlier_restarts += sum(one.restarts for one in leaving)
        try:
            for sampler in make():
                for before in [one for one in leaving if one.name == sampler.sensor.name]:
                    sampler.take_over(before.sampler)
                one = _Supervised(sampler, self._clock)
                one.start()
                self._supervised.append(one)
        finally:
            self._clock.leave()

    def set_quality(self, name: str, quality: Mapping[str, QualityRules]) -> None:
        """Replace a sensor's quality rules; its sampler continues."""
        for one in self._supervised:
            if one.name == name:
                one.sampler.set_quality(quality)

    def check(self) -> list[AbandonedThread]:
        """Replace dead threads and hung ones, which are returned; called by the main loop."""
        now_s = self._monotonic()
        passed_s, self._checked_s = min(now_s - self._checked_s, _LONGEST_TICK_S), now_s
        for one in self._supervised:
            one.replace_if_dead(now_s)
        self._hung = [one for one in self._hung if one.running]
        for one in self._hung:
            one.abandoned_for_s += passed_s
        if self._again is None or self._stopping:
            return []
        abandoned = []
        for place, one in enumerate(self._supervised):
            hung_s = one.hung_for_s(passed_s)
            if hung_s is not None and one.abandon():
                self._supervised[place] = self._start_successor(one, self._again(one.sampler.sensor))
                abandoned.append(AbandonedThread(one.name, hung_s, self.abandoned))
                log.error(
                    "event=sampler.abandoned sensor=%s after_s=%.1f abandoned=%d",
                    one.name,
                    hung_s,
                    self.abandoned,
                )
        return abandoned

    def _start_successor(self, hung: _Supervised, sampler: Sampler) -> _Supervised:
        earlier = self._abandoned[hung.name]
        self._count_abandoned(hung)
        last = self.abandoned >= MOST_ABANDONED
        sampler.take_over(hung.sampler, float("inf") if last else earlier * _SECOND_TRY_S)
        successor = _Supervised(sampler, self._clock, hung.restarts + 1)
        # A stepped clock must not move between the two, hence the order.
        successor.start()
        hung.leave()
        return successor

    def _count_abandoned(self, hung: _Supervised) -> None:
        self._hung.append(hung)
        self._abandoned[hung.name] += 1

    def stop(self, timeout_s: float = 5.0) -> None:
        """Stop sampling and wait for the threads; one that hangs in a driver dies with the process."""
        self._stopping = True
        self._clock.stop()
        deadline_s = self._monotonic() + timeout_s
        for one in self._supervised:
            one.join(max(deadline_s - self._monotonic(), 0.0))
