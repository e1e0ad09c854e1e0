"""What other threads hand the forwarder: it takes one event at a time, in the order they came.

The inbox also bounds memory: messages of the broker that wait here and what the ledger holds count together.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Final

from buffer.drops import MEMORY_FULL, Drop, OnDrop
from gateway.clock.hold import BootTime
from gateway.forwarding.backlog import OutcomesWait
from gateway.forwarding.ledger import Entry, Ledger, Settled
from gateway.forwarding.outbox_writer import Answer
from gateway.forwarding.seq_summary import summarise
from gateway.ports import Ack, Record, Undelivered

# Beyond this much in memory the broker is asked to keep what it has; it has the session for that.
MAX_MEMORY_BYTES: Final = 32 << 20
MESSAGE_BYTES: Final = 256
"""What a waiting message takes beside its payload (measured: 217)."""
# Beyond this much of our own, the oldest readings go: the disk neither takes them nor refuses.
MAX_LEDGER_BYTES: Final = 48 << 20


@dataclass(frozen=True, slots=True)
class Sampled:
    """One of our own readings, before it is published."""

    record: Record


@dataclass(frozen=True, slots=True)
class Announced:
    """A record of the gateway itself: its runs, status, calibrations and events."""

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
    """The broker has forgotten our session: its message ids begin again."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an entry at the live sink."""

    entry: Entry
    undelivered: Undelivered | None


@dataclass(frozen=True, slots=True)
class TakeNoMore:
    """From here on no new message is accepted; ``done`` is set once that holds."""

    done: threading.Event


@dataclass(frozen=True, slots=True)
class Stop:
    """Store everything, give Kafka ``grace_s``, end."""

    grace_s: float


@dataclass(frozen=True, slots=True)
class Changed:
    """Another config: what comes after it in the queue is judged by it."""

    apply: Callable[[], None]
    commit_interval_s: float


Event = (
    Sampled
    | Announced
    | Arrived
    | SessionLost
    | Outcome
    | OutcomesWait
    | BootTime
    | TakeNoMore
    | Stop
    | Changed
    | Answer
)


class Inbox:
    """Any thread puts and none waits; the forwarder's thread takes."""

    def __init__(self) -> None:
        self._events: SimpleQueue[Event] = SimpleQueue()
        # One thread writes each, so none needs a lock.
        self._arrived_bytes = 0
        self._taken_bytes = 0
        self.ledger_bytes = 0
        """What the ledger holds; the forwarder's thread writes it."""
        self._full = threading.Event()

    def sampled(self, record: Record) -> None:
        """Enter one of our own readings, before it is published."""
        self._events.put(Sampled(record))

    def announce(self, record: Record) -> None:
        """Enter a record of the gateway itself; it is as durable as a reading."""
        self._events.put(Announced(record))

    def judged(self, boot_time: BootTime) -> None:
        """Let readings leave that waited for the clock: with their boot's time, or without."""
        self._events.put(boot_time)

    def arrived(
        self, topic: str, payload: bytes, ack: Ack | None, *, retained: bool = False, repeated: bool = False
    ) -> bool:
        """Enter a message of the broker; the session's network thread calls.

        True where it fills the memory: the broker must keep the next ones until the forwarder resumes it.
        """
        self._arrived_bytes += MESSAGE_BYTES + len(payload)
        fills = self._bytes() > MAX_MEMORY_BYTES and not self._full.is_set()
        if fills:
            self._full.set()
        self._events.put(Arrived(topic, payload, ack, retained, repeated))
        return fills

    def session_lost(self) -> None:
        """The broker has forgotten us: what it sends from now on is none of what it sent before."""
        self._events.put(SessionLost())

    def change(self, apply: Callable[[], None], commit_interval_s: float) -> None:
        """Take another config between two messages: those that have arrived are judged by the old one."""
        self._events.put(Changed(apply, commit_interval_s))

    def put(self, event: Event) -> None:
        """Enter an outcome of a sink, an answer of the outbox writer, or a request to stop."""
        self._events.put(event)

    def take(self, timeout_s: float) -> Event:
        """The next event. Raises queue.Empty where none comes in time."""
        event = self._events.get(timeout=timeout_s)
        if isinstance(event, Arrived):
            self._taken_bytes += MESSAGE_BYTES + len(event.payload)
        return event

    @property
    def empty(self) -> bool:
        """Whether nothing waits now."""
        return self._events.empty()

    def has_room_again(self) -> bool:
        """True once after memory was full, when half of it is free; the forwarder's thread calls."""
        if not self._full.is_set() or self._bytes() >= MAX_MEMORY_BYTES // 2:
            return False
        self._full.clear()
        return True

    def _bytes(self) -> int:
        return self._arrived_bytes - self._taken_bytes + self.ledger_bytes


def bound_ledger(ledger: Ledger, on_drop: OnDrop) -> Settled:
    """Give up our own oldest readings where the ledger is too long; what falls due with that."""
    if ledger.open_bytes <= MAX_LEDGER_BYTES:
        return Settled()
    lost, settled = ledger.give_up(ledger.open_bytes - MAX_LEDGER_BYTES * 7 // 8)
    if lost:
        on_drop(Drop(MEMORY_FULL, 0, 0, len(lost), summarise(lost)))
    return settled
