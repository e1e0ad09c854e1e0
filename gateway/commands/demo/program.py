"""A component that is a program of ours: the gateway, the Spark jobs."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cloud.local.process import Child
from cloud.local.server import LocalProgram


class Program(LocalProgram):
    """Runs ``command()``; ``ready`` decides by what it logged since its start whether it is up.

    The command is requested at each start, so that a restart can differ from the first one.
    """

    def __init__(
        self,
        command: Callable[[], Sequence[str]],
        log: Path,
        ready: Callable[[str], bool],
        environment: Mapping[str, str] | None = None,
        *,
        start_timeout_s: float = 60.0,
        stop_timeout_s: float = 15.0,
    ) -> None:
        super().__init__(log)
        self.start_timeout_s, self.stop_timeout_s = start_timeout_s, stop_timeout_s
        self._command = command
        self._ready = ready
        self._environment = environment
        self._log_start = 0

    def _spawn(self) -> Child:
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        # SIGTERM: when the demo is killed, the gateway still stores what is in memory.
        return Child(
            self._command(), self.log, environment=self._environment, parent_death_signal=signal.SIGTERM
        )

    def answers(self) -> bool:
        """True when it is up."""
        with self.log.open("rb") as file:
            file.seek(self._log_start)
            return self._ready(file.read().decode(errors="replace"))
