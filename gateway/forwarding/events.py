"""What the other threads tell the forwarder; it takes one at a time, in the order they came."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gateway.clock.hold import Verdict
from gateway.forwarding.backlog import OutcomesWait
from gateway.forwarding.ledger import Entry
from gateway.forwarding.outbox_writer import Answer
from gateway.ports import Ack, Record, Undelivered


@dataclass(frozen=True, slots=True)
class Sampled:
    """One of our own readings, before it is published."""

    record: Record


@dataclass(frozen=True, slots=True)
class Announced:
    """What the gateway has to say of itself."""

    record: Record


@dataclass(frozen=True, slots=True)
class Arrived:
    """A message from the broker.

    ``retained`` where it was kept for new subscribers, ``repeated`` where it is sent again because the
    connection broke before it was acknowledged.
    """

    topic: str
    payload: bytes
    ack: Ack | None
    retained: bool
    repeated: bool


@dataclass(frozen=True, slots=True)
class SessionLost:
    """The broker has forgotten our session: its message ids begin anew."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The live sink told what became of an entry."""

    entry: Entry
    undelivered: Undelivered | None


@dataclass(frozen=True, slots=True)
class Stop:
    """Store everything, give Kafka ``grace_s``, end; ``farewell`` makes the last record to announce."""

    grace_s: float
    farewell: Callable[[], Record] | None


@dataclass(frozen=True, slots=True)
class Changed:
    """Another config: what comes after it in the queue is judged by it."""

    adopt: Callable[[], None]
    commit_interval_s: float


Event = (
    Sampled | Announced | Arrived | SessionLost | Outcome | OutcomesWait | Verdict | Stop | Changed | Answer
)
