"""Runs one thread per sampler and replaces those that die or hang.

A sampler that raises is a defect of its driver: it is logged with its traceback, its thread replaced after a
pause that grows, and the other sensors never notice.

A thread can't be ended from outside. One that hangs in its driver is abandoned: another takes its place with
a driver of its own, and what the hung one should still say is thrown away. Three times in a run, then no
more: each costs a thread and what it holds, and only a new process gives that back.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from gateway.config import QualityRules, SensorConfig
from gateway.ports import Clock
from gateway.sampling.call_timeout import Call
from gateway.sampling.sampler import Sampler
from gateway.system.watchdog import Shown

log = logging.getLogger(__name__)

_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0
# A period under way may last ten seconds (sampler.py), and its read a little.
_RETIRE_S: Final = 15.0
_INTERRUPT_S: Final = 3.0

MOST_ABANDONED: Final = 3
"""After so many abandoned threads a run starts no more drivers of sensors that hang."""
# The first successor tries at once, the next one of the same sensor later.
_SECOND_TRY_S: Final = 30.0
# What a busy or stopped process can't have seen isn't held against a driver.
_LONGEST_TICK_S: Final = 2.0
_STEP_PERIODS: Final = 0.5
# One thread that holds a bus may be all that ever hangs: its sensors come back with a new process only.
_LONG_HUNG_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class Abandoned:
    """A sampler's thread that was given up after its driver had not come back for ``after_s``."""

    sensor: str
    after_s: float
    total: int


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
        self._left = True
        self._watched: Call | None = None
        self._watched_s = 0.0
        self.abandoned_for_s = 0.0
        self.restarts = 0

    @property
    def name(self) -> str:
        """The sensor's name."""
        return self._sampler.sensor.name

    @property
    def said(self) -> Mapping[str, str | float | bool]:
        """What the sensor told of itself."""
        return self._sampler.said

    @property
    def ended(self) -> bool:
        """True once the sampler came to its own end."""
        return self._thread is not None and not self._thread.is_alive() and not self._failed

    def start(self) -> None:
        """Run the sampler; its clock has been joined."""
        self._failed = False
        self._running = True
        self._left = False
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

    @property
    def running(self) -> bool:
        """True until the thread has ended, hung or not."""
        return self._running

    @property
    def sampler(self) -> Sampler:
        """What it runs."""
        return self._sampler

    def hung_for_s(self, passed_s: float) -> float | None:
        """How long the driver's call has lasted, where that is too long; asked every ``passed_s``."""
        call = self._sampler.calls.under_way
        if call is None or call != self._watched:
            self._watched, self._watched_s = call, 0.0
            return None
        self._watched_s += passed_s
        return self._watched_s if self._watched_s > call.patience_s else None

    def abandon(self) -> bool:
        """Give up a thread that hangs in its driver; False where the call has come back meanwhile."""
        call = self._sampler.calls.under_way
        return call is not None and self._sampler.calls.give_up(call)

    def leave(self) -> None:
        """Leave the clock, in the place of a thread that hangs."""
        with self._lock:
            left, self._left = self._left, True
        if not left:
            self._clock.leave()

    @property
    def shown(self) -> Shown:
        """For the watchdog: one that has ended, failed or not, has nothing to do."""
        steps = self._sampler.steps if self._running else None
        thread = self._thread.native_id if self._thread is not None else None
        return Shown(f"sampler-{self.name}", steps, _STEP_PERIODS, thread=thread)

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
        """``again`` makes another sampler, with a driver of its own; without it hung ones are let be."""
        self._clock = clock
        self._monotonic = monotonic
        self._again = again
        self._checked_s = monotonic()
        self._stopping = False
        self._hanging: list[_Supervised] = []
        self._abandoned: Counter[str] = Counter()
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

    @property
    def abandoned(self) -> int:
        """How many threads were given up."""
        return self._abandoned.total()

    @property
    def hung(self) -> tuple[str, ...]:
        """The sensors that a thread still hangs in."""
        return tuple(sorted({one.name for one in self._hanging if one.running}))

    @property
    def troubles(self) -> dict[str, str]:
        """By sensor, why its last read gave nothing."""
        told = ((one.name, one.sampler.trouble) for one in self._supervised)
        return {name: trouble for name, trouble in told if trouble is not None}

    def pulses(self) -> dict[str, int]:
        """By sensor that counts them, the pulses since its driver was started; any thread may ask."""
        counts = {one.name: one.sampler.pulses() for one in self._supervised}
        return {name: count for name, count in counts.items() if count is not None}

    @property
    def needs_new_process(self) -> bool:
        """True where threads hang and nothing in this process can help any more."""
        hanging = [one for one in self._hanging if one.running]
        long = any(one.abandoned_for_s > _LONG_HUNG_S for one in hanging)
        return bool(hanging) and not self._stopping and (self.abandoned >= MOST_ABANDONED or long)

    @property
    def said(self) -> dict[str, Mapping[str, str | float | bool]]:
        """By sensor: what it told of itself."""
        return {one.name: one.said for one in self._supervised if one.said}

    def shown(self) -> tuple[Shown, ...]:
        """For the watchdog, from any thread: each sampler, but for those that were given up."""
        return tuple(one.shown for one in tuple(self._supervised))

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
                hung = [one for one in leaving if one.running]
                for one in hung:
                    if one.abandon():
                        self._note(one)
                log.error("event=sampler.abandoned sensors=%s", ",".join(one.name for one in hung))
                retirement.hold()
                for one in hung:
                    one.leave()
        self._supervised = [one for one in self._supervised if one not in leaving]
        self._earlier_restarts += sum(one.restarts for one in leaving)
        try:
            for sampler in make():
                for before in [one for one in leaving if one.name == sampler.sensor.name]:
                    sampler.succeed(before.sampler)
                one = _Supervised(sampler, self._clock)
                self._clock.join()
                one.start()
                self._supervised.append(one)
        finally:
            self._clock.leave()

    def judge_by(self, name: str, quality: Mapping[str, QualityRules]) -> None:
        """Let other quality rules hold for a sensor, whose sampler goes on."""
        for one in self._supervised:
            if one.name == name:
                one.sampler.judge_by(quality)

    def check(self) -> list[Abandoned]:
        """Replace dead threads and hung ones, which are told; called every now and then by the main loop."""
        now_s = self._monotonic()
        passed_s, self._checked_s = min(now_s - self._checked_s, _LONGEST_TICK_S), now_s
        for one in self._supervised:
            one.replace_if_dead(now_s)
        self._hanging = [one for one in self._hanging if one.running]
        for one in self._hanging:
            one.abandoned_for_s += passed_s
        if self._again is None or self._stopping:
            return []
        told = []
        for place, one in enumerate(self._supervised):
            hung_s = one.hung_for_s(passed_s)
            if hung_s is not None and one.abandon():
                self._supervised[place] = self._in_place_of(one, self._again(one.sampler.sensor))
                told.append(Abandoned(one.name, hung_s, self.abandoned))
                log.error(
                    "event=sampler.abandoned sensor=%s after_s=%.1f abandoned=%d",
                    one.name,
                    hung_s,
                    self.abandoned,
                )
        return told

    def _in_place_of(self, hung: _Supervised, sampler: Sampler) -> _Supervised:
        earlier = self._abandoned[hung.name]
        self._note(hung)
        last = self.abandoned >= MOST_ABANDONED
        sampler.succeed(hung.sampler, float("inf") if last else earlier * _SECOND_TRY_S)
        successor = _Supervised(sampler, self._clock)
        successor.restarts = hung.restarts + 1
        # In this order: a stepped clock must not move between the two.
        self._clock.join()
        successor.start()
        hung.leave()
        return successor

    def _note(self, hung: _Supervised) -> None:
        self._hanging.append(hung)
        self._abandoned[hung.name] += 1

    def stop(self, timeout_s: float = 5.0) -> None:
        """Stop sampling and wait for the threads; one that hangs in a driver dies with the process."""
        self._stopping = True
        self._clock.stop()
        deadline_s = self._monotonic() + timeout_s
        for one in self._supervised:
            one.join(max(deadline_s - self._monotonic(), 0.0))
