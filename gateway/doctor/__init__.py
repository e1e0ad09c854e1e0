"""``fieldgate doctor``: looks at this machine with the eyes of a config, and says what to do."""

from __future__ import annotations

from gateway.doctor.command import run
from gateway.doctor.findings import Finding

__all__ = ["Finding", "run"]
