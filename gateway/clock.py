"""The machine's clock, for boards without one of their own."""

from __future__ import annotations

import ctypes
import threading
import time
from typing import Final, Literal

_STA_UNSYNC: Final = 0x0040
_TIME_ERROR: Final = 5
# A clock that is set while someone waits must be noticed: no single wait is longer.
_LONGEST_WAIT_S: Final = 1.0
# A clock that falls behind by more than this was set back; less is slewing.
_SET_BACK_S: Final = 1.0


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
    """Whether the kernel says its clock is synchronised (adjtimex(2), STA_UNSYNC)."""
    timex = _Timex()
    state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex))
    return 0 <= state != _TIME_ERROR and not timex.status & _STA_UNSYNC


class SystemClock:
    """Wall time of this machine. Any thread may wait on it.

    ``synced`` is sticky: the kernel's flag falls back after hours without NTP, and a Pi's oscillator keeps
    time well enough until the next reboot.
    """

    def __init__(self, trust: Literal["kernel", "always"]) -> None:
        self._synced = trust == "always"
        self._stopped = threading.Event()

    @property
    def synced(self) -> bool:
        """True once wall time can be trusted."""
        self._synced = self._synced or kernel_synchronised()
        return self._synced

    def now_ns(self) -> int:
        """Wall time, nanoseconds since the epoch."""
        return time.time_ns()

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

    def wait_until(self, time_ns: int) -> bool:
        """Block until wall time has come; False when stopped.

        A clock that is set back meanwhile doesn't make it wait longer than it would have: ``now_ns`` is then
        before ``time_ns``.
        """
        give_up_s = time.monotonic() + (time_ns - time.time_ns()) / 1e9 + _SET_BACK_S
        while not self._stopped.is_set():
            left_s = (time_ns - time.time_ns()) / 1e9
            if left_s <= 0 or time.monotonic() >= give_up_s:
                return True
            self._stopped.wait(min(left_s, _LONGEST_WAIT_S))
        return False

    def stop(self) -> None:
        """Wake every waiter."""
        self._stopped.set()
