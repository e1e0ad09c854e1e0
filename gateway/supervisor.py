"""Runs one thread per sampler and replaces those that die.

A sampler that raises is a defect of its driver: it is logged with its traceback, its thread replaced after a
pause that grows, and the other sensors never notice.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Final

from gateway.ports import Clock
from gateway.sampler import Sampler

log = logging.getLogger(__name__)

_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0


class _Supervised:
    """One sampler and the thread that runs it now."""

    def __init__(self, sampler: Sampler, clock: Clock) -> None:
        self._sampler = sampler
        self._clock = clock
        self._thread: threading.Thread | None = None
        self._failed = False
        self._pause_s = _FIRST_PAUSE_S
        self._again_s = 0.0
        self.restarts = 0

    @property
    def ended(self) -> bool:
        """True once the sampler came to its own end."""
        return self._thread is not None and not self._thread.is_alive() and not self._failed

    def start(self) -> None:
        """Run the sampler; its clock has been joined."""
        self._failed = False
        self._thread = threading.Thread(
            target=self._run, name=f"sampler-{self._sampler.sensor.name}", daemon=True
        )
        self._thread.start()

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
            self._clock.leave()


class Supervisor:
    """All samplers of the mast."""

    def __init__(
        self, samplers: Iterable[Sampler], clock: Clock, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._monotonic = monotonic
        self._supervised = [_Supervised(sampler, clock) for sampler in samplers]

    @property
    def ended(self) -> bool:
        """True once every sampler came to its own end (a replay's, or ``stop``)."""
        return all(one.ended for one in self._supervised)

    @property
    def restarts(self) -> int:
        """How many sampler threads were replaced."""
        return sum(one.restarts for one in self._supervised)

    def start(self) -> None:
        """Start all samplers together: a stepped clock must know of every one before it moves."""
        for _ in self._supervised:
            self._clock.join()
        for one in self._supervised:
            one.start()

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
