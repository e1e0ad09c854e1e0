"""What the forwarder has done since the daemon started."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Counters:
    """Messages by what became of them; written by the forwarder's thread only."""

    sampled: int = 0
    received: int = 0
    confirmed: int = 0
    stored: int = 0
    dead_letters: int = 0
    late_echoes: int = 0
    delivered: Counter[bytes] = field(default_factory=Counter)
    """What Kafka has confirmed, live or from the outbox, by key."""
