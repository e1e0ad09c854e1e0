"""What ``doctor`` reports: one finding for each thing it has examined."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: what was examined, what was found, and the remedy where there is one."""

    subject: str
    state: State
    found: str
    remedy: str | None = None
