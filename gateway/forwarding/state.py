"""What the parts of the forwarder share: counters, the ledger, and whether Kafka answers.

Kafka is judged by its delivery reports. Invariants:

- Kafka is silent when an entry has been at the sink for ``Pace.silent_after_s`` and no other was confirmed
  since. Where others were, it is the entry's topic: that is parked. It is silent too when the outbox alone
  sends, as it does while the local broker is away, and nothing was confirmed for ``_ROWS_SILENT_S``.
- A parked topic (missing, forbidden, or silent while others answer) is the operator's to mend, never the
  record's fault: what is for it waits in the outbox while all else flows. After a pause that doubles, one
  record is let through as a probe; the rest follow once it was delivered.

The forwarder's thread owns it; other threads read single figures. Times are monotonic.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from cloud.backoff import Backoff
from gateway.clock.hold import ClockHold
from gateway.config import Config
from gateway.forwarding.ledger import Entry, Ledger
from gateway.mqtt.intake import Intake
from gateway.ports import ParkedTopic

log = logging.getLogger(__name__)

# Over a gap longer than this Kafka counts as unreachable; a run record goes out each minute in any case.
_REPORTS_APART_S: Final = 150.0
_NEVER: Final = float("-inf")
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0
# The share of the commit interval that Kafka is given to confirm a message before it is stored.
_PATIENCE: Final = 0.5
# What is stored in any case waits this share of the interval, so that fsync comes within the interval.
_STORE_ANYWAY: Final = 0.9
# What leaves later than this, after a metered link's batch, is late: a record of the past.
_LATE_S: Final = 60.0
# Rows of the outbox may take their time, as all may over a metered link: they are on disk.
_ROWS_SILENT_S: Final = 30.0


@dataclass(slots=True)
class Pace:
    """``batch_s`` is how often a metered uplink sends what is stored; None where readings go out live."""

    commit_interval_s: float
    batch_s: float | None = None
    metered: bool = field(init=False)
    """Whether readings go through the outbox and leave in batches."""
    late_after_s: float = field(init=False)
    """How long after its sampling or receipt a message leaves as replayed."""

    def __post_init__(self) -> None:
        self.metered = self.batch_s is not None
        self.late_after_s = _LATE_S + (self.batch_s or 0.0)

    @classmethod
    def of(cls, config: Config) -> Pace:
        """The pace of a config."""
        metered = config.uplink.mode == "metered"
        return cls(config.outbox.commit_interval_s, config.uplink.batch_s if metered else None)

    def store_after_s(self, *, answering: bool) -> float:
        """How long a message may be unconfirmed before it is stored."""
        wait_for_kafka = answering and not self.metered
        return (_PATIENCE if wait_for_kafka else _STORE_ANYWAY) * self.commit_interval_s

    @property
    def silent_after_s(self) -> float:
        """After how long without a delivery report Kafka is silent."""
        return _ROWS_SILENT_S if self.metered else _PATIENCE * self.commit_interval_s


@dataclass(slots=True)
class _Parked:
    topic: ParkedTopic
    backoff: Backoff
    again_s: float
    probing: bool = False


class KafkaHealth:
    """Kafka's answers and the parked topics."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._prompt_s = _NEVER
        self._suspect: Entry | None = None
        self._parked: dict[str, _Parked] = {}
        self.answering = True
        self.reachable_s = 0.0
        """How long Kafka has answered, by its delivery reports."""
        self.confirmed_s: float | None = None
        """When Kafka last confirmed anything."""
        self.late_s: float | None = None
        """How long the last confirmation took, where readings that go out live are stored before it comes."""
        self.freed = 0
        """How many topics have taken records again."""

    def watch(self, entry: Entry) -> None:
        """An entry at the sink that ``evaluate`` judges by; the first of several stands for them."""
        if self._suspect is None:
            self._suspect = entry

    def wake_s(self) -> float:
        """When ``evaluate`` can decide, infinity without an entry to judge by."""
        return float("inf") if self._suspect is None else self._suspect.sent_s + self._pace.silent_after_s

    def evaluate(self, now_s: float) -> None:
        """Decide once Kafka has had its time for the watched entry, which may have come to the sink late."""
        entry = self._suspect
        if entry is None or (entry.at_sink and now_s < self.wake_s()):
            return
        self._suspect = None
        if not entry.at_sink or not self.answering:
            return
        if self._prompt_s > entry.sent_s:
            self.park(entry.record.topic, now_s, "no delivery report while others came: min.insync.replicas?")
        else:
            self.silent()

    def evaluate_rows(self, since_s: float, now_s: float) -> None:
        """Decide by rows of the outbox that are at the sink, without a break since then."""
        if now_s - max(since_s, self.confirmed_s or _NEVER) > _ROWS_SILENT_S:
            self.silent()

    def silent(self) -> None:
        """Kafka doesn't answer: what comes is stored."""
        if self.answering:
            self.answering = False
            log.warning("event=kafka.silent action=store")

    def confirmed(self, topic: str, sent_s: float, now_s: float) -> bool:
        """A delivery report has come; True for a prompt one: Kafka answers."""
        if self.confirmed_s is not None and now_s - self.confirmed_s <= _REPORTS_APART_S:
            self.reachable_s += now_s - self.confirmed_s
        self.confirmed_s = now_s
        if self._parked.pop(topic, None) is not None:
            self.freed += 1
            log.warning("event=topic.delivers topic=%s", topic)
        prompt = now_s - sent_s <= self._pace.silent_after_s
        self.late_s = None if prompt or self._pace.metered else now_s - sent_s
        if prompt:
            self._prompt_s = now_s
        return prompt

    @property
    def parked_topics(self) -> tuple[str, ...]:
        """The topics parked now."""
        return tuple(self._parked)

    def parked(self) -> dict[str, ParkedTopic]:
        """The topics parked now, since when and why. Any thread may call it."""
        return {topic: each.topic for topic, each in self._parked.copy().items()}

    def next_probe_s(self, after_s: float = _NEVER) -> float:
        """When the next parked topic may be tried that couldn't at ``after_s``, infinity without one."""
        pauses = (parked.again_s for parked in self._parked.values())
        return min((again_s for again_s in pauses if again_s > after_s), default=float("inf"))

    def due(self, topic: str, now_s: float) -> bool:
        """Whether a topic takes records, or a record may be tried to see whether it does."""
        parked = self._parked.get(topic)
        return parked is None or now_s >= parked.again_s

    def may_send(self, topic: str, now_s: float) -> bool:
        """Whether a record may go to a topic; to a parked one the first after its pause, as a probe."""
        parked = self._parked.get(topic)
        if parked is None:
            return True
        if now_s < parked.again_s:
            return False
        parked.again_s = now_s + _LONGEST_PAUSE_S
        parked.probing = True
        return True

    def park(self, topic: str, now_s: float, problem: str) -> None:
        """A topic took nothing; the pause doubles each time its probe fails."""
        parked = self._parked.get(topic)
        if parked is not None and not parked.probing:
            # It was under way already when the first one failed.
            return
        backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S) if parked is None else parked.backoff
        since_s = now_s if parked is None else parked.topic.since_s
        pause_s = backoff.next()
        self._parked[topic] = _Parked(ParkedTopic(since_s, problem), backoff, now_s + pause_s)
        level = logging.WARNING if parked is None else logging.DEBUG
        log.log(level, "event=topic.parked topic=%s again_in_s=%g error=%s", topic, pause_s, problem)


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
    """Messages refused, by this gateway or by Kafka; of the outbox's rows those that Kafka has as such."""
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
    taking: bool = field(init=False, default=True)
    """Whether new messages are accepted."""
    stop_at_s: float | None = field(init=False, default=None)
    """When a stop gives up waiting for Kafka; None while it runs."""
    stopping: bool = field(init=False, default=False)
    """Whether all is stored at once, and nothing new is fetched."""

    def __post_init__(self) -> None:
        self.kafka = KafkaHealth(self.pace)
