"""Pings systemd's watchdog while every part of the daemon makes progress.

A ping from a timer proves the timer alone. Here each part has a mark that changes with its work; a part whose
mark stays the same for too long while it has work is stuck, and the pings end. Waiting for others doesn't
count: a driver that hangs (the supervisor replaces its thread), an uplink that is slow or away (records come
back undelivered, which is progress), a disk that takes its time. A thread that sleeps in the kernel
uninterruptibly, as in an fsync that a card doesn't answer, never makes its part stuck: no signal would end
it, so no restart would help, and the other parts work meanwhile.

The checks have a thread of their own, so that an fsync of the main loop stops nothing. They count the time
they observed themselves: a process that was starved or suspended isn't stuck for that.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway.system.systemd import notify

log = logging.getLogger(__name__)

DEFAULT_PERIOD_S: Final = 60.0
"""Where systemd sets none: then a stuck part is only in the log and the status."""

_CHECKS_PER_PERIOD: Final = 24
_PINGS_PER_PERIOD: Final = 6
# Time in which a starved or suspended process observed nothing doesn't count: so many intervals of checks.
_LONGEST_INTERVAL: Final = 2.0


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Progress of a part: ``mark`` changes with each step, None without work.

    The mark may stay the same for ``periods`` of the watchdog and ``plus_s`` seconds. ``thread`` is the
    kernel's id of the thread that does the work.
    """

    part: str
    mark: Hashable | None
    periods: float
    plus_s: float = 0.0
    thread: int | None = None


def sleeps_in_kernel(thread: int, root: Path = Path("/")) -> bool:
    """Whether a thread of this process sleeps uninterruptibly (state D of proc(5)): it waits for a disk."""
    try:
        stat = (root / "proc/self/task" / str(thread) / "stat").read_text()
    except OSError:
        return False
    # The name before it, in parentheses, may have anything in it.
    return stat.rpartition(")")[2].split()[:1] == ["D"]


class Watchdog:
    """The thread that checks and pings; started when the daemon is ready.

    ``heartbeats`` must not block for long. A check is due every ``period_s / 24``.
    """

    def __init__(
        self,
        heartbeats: Callable[[], Iterable[Heartbeat]],
        period_s: float,
        monotonic: Callable[[], float] = time.monotonic,
        asleep: Callable[[int], bool] = sleeps_in_kernel,
        notify: Callable[[str], None] = notify,
    ) -> None:
        self._heartbeats = heartbeats
        self._period_s = period_s
        self._monotonic = monotonic
        self._asleep = asleep
        self._notify = notify
        self._checked_s = monotonic()
        self._same: dict[str, tuple[Hashable, float]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
        self.stuck: tuple[str, ...] = ()
        """The parts that are stuck; any thread may read it."""

    def start(self) -> None:
        """Begin to check and ping."""
        self._thread.start()

    def stop(self) -> None:
        """No more pings: systemd expects none of a service that stops."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def check(self) -> dict[str, float]:
        """The parts that are stuck now, and for how many seconds. Called by one thread."""
        now_s = self._monotonic()
        longest_s = _LONGEST_INTERVAL * self._period_s / _CHECKS_PER_PERIOD
        passed_s = min(now_s - self._checked_s, longest_s)
        self._checked_s = now_s
        before, self._same = self._same, {}
        stuck = {}
        for each in self._heartbeats():
            if each.mark is None:
                continue
            mark, same_s = before.get(each.part, (None, 0.0))
            if mark != each.mark:
                same_s = 0.0
            elif each.thread is None or not self._asleep(each.thread):
                same_s += passed_s
            self._same[each.part] = (each.mark, same_s)
            if same_s > each.periods * self._period_s + each.plus_s:
                stuck[each.part] = same_s
        return stuck

    def _run(self) -> None:
        checks = 0
        while not self._stop.wait(self._period_s / _CHECKS_PER_PERIOD):
            stuck = self.check()
            self._report(stuck)
            if not stuck and checks % (_CHECKS_PER_PERIOD // _PINGS_PER_PERIOD) == 0:
                self._notify("WATCHDOG=1")
            # The first good check after a bad one pings at once.
            checks = 0 if stuck else checks + 1

    def _report(self, stuck: dict[str, float]) -> None:
        for part in stuck.keys() - set(self.stuck):
            log.critical("event=watchdog.stuck part=%s for_s=%.0f", part, stuck[part])
        for part in set(self.stuck) - stuck.keys():
            log.warning("event=watchdog.moves part=%s", part)
        self.stuck = tuple(stuck)
        if stuck:
            parts = ", ".join(f"{part} for {for_s:.0f} s" for part, for_s in stuck.items())
            self._notify(f"STATUS=stuck, systemd is to restart it: {parts}")
