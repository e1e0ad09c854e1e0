"""Bounds what the forwarder keeps in memory: the broker keeps its messages, our own oldest readings go."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from buffer.drops import MEMORY_FULL, Drop, OnDrop
from gateway.forwarding.ledger import Ledger, Settled
from gateway.forwarding.seq_summary import summarise

# Beyond this much in memory the broker is asked to keep what it has; it has the session for that.
MAX_MEMORY_BYTES: Final = 32 << 20
MESSAGE_BYTES: Final = 256
"""What a message not yet looked at takes beside its payload (measured: 217)."""
# Beyond this much of our own, the oldest readings go: the disk neither takes them nor refuses.
MAX_LEDGER_BYTES: Final = 48 << 20


class MemoryBounds:
    """Counts messages of the broker not yet looked at, and what the ledger has.

    ``hold`` is told when memory is full and the broker must keep its messages, and when it may send again.
    ``on_drop`` is told, in the forwarder's thread, what had to be given up.
    """

    def __init__(self, ledger: Ledger, hold: Callable[[bool], None], on_drop: OnDrop) -> None:
        self._ledger = ledger
        self._hold = hold
        self._on_drop = on_drop
        # One thread writes each, so neither needs a lock.
        self._arrived_bytes = 0
        self._taken_bytes = 0
        self._holding = threading.Event()

    def arrived(self, payload: bytes) -> None:
        """A message goes into the queue: maybe the broker must keep the next. Its network thread calls."""
        self._arrived_bytes += MESSAGE_BYTES + len(payload)
        if self._bytes() > MAX_MEMORY_BYTES and not self._holding.is_set():
            self._holding.set()
            self._hold(True)

    def taken(self, payload: bytes) -> None:
        """A message has left the queue; the forwarder's thread looks at it."""
        self._taken_bytes += MESSAGE_BYTES + len(payload)

    def let_go(self) -> None:
        """The broker may send again once half of the memory is free."""
        if self._holding.is_set() and self._bytes() < MAX_MEMORY_BYTES // 2:
            self._holding.clear()
            self._hold(False)

    def bound_ledger(self) -> Settled:
        """Give up our own oldest readings where the ledger is too long; what falls due with that."""
        if self._ledger.open_bytes <= MAX_LEDGER_BYTES:
            return Settled()
        lost, settled = self._ledger.give_up(self._ledger.open_bytes - MAX_LEDGER_BYTES * 7 // 8)
        if lost:
            self._on_drop(Drop(MEMORY_FULL, 0, 0, len(lost), summarise(lost)))
        return settled

    def _bytes(self) -> int:
        return self._arrived_bytes - self._taken_bytes + self._ledger.open_bytes
