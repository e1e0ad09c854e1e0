"""A small fleet with history beside the demo's mast: ``fieldgate simulate`` in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

_SIZE: Final = ("--gateways", "6", "--days", "2", "--period", "60", "--rate", "2000")
_GRACE_S: Final = 10.0


class FleetHistory:
    """Two days of six masts into Kafka. What it says is in a log; the demo goes on without it."""

    def __init__(self, bootstrap_servers: str, log: Path) -> None:
        self._command = (sys.executable, "-m", "gateway.cli", "simulate",
                         "--bootstrap-servers", bootstrap_servers, *_SIZE)  # fmt: skip
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Begin, behind all else that computes here."""
        with self._log.open("ab") as out:
            self._process = subprocess.Popen(self._command, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
        os.setpriority(os.PRIO_PROCESS, self._process.pid, 10)

    def stop(self) -> None:
        """End it; safe to call twice, and without a start."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None
