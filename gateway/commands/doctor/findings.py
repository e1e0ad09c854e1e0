"""What ``doctor`` reports: one finding for each thing it has examined."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

State = Literal["ok", "warning", "error"]

RESTART: Final = "sudo systemctl restart fieldgate"
SLOW_UPLINK: Final = (
    "over half of outbox.commit_interval_s, so each reading is written to the card first; "
    "a longer one spares it"
)
"""What follows from Kafka's latency."""
TAKEN_OVER: Final = "another gateway with this id takes its MQTT session again and again: a cloned SD card?"
SITE_MOVED: Final = "the mast was moved: by GPS it is {:,} m from [site]"
SITE_REMEDY: Final = "give [site] its new position, and as valid_from the day since when"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: what was examined, what was found, and the remedy where there is one."""

    subject: str
    state: State
    found: str
    remedy: str | None = None
