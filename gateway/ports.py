"""What the gateway needs of the packages it wires, stated as Protocols so that none of them imports back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from buffer.drops import InMemory
from drivers.interface import Clock, Driver

__all__ = ["Ack", "Clock", "Done", "Driver", "Outbox", "Record", "Sink", "Undelivered"]


@dataclass(frozen=True, slots=True)
class Record:
    """One Kafka record, as it will be sent."""

    topic: str
    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Ack:
    """A PUBACK owed to the broker; void once ``connection`` is no longer the current one."""

    connection: int
    message_id: int


class Outbox(Protocol):
    """A durable queue of opaque records, oldest first. One thread uses it."""

    def append(self, records: Sequence[bytes], summary: bytes = b"") -> list[int]:
        """Take all of them or none; their numbers, growing, never used again.

        They are durable when it returns, but for those that ``in_memory`` tells of. The oldest records go
        first where there is no room. The owner is told what was in them by the summary they came with.
        """

    def peek(self, after: int, limit: int, max_bytes: int) -> list[tuple[int, bytes]]:
        """The oldest records with numbers above ``after``.

        At most ``limit`` of them and ``max_bytes``, but always one where there is one.
        """

    def remove(self, numbers: Iterable[int]) -> None:
        """Forget records; unknown numbers are ignored. After a crash some may come again."""

    def __len__(self) -> int:
        """How many records are stored; a little more while a damaged file is salvaged."""

    def size_bytes(self) -> int:
        """Bytes on disk, write-ahead log included."""

    @property
    def backfilled(self) -> int:
        """Raised when records may have come in below numbers that were read already."""

    def in_memory(self) -> InMemory:
        """What is not durable, because the disk can't be used."""

    def tend(self, *, at_once: bool = False) -> None:
        """Do what is due while nothing else is asked: see whether the disk can be used again.

        With ``at_once`` it is due now, and all of it.
        """

    def close(self) -> None:
        """Release the file; safe to call twice."""


class Undelivered(Protocol):
    """Why a sink gave a record up."""

    @property
    def problem(self) -> str:
        """In words, with the error's name."""

    @property
    def record_at_fault(self) -> bool:
        """True where trying again can't help."""

    @property
    def topic_at_fault(self) -> bool:
        """True where the topic is missing or forbidden: others may go on."""


Done = Callable[[Undelivered | None], None]
"""Told the outcome of one record: None once it is stored for good."""


class Sink(Protocol):
    """Where records go. ``send`` never blocks; its outcome comes from a thread of the sink's own."""

    def send(self, record: Record, done: Done) -> bool:
        """Hand over a record; False when the sink's queue is full, and then ``done`` is not called."""

    def flush(self, timeout_s: float) -> int:
        """Wait for outcomes; how many records are still open."""

    def close(self) -> None:
        """Give up what is open and end."""
