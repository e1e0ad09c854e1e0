"""When the daemon may end itself so that systemd starts it anew, because drivers hang.

A new process gives back the threads, pins and buses that hang. Where the hardware itself is broken it helps
nobody, so each restart makes the next one wait longer: 1, 2, 4 … 24 hours. That is kept in a file beside the
outbox. A reboot, or a wait that has passed twice without another restart, begins again at one hour.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from gateway.system.atomic_file import write_atomic

log = logging.getLogger(__name__)

EXIT_CODE: Final = 75
"""EX_TEMPFAIL of sysexits.h: nothing is lost, start me again."""

HUNG_DRIVERS: Final = "HUNG_DRIVERS"
"""Why a run stopped itself; a run record and an event say so."""

_HOUR_NS: Final = 3600 * 10**9
_LONGEST_H: Final = 24


class RestartBudget:
    """Counts restarts in a file; ``boot_ns`` is time since boot, which nobody sets."""

    def __init__(self, path: Path, boot: str, boot_ns: Callable[[], int]) -> None:
        self._path = path
        self._boot = boot
        self._boot_ns = boot_ns
        self._count, self._at_ns = self._read()

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
        try:
            write_atomic(self._path, json.dumps({"boot": self._boot, "at_ns": now_ns, "restarts": count}))
        except OSError as error:
            # Unrecorded it would be repeated at once, for ever. Asked again after the shortest pause.
            log.error("event=state.not_written path=%s error=%s", self._path, error)
            self._count, self._at_ns = max(self._count, 1), now_ns
            return False
        self._count, self._at_ns = count, now_ns
        return True

    def _pause_ns(self) -> int:
        return min(1 << min(self._count - 1, 10), _LONGEST_H) * _HOUR_NS

    def _read(self) -> tuple[int, int]:
        try:
            fields = json.loads(self._path.read_text())
            boot, at_ns, count = fields["boot"], fields["at_ns"], fields["restarts"]
            if not isinstance(at_ns, int) or not isinstance(count, int) or count < 1:
                raise ValueError("restarts and at_ns must be whole numbers, restarts above 0")
        except FileNotFoundError:
            return 0, 0
        except (OSError, ValueError, TypeError, KeyError) as error:
            log.warning("event=state.unreadable path=%s error=%s", self._path, error)
            return 0, 0
        return (count, at_ns) if boot == self._boot else (0, 0)
