"""The machine's clock, for boards without one of their own."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal

from buffer.files import boot_id

_STA_UNSYNC: Final = 0x0040
_TIME_ERROR: Final = 5
# A clock that is set while someone waits must be noticed: no single wait is longer.
_LONGEST_WAIT_S: Final = 1.0
# Slewing changes a clock by half a millisecond in a second at most; what is more than this was set.
_SET_NS: Final = 50_000_000
# Two clocks can't be read at one moment. Below this a change of their difference is taken for none, so that
# the periods of one grid are exactly as far apart in time since boot as they are in wall time.
_JITTER_NS: Final = 1_000_000
_GOOD_MEASUREMENT_NS: Final = 50_000
_MEASUREMENTS: Final = 5


class _Timex(ctypes.Structure):
    """struct timex of adjtimex(2), as far as ``status``; the rest is room."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("room", ctypes.c_byte * 256),
    )


def kernel_synchronised() -> bool:
    """The kernel's synchronisation flag (adjtimex(2), STA_UNSYNC)."""
    timex = _Timex()
    state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex))
    return 0 <= state != _TIME_ERROR and not timex.status & _STA_UNSYNC


def since_boot_ns() -> int:
    """Nanoseconds since boot, time suspended included; setting the clock doesn't change it."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def clock_was_set(before_ns: int, now_ns: int, elapsed_ns: int) -> bool:
    """Whether a clock's ``offset_ns`` changed by more within a time than slewing can change it."""
    return abs(now_ns - before_ns) > _SET_NS + elapsed_ns // 1000


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine's boot id and the kernel's clocks. Times in nanoseconds, ``wall_ns`` since the epoch."""

    boot: str = field(default_factory=boot_id)
    synchronised: Callable[[], bool] = kernel_synchronised
    wall_ns: Callable[[], int] = time.time_ns
    boot_ns: Callable[[], int] = since_boot_ns


class SystemClock:
    """Wall time of this machine. Any thread may wait on it.

    ``synced`` is sticky: the kernel's flag falls back after hours without NTP, and a Pi's oscillator keeps
    time well enough until the next reboot. ``known_synced``: that was so earlier in this boot.
    """

    def __init__(
        self,
        trust: Literal["kernel", "always"],
        machine: Machine | None = None,
        *,
        known_synced: bool = False,
    ) -> None:
        self._synced = trust == "always" or known_synced
        self._machine = machine or Machine()
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._offset_ns = self._measure_offset_ns()

    @property
    def synced(self) -> bool:
        """True once wall time can be trusted."""
        self._synced = self._synced or self._machine.synchronised()
        return self._synced

    def now_ns(self) -> int:
        """Wall time, nanoseconds since the epoch."""
        return self._machine.wall_ns()

    def offset_ns(self) -> int:
        """Wall time less the time since boot (CLOCK_BOOTTIME), to a millisecond."""
        measured_ns = self._measure_offset_ns()
        with self._lock:
            if abs(measured_ns - self._offset_ns) > _JITTER_NS:
                self._offset_ns = measured_ns
            return self._offset_ns

    def monotonic(self) -> float:
        """Seconds since some moment at boot."""
        return time.monotonic()

    def join(self) -> None:
        """Nothing to do: real time doesn't wait for samplers."""

    def leave(self) -> None:
        """Nothing to do."""

    def covers(self, start_ns: int, end_ns: int) -> bool:
        """Real time has no end."""
        return start_ns <= end_ns

    def wait_until(
        self, time_ns: int, offset_ns: int | None = None, unless: threading.Event | None = None
    ) -> bool:
        """Block until wall time has come, or the clock is set.

        False when stopped, and within a second of ``unless`` being set. ``offset_ns`` is the one that
        ``time_ns`` was computed with: a clock set since then counts too.
        """
        before_ns = self.offset_ns() if offset_ns is None else offset_ns
        while not self._stopped.is_set() and not (unless is not None and unless.is_set()):
            now_ns = self.offset_ns()
            left_s = (time_ns - self._machine.wall_ns()) / 1e9
            if left_s <= 0 or clock_was_set(before_ns, now_ns, 0):
                return True
            before_ns = now_ns
            self._stopped.wait(min(left_s, _LONGEST_WAIT_S))
        return False

    def wake(self) -> None:
        """Nothing to do: every wait checks once a second."""

    def stop(self) -> None:
        """Wake every waiter."""
        self._stopped.set()

    def _measure_offset_ns(self) -> int:
        """The best of a few measurements: a thread may lose the processor between two readings of clocks."""
        machine, best_gap_ns, best_ns = self._machine, None, 0
        for _ in range(_MEASUREMENTS):
            before_ns, wall_ns, after_ns = machine.boot_ns(), machine.wall_ns(), machine.boot_ns()
            gap_ns = after_ns - before_ns
            if best_gap_ns is None or gap_ns < best_gap_ns:
                best_gap_ns, best_ns = gap_ns, wall_ns - (before_ns + after_ns) // 2
            if gap_ns <= _GOOD_MEASUREMENT_NS:
                break
        return best_ns
