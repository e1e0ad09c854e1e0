"""What other threads hand the forwarder: it takes one event at a time, in the order they came.

The inbox also bounds memory: messages of the broker that wait here and what the ledger holds count together.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Final

from gateway.clock.hold import BootTime
from gateway.forwarding.ledger import Entry
from gateway.forwarding.outbox_writer import Answer
from gateway.ports import Ack, Record, Undelivered

# Beyond this much in memory the broker must keep what it has; it has the session for that.
MAX_MEMORY_BYTES: Final = 32 << 20
MESSAGE_BYTES: Final = 256
"""What a waiting message takes beside its payload (measured: 217)."""


@dataclass(frozen=True, slots=True)
class Entered:
    """One of our own readings, ``sampled`` and not published yet, or a record of the gateway itself."""

    record: Record
    sampled: bool


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
    """The broker has lost our session: its message ids begin again."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an entry at the live sink."""

    entry: Entry
    undelivered: Undelivered | None


@dataclass(frozen=True, slots=True)
class OutcomesWait:
    """There are outcomes of rows: one event for all that come before they are taken."""


@dataclass(frozen=True, slots=True)
class Call:
    """Something to do between two messages: those that have arrived come before it."""

    function: Callable[[], None]


Event = Entered | Arrived | SessionLost | Outcome | OutcomesWait | BootTime | Call | Answer


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
        self._events.put(Entered(record, sampled=True))

    def announce(self, record: Record) -> None:
        """Enter a record of the gateway: its runs, status, calibrations, events. As durable as a reading."""
        self._events.put(Entered(record, sampled=False))

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
        """The broker has lost our session; the session's network thread calls."""
        self._events.put(SessionLost())

    def put(self, event: Event) -> None:
        """Enter any other event."""
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
