"""What the gateway needs of the packages it wires, stated as Protocols so that none of them imports back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeVar

import msgspec

from cloud.errors import Undelivered as Undelivered
from cloud.wire.identities import RUN_HEADER
from drivers.interface import Clock as Clock, Driver as Driver

T = TypeVar("T")
REPLAYED: Final = ("replayed", b"1")


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One Kafka record, as it will be sent; a struct, for there may be tens of thousands a second."""

    topic: str
    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...]

    def replayed(self) -> Record:
        """The same with the header of those that leave late."""
        if REPLAYED in self.headers:
            return self
        return Record(self.topic, self.key, self.value, (*self.headers, REPLAYED))

    def of_run(self, run: str) -> Record:
        """The same with the run that it comes from, where there is none in its value."""
        return Record(self.topic, self.key, self.value, (*self.headers, (RUN_HEADER, run.encode())))


@dataclass(slots=True, unsafe_hash=True)
class Ack:
    """A PUBACK owed to the broker; void once ``connection`` is no longer the current one.

    One with ``done`` is owed to a device that has handed the gateway something itself, and is never void.
    """

    connection: int
    message_id: int
    owed: int = field(default=0, compare=False)
    """How many open entries of the ledger owe it."""
    done: Callable[[], None] | None = field(default=None, compare=False)
    """Called by the forwarder's thread once all of them are durable."""


class Message(NamedTuple):
    """A message from the broker; a tuple, for there may be tens of thousands a second.

    ``ack`` is the PUBACK it needs, None at QoS 0. ``retained`` where the broker kept it for new subscribers,
    ``repeated`` where it is sent again because the connection broke before it was acknowledged. ``session``
    counts the broker's sessions: in each, message ids mean other messages.
    """

    topic: str
    payload: bytes
    ack: Ack | None
    retained: bool = False
    repeated: bool = False
    session: int = 1


class Sink(Protocol[T]):
    """Where records go: one thread uses it, no call blocks. ``T`` is what a record's outcome comes with."""

    @property
    def delivery_timeout_s(self) -> float:
        """After how long a record is given up, in seconds."""

    @property
    def open(self) -> int:
        """How many records' outcomes are to come."""

    @property
    def usable(self) -> bool:
        """Whether it takes records at all now."""

    def send(self, record: Record, token: T) -> bool:
        """Hand over a record; False when the sink takes nothing now, and then it has no outcome."""

    def poll(self) -> Sequence[tuple[T, Undelivered | None]]:
        """The outcomes since the last call: None for a record that is stored for good."""


class Broker(Protocol):
    """The local broker's session. One thread uses it, and no call blocks."""

    def interest(self) -> tuple[int | None, int]:
        """A descriptor and the events to wait for there, of ``select.poll``; None without a connection."""

    def wake_s(self) -> float:
        """When ``read`` has something to do whatever comes (monotonic)."""

    def read(self, now_s: float, *, take: bool) -> Sequence[Message]:
        """Do what is due, connecting included; the messages that came. Nothing is read unless ``take``."""

    def write(self) -> None:
        """Send what waits to be sent."""

    def acknowledge(self, ack: Ack) -> None:
        """Send a PUBACK with the next ``write``."""

    def publish(self, topic: str, payload: bytes) -> None:
        """Publish at QoS 1 with the next ``write``; nothing without connection."""

    def retain(self, messages: Mapping[str, bytes]) -> None:
        """Publish these, retained, now and at every connect: a broker may lose them. Empty removes one."""


class OwnTopics(Protocol):
    """Topics whose retained messages are wanted at every connect: an earlier run's last ones."""

    @property
    def names(self) -> tuple[str, ...]:
        """The topics."""

    def arrived(self, topic: str, payload: bytes) -> bool:
        """Take a message; True where the session's greeting is to be published again."""


REFUSALS: Final = (
    "login", "certificate", "protocol", "config", "permission", "topic", "quota", "replicas",
    "unreachable",
)  # fmt: skip
"""The kinds of what Kafka has against this gateway; the last: nobody answers."""


class ParkedTopic(NamedTuple):
    """Since when (monotonic) a Kafka topic takes nothing, and why: its latest refusal."""

    since_s: float
    problem: str


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
    durable: bool
    """Whether Kafka or the outbox has taken a reading of this run."""
    stuck: tuple[str, ...]
    """The parts that the watchdog finds stuck."""
    descriptions: Mapping[str, Mapping[str, str | float | bool]]
    """By sensor: serial number, self-calibration and the like, as the sensor gave them at its start."""
    parked: Mapping[str, ParkedTopic]
    """The topics that take nothing."""
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
