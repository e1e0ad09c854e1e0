"""What ``doctor`` reports: one finding for each thing it has examined."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

State = Literal["ok", "warning", "error"]

SLOW_UPLINK: Final = (
    "over half of outbox.commit_interval_s, so each reading is written to the card first; "
    "a longer one spares it"
)
"""What follows from Kafka's latency."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: what was examined, what was found, and the remedy where there is one."""

    subject: str
    state: State
    found: str
    remedy: str | None = None
