"""Sends this mast's support bundle to Kafka: one record in a topic of its own, made by a process of its own.

The process has the daemon's user and rights; what it can't read is named in the bundle. It holds no secret.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from cloud.wire.command_records import Command
from cloud.wire.reading_records import SUPPORT_TOPIC
from drivers.hardware.child_python import child_environment
from gateway.ports import Record
from gateway.remote.actions import Action, NotDone, no_arguments

log = logging.getLogger(__name__)

MOST_BYTES: Final = 900_000
"""Kafka takes records of 1 MiB by default, headers included."""
LINES: Final = (2000, 300, 20)
"""Of each journal: as many as fit."""
_LONGEST_S: Final = 120.0
_TURN_S: Final = 0.2
_KAFKA_S: Final = 5

Make = Callable[[int], bytes]
"""A bundle with so many lines of each journal. Raises NotDone."""


def support_bundle(make: Make, announce: Callable[[Record], None]) -> Action:
    """A bundle as a record of ``SUPPORT_TOPIC``; its header ``command`` is the command's id."""

    def carry_out(command: Command) -> Mapping[str, Any]:
        no_arguments(command)
        for lines in LINES:
            content = make(lines)
            if len(content) <= MOST_BYTES:
                headers = (("command", command.id.encode()),)
                announce(Record(SUPPORT_TOPIC, command.key, content, headers))
                return {"topic": SUPPORT_TOPIC, "bytes": len(content), "journal_lines": lines}
        raise NotDone("TOO_LARGE", f"{len(content)} bytes, at most {MOST_BYTES}", refused=False)

    return carry_out


def made_by_command(config: Path, stopping: threading.Event) -> Make:
    """By ``fieldgate support-bundle``, which is given up when the daemon stops, or takes too long."""

    def make(lines: int) -> bytes:
        with tempfile.TemporaryDirectory(prefix="fieldgate-") as directory:
            place = Path(directory) / "bundle.tar.gz"
            command = [
                *(sys.executable, "-P", "-m", "gateway.cli", "support-bundle", str(place)),
                *("-c", str(config), "--lines", str(lines), "--timeout", str(_KAFKA_S)),
            ]
            with subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=child_environment(),
            ) as process:
                _wait(process, stopping)
                errors = process.stderr.read() if process.stderr is not None else b""
            if process.returncode:
                said = errors.decode(errors="replace").strip()[-300:]
                raise NotDone("FAILED", said or f"exit code {process.returncode}", refused=False)
            return place.read_bytes()

    return make


def _wait(process: subprocess.Popen[bytes], stopping: threading.Event) -> None:
    until_s = time.monotonic() + _LONGEST_S
    while process.poll() is None:
        if stopping.wait(_TURN_S) or time.monotonic() >= until_s:
            process.kill()
            reason = "STOPPING" if stopping.is_set() else "FAILED"
            raise NotDone(reason, "the bundle wasn't ready in time", refused=False)
