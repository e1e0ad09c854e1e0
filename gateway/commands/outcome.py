"""How a command ends: its exit code, and what it says."""

from __future__ import annotations

import sys
from typing import Final

OK: Final = 0
FAILED: Final = 1
INTERRUPTED: Final = 130


def say(line: str) -> None:
    """A line of the answer, to standard output."""
    sys.stdout.write(line + "\n")


def fail(message: str) -> int:
    """Say on standard error why it can't be done; the exit code for that."""
    sys.stderr.write(f"fieldgate: {message}\n")
    return FAILED
