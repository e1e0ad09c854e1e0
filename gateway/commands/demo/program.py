"""A component that is a program of ours: the gateway, the Spark jobs."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cloud.local.process import Child


class Program:
    """Runs ``command()``, its output in ``log``; ``ready(what it logged so far)`` says when it is up.

    The command is made anew for each start, so that a restart can differ from the first one.
    """

    def __init__(
        self,
        command: Callable[[], Sequence[str]],
        log: Path,
        ready: Callable[[str], bool],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.log = log
        self._environment = environment
        self._command = command
        self._ready = ready
        self._child: Child | None = None
        self._log_start = 0

    @property
    def pid(self) -> int | None:
        """The process id, None before the first start."""
        return None if self._child is None else self._child.pid

    @property
    def exit_code(self) -> int | None:
        """None while the process runs or before the first start."""
        return None if self._child is None else self._child.exit_code

    def launch(self) -> None:
        """Start it; what an earlier start may have left is ended first."""
        self.stop(5.0)
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        # SIGTERM: whoever kills the demo still gets what is in memory stored.
        self._child = Child(
            self._command(),
            self.log,
            environment=self._environment,
            parent_death_signal=signal.SIGTERM,
        )

    def answers(self) -> bool:
        """True when it is up."""
        with self.log.open("rb") as file:
            file.seek(self._log_start)
            return self._ready(file.read().decode(errors="replace"))

    def stop(self, timeout_s: float) -> None:
        """SIGTERM, and SIGKILL past the timeout; safe to call twice."""
        if self._child is not None:
            self._child.stop(timeout_s)

    def kill(self) -> None:
        """SIGKILL at once."""
        if self._child is not None:
            self._child.kill()
