"""``fieldgate doctor``: looks at this machine with the eyes of a config, and says what to do."""

from __future__ import annotations

from gateway.commands.doctor.command import run
from gateway.commands.doctor.findings import Finding

__all__ = ["Finding", "run"]
