"""What other threads hand the forwarder: it takes one event at a time, in the order they came.

Any thread puts and none waits; the forwarder's thread takes, and sleeps here.
"""

from __future__ import annotations

import math
import os
import select
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from gateway.clock.hold import BootTime
from gateway.forwarding.outbox_writer import Answer
from gateway.ports import Ack, Record


class Sampled(NamedTuple):
    """One of our own readings, to be published to an MQTT topic."""

    record: Record
    topic: str


class Announced(NamedTuple):
    """A record of the gateway itself (runs, status, calibrations, events), as durable as a reading."""

    record: Record


class Posted(NamedTuple):
    """Records made of what a device has handed the gateway itself, which ``ack`` is owed for."""

    records: Sequence[Record]
    ack: Ack


class Published(NamedTuple):
    """A message that a device has published to the gateway itself, which ``ack`` is owed for."""

    topic: str
    payload: bytes
    ack: Ack


class Retained(NamedTuple):
    """Messages that the local broker shall retain, by topic; an empty one removes what it has."""

    messages: Mapping[str, bytes]


class Call(NamedTuple):
    """Something to do between two messages: those that have arrived come before it."""

    function: Callable[[], None]


Event = Sampled | Announced | Posted | Published | Retained | BootTime | Call | Answer


class Inbox:
    """The events that wait, and a descriptor that wakes the forwarder's thread."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._asleep = False
        self.has_readings = False
        """Whether some of our own readings have come since this was last reset."""

    def __del__(self) -> None:
        os.close(self._descriptor)

    def sampled(self, record: Record, topic: str) -> None:
        """Enter one of our own readings, which is then published."""
        self.has_readings = True
        self.put(Sampled(record, topic))

    def announce(self, record: Record) -> None:
        """Enter a record of the gateway."""
        self.put(Announced(record))

    def retain(self, messages: Mapping[str, bytes], *, soon: bool = True) -> None:
        """Let the local broker retain these, now and from each connect on; an empty one is removed.

        What needn't be there ``soon`` wakes nobody: it goes with what comes next, within a second.
        """
        if soon:
            self.put(Retained(messages))
        else:
            self._events.append(Retained(messages))

    def put(self, event: Event) -> None:
        """Enter any event."""
        self._events.append(event)
        if self._asleep:
            # Once: each is a system call, in which another thread may take the interpreter's lock.
            self._asleep = False
            self.wake()

    def wake(self) -> None:
        """End the forwarder's sleep."""
        os.eventfd_write(self._descriptor, 1)

    def take(self) -> Event | None:
        """The next event; None where there is none."""
        return self._events.popleft() if self._events else None

    def sleep(self, timeout_s: float, descriptor: int | None, interest: int) -> None:
        """Sleep until an event waits, ``descriptor`` is ready for ``interest``, or the time is over."""
        # First: an event put from now on writes to the descriptor.
        self._asleep = True
        if self._events:
            timeout_s = 0.0
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        if descriptor is not None:
            poll.register(descriptor, interest)
        ready = poll.poll(math.ceil(timeout_s * 1000))
        self._asleep = False
        if any(each == self._descriptor for each, _ in ready):
            os.eventfd_read(self._descriptor)
