"""Notifies systemd, and pings its watchdog while every part of the daemon makes progress.

A ping from a timer proves the timer alone. Here each part has a mark that changes with its work; a part whose
mark stays the same for too long while it has work is stuck, and the pings end. Waiting for others doesn't
count: a driver that hangs (the supervisor replaces its thread), an uplink that is slow or away (records come
back undelivered, which is progress), a disk that takes its time. A thread that sleeps in the kernel
uninterruptibly, as in an fsync that a card doesn't answer, never makes its part stuck: no signal would end
it, so no restart would help, and the other parts work meanwhile.

The checks have a thread of their own, so that an fsync of the main loop stops nothing. They count the time
they observed themselves: a process that was starved or suspended isn't stuck for that.

Nothing is sent where systemd-python isn't installed. libsystemd sends with sockets that block, and
systemd-python holds the interpreter lock meanwhile: a receiver that reads no more would stop every thread of
this process (measured: docs/decisions/operation.md). Each send therefore follows a check for room. What
remains is the moment between check and send, in which other senders would have to fill the receiver's queue.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

try:
    from systemd import daemon as _daemon
except ImportError:
    _daemon = None

log = logging.getLogger(__name__)


def watchdog_period_s() -> float | None:
    """How long systemd waits for a ping of this process, seconds; None where it expects none."""
    usec, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
    if not usec.isdigit() or int(usec) == 0 or pid not in ("", str(os.getpid())):
        return None
    return int(usec) / 1e6


def notify(state: str) -> None:
    """Send a state, e.g. ``READY=1`` (sd_notify(3)); does nothing when not started by systemd.

    Never blocks and never raises: without its notifications the daemon samples on until the watchdog acts.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address[:1] not in ("/", "@"):
        return
    if _daemon is None:
        _report_missing_library()
        return
    try:
        if not has_room(address):
            raise BlockingIOError("systemd reads no notifications")
        _daemon.notify(state)
    except OSError as error:
        log.debug("event=systemd.not_notified state=%s error=%s", state, error)


def has_room(address: str, wait_s: float = 0.0) -> bool:
    """Whether a datagram socket of this machine takes a message now, or within ``wait_s``.

    ``address``: a path, or a name in the abstract namespace after "@" (unix(7)). Raises OSError where nothing
    receives there.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as probe:
        probe.connect(address.replace("@", "\0", 1) if address[0] == "@" else address)
        poll = select.poll()
        # A connected socket's queue is the receiver's too.
        poll.register(probe, select.POLLOUT)
        return bool(poll.poll(1000 * wait_s))


@cache
def _report_missing_library() -> None:
    log.error("event=systemd.no_library package=python3-systemd")


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
