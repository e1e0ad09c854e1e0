"""What the parts of the forwarder share. Its thread owns it; other threads read single figures."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.clock.hold import ClockHold
from gateway.forwarding.compacted_topics import CompactedTopics
from gateway.forwarding.kafka_health import KafkaHealth, Pace
from gateway.forwarding.ledger import Ledger
from gateway.mqtt.intake import Intake


@dataclass(slots=True)
class Counters:
    """Messages by what became of them."""

    sampled: int = 0
    received: int = 0
    confirmed: int = 0
    stored: int = 0
    drained: int = 0
    """Rows of the outbox that Kafka has confirmed."""
    late_echoes: int = 0
    dead_letters: int = 0
    """Messages refused, by this gateway or by Kafka; not rows of the outbox, which may be read again."""
    delivered: Counter[bytes] = field(default_factory=Counter)
    """What Kafka has confirmed, live or from the outbox, by key, of this gateway's channels."""


@dataclass(slots=True)
class State:
    """``hold`` keeps readings in the outbox while the clock isn't synchronised. Times are monotonic."""

    intake: Intake
    pace: Pace
    hold: ClockHold = field(default_factory=ClockHold)
    monotonic: Callable[[], float] = time.monotonic
    ledger: Ledger = field(default_factory=Ledger)
    counters: Counters = field(default_factory=Counters)
    kafka: KafkaHealth = field(init=False)
    compacted: CompactedTopics = field(init=False)
    taking: bool = field(init=False, default=True)
    """Whether new messages are accepted."""
    stop_at_s: float | None = field(init=False, default=None)
    """When a stop gives up waiting for Kafka; None while it runs."""

    def __post_init__(self) -> None:
        self.kafka = KafkaHealth(self.pace)
        self.compacted = CompactedTopics(self.intake.run)

    @property
    def stopping(self) -> bool:
        """Whether all is stored at once, and nothing new is fetched."""
        return self.stop_at_s is not None
