"""Where what devices hand to the gateway itself enters: bounded, and answered once it is durable.

Any thread may call; the forwarder's thread calls back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final

from gateway.forwarding.forwarder import Posted, Published
from gateway.forwarding.ledger import ENTRY_BYTES
from gateway.ports import Ack, Record

_MOST_OPEN_BYTES: Final = 4 << 20
"""Devices have to wait while more than this isn't durable yet."""


class DeviceEntry:
    """``put`` enters what comes with the forwarder; ``is_full``: its memory has no room."""

    def __init__(self, put: Callable[[Posted | Published], None], is_full: Callable[[], bool]) -> None:
        self._put = put
        self._is_full = is_full
        self._open_bytes = 0
        self._lock = threading.Lock()

    @property
    def has_room(self) -> bool:
        """Whether anything is taken now."""
        return self._open_bytes < _MOST_OPEN_BYTES and not self._is_full()

    def hand_over(self, records: Sequence[Record], done: Callable[[], None]) -> bool:
        """Enter records; ``done`` once Kafka has all of them, or the outbox. False: there is no room."""
        ack = self._ack(sum(ENTRY_BYTES + len(record.value) for record in records), done)
        if ack is not None:
            self._put(Posted(records, ack))
        return ack is not None

    def publish(self, topic: str, payload: bytes, done: Callable[[], None]) -> bool:
        """Enter a message; ``done`` once what comes of it is durable. False: there is no room."""
        ack = self._ack(ENTRY_BYTES + len(topic) + len(payload), done)
        if ack is not None:
            self._put(Published(topic, payload, ack))
        return ack is not None

    def _ack(self, size: int, done: Callable[[], None]) -> Ack | None:
        with self._lock:
            if not self.has_room:
                return None
            self._open_bytes += size

        def durable() -> None:
            with self._lock:
                self._open_bytes -= size
            done()

        return Ack(0, 0, done=durable)
