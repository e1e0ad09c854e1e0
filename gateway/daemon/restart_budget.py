"""When the daemon may end itself so that systemd starts it again, because drivers hang.

A new process gets back the threads, pins and buses that hang. Where the hardware itself is broken it is of no
use, so each restart makes the next one wait longer: 1, 2, 4 … 24 hours. That is kept in a file beside the
outbox. A reboot, or a wait that has passed twice without another restart, begins again at one hour.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from gateway.system.atomic_file import read_state, write_state

EXIT_CODE: Final = 75
"""EX_TEMPFAIL of sysexits.h: nothing is lost, start me again."""

HUNG_DRIVERS: Final = "HUNG_DRIVERS"
"""Why a run stopped itself, in its record and an event."""

_HOUR_NS: Final = 3600 * 10**9
_LONGEST_H: Final = 24


class RestartBudget:
    """Counts restarts in a file; ``boot_ns`` is time since boot, which setting the clock doesn't change."""

    def __init__(self, path: Path, boot: str, boot_ns: Callable[[], int]) -> None:
        self._path = path
        self._boot = boot
        self._boot_ns = boot_ns
        self._count, self._at_ns = read_state(path, self._parse, (0, 0))

    def wait_s(self) -> float:
        """Seconds until the next restart is allowed; 0 where it is now."""
        if not self._count:
            return 0.0
        return max((self._at_ns + self._pause_ns() - self._boot_ns()) / 1e9, 0.0)

    def take(self) -> bool:
        """Take one restart: it is on the disk when this is True. False where none is allowed now."""
        if self.wait_s() > 0:
            return False
        now_ns = self._boot_ns()
        again = self._count > 0 and now_ns - self._at_ns <= 2 * self._pause_ns()
        count = self._count + 1 if again else 1
        written = write_state(self._path, {"boot": self._boot, "at_ns": now_ns, "restarts": count})
        # Unrecorded it would be repeated at once, for ever: tried again after the shortest pause.
        self._count, self._at_ns = count if written else max(self._count, 1), now_ns
        return written

    def _pause_ns(self) -> int:
        return min(1 << min(self._count - 1, 10), _LONGEST_H) * _HOUR_NS

    def _parse(self, fields: dict[str, Any]) -> tuple[int, int]:
        boot, at_ns, count = fields["boot"], fields["at_ns"], fields["restarts"]
        if not isinstance(at_ns, int) or not isinstance(count, int) or count < 1:
            raise ValueError("restarts and at_ns must be whole numbers, restarts above 0")
        return (count, at_ns) if boot == self._boot else (0, 0)
