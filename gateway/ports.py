"""What the gateway needs of the packages it wires, stated as Protocols so that none of them imports back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from buffer.drops import InMemory
from drivers.interface import Clock as Clock
from drivers.interface import Driver as Driver


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

        They are durable when it returns, except those ``in_memory``. Without room the oldest go first;
        their drop is announced by the summary they came with.
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
        """Do what is due: try whether the disk can be used again. With ``at_once`` all of it is due now."""

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
"""Receives the outcome of one record: None once it is stored for good."""


class Sink(Protocol):
    """Where records go. ``send`` never blocks; its outcome comes from a thread of the sink's own."""

    @property
    def delivery_timeout_s(self) -> float:
        """After how long a record is given up, in seconds."""

    def send(self, record: Record, done: Done) -> bool:
        """Hand over a record; False when the sink's queue is full, and then ``done`` is not called."""


class Broker(Protocol):
    """The local broker's session, as the forwarder uses it. Neither call blocks."""

    def acknowledge(self, ack: Ack) -> None:
        """Send a PUBACK."""

    def resume(self) -> None:
        """Take messages again, after memory was full."""


class Receiver(Protocol):
    """Where the broker's messages go. The session's network thread calls; it must not block."""

    def arrived(self, topic: str, payload: bytes, ack: Ack | None, *, retained: bool, repeated: bool) -> bool:
        """Take a message; True where the broker must keep the next ones until ``Broker.resume``.

        ``ack`` is the PUBACK it needs, None at QoS 0. ``retained`` where the broker kept it for new
        subscribers, ``repeated`` where it is sent again.
        """

    def session_lost(self) -> None:
        """The broker has forgotten the session: its message ids begin again."""


class OwnTopics(Protocol):
    """Topics whose retained messages are wanted at every connect: an earlier run's last ones."""

    @property
    def names(self) -> tuple[str, ...]:
        """The topics."""

    def arrived(self, topic: str, payload: bytes) -> bool:
        """Take a message; True where the session's greeting is to be published again."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The gateway at one turn of the main loop, taken by its thread; times are monotonic seconds."""

    at_s: float
    ended: bool
    """Whether every sampler has come to its end."""
    synced: bool
    """Whether the readings' clock is right."""
    uplink: str
    """The forwarder's state: healthy, draining, spilling, metered."""
    reachable_s: float
    """How long Kafka has answered, by its delivery reports."""
    outbox_problem: str | None
    """Why the outbox keeps records in memory; None while they go to its disk."""
    mqtt_connected: bool
    """Whether the session is connected and subscribed."""
    confirmed_ago_s: float | None
    """Since Kafka's last delivery report; None without one."""
    outbox_share: float
    """How full the outbox is, 0 to 1."""
    channels: int
    """The sensors' channels that have had a reading."""
    silent: Collection[str]
    """The sensors whose last read failed."""
    stuck: tuple[str, ...]
    """The parts that the watchdog finds stuck."""
    descriptions: Mapping[str, Mapping[str, str | float | bool]]
    """By sensor: serial number, self-calibration and the like, as the sensor gave them at its start."""
    counts: Mapping[str, Any]
    """What changes in the record of a run."""

    @property
    def state(self) -> Literal["running", "ended"]:
        """The run's, as its record has it."""
        return "ended" if self.ended else "running"

    @property
    def stores(self) -> bool:
        """Whether what is announced becomes durable: the disk works, and no part is stuck."""
        return self.outbox_problem is None and not self.stuck
