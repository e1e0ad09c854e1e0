"""Where every message stands, from its first receipt to its durable end.

    WAITING ──> PRODUCED ──> confirmed by Kafka          (leaves the ledger)
       └───────────┴──────> STORING ──> row of the outbox (leaves the ledger)

Invariants:

- An entry leaves only when Kafka has confirmed it or the outbox has it; its PUBACKs are due when it is
  durable, never earlier. A PUBACK that several entries owe (one message, several readings) is due with the
  last of them.
- A row that the outbox keeps in memory, for want of a disk, is not durable: its PUBACKs wait until it is on
  disk, confirmed, or dropped and announced. Our own readings' don't: the broker could not restore what the
  gateway loses with its memory, and un-PUBACKed echoes would stop all that it sends us.
- A row whose copy the sink still holds is *held*: it is not drained before the sink tells that copy's
  outcome, and a late delivery deletes it.

Pure bookkeeping: no I/O, no clock. One thread (the forwarder's) owns it.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from gateway.ports import Ack, Record

ENTRY_BYTES: Final = 1024
"""What an entry takes beside its value: key, headers, objects (measured: 0.8 KiB, and a PUBACK)."""


class Stage(Enum):
    """How far an entry has come."""

    WAITING = auto()
    PRODUCED = auto()
    STORING = auto()


@dataclass(slots=True, eq=False)
class Entry:
    """One message. Times are monotonic; ``at_sink`` while the sink owes us its outcome.

    One that isn't ``live`` goes to the sink by way of the outbox only.
    """

    record: Record
    entered_s: float
    own: bool
    live: bool = True
    acks: list[Ack] = field(default_factory=list)
    stage: Stage = Stage.WAITING
    at_sink: bool = False
    sent_s: float = float("-inf")
    delivered: bool = False
    number: int | None = None


@dataclass(frozen=True, slots=True)
class Settled:
    """What falls due when entries reach their durable end: PUBACKs, and outbox rows no longer needed."""

    acks: tuple[Ack, ...] = ()
    rows: tuple[int, ...] = ()


@dataclass(slots=True)
class Counters:
    """Messages by what became of them; written by the forwarder's thread only."""

    sampled: int = 0
    received: int = 0
    confirmed: int = 0
    stored: int = 0
    dead_letters: int = 0
    late_echoes: int = 0
    delivered: Counter[bytes] = field(default_factory=Counter)
    """What Kafka has confirmed, live or from the outbox, by key."""


class Ledger:
    """The open entries, oldest first, and the held rows."""

    def __init__(self) -> None:
        # Apart, because while a slow commit is under way both may be long.
        self._unstored: OrderedDict[Entry, None] = OrderedDict()
        self._storing: dict[Entry, None] = {}
        self._awaiting_echo: dict[bytes, Entry] = {}
        # How many open entries owe each PUBACK.
        self._owing: dict[Ack, int] = {}
        self._held: dict[int, Entry] = {}
        self._in_memory: dict[int, Entry] = {}
        self.open_bytes = 0
        """What the open entries take, and rows in memory that owe PUBACKs: ``ENTRY_BYTES`` and a value."""

    def __len__(self) -> int:
        return len(self._unstored) + len(self._storing)

    def is_open(self, entry: Entry) -> bool:
        """Whether an entry's PUBACKs are still to come: it is neither confirmed nor stored durably yet."""
        owing = entry.number is not None and self._in_memory.get(entry.number) is entry
        return owing or entry in self._unstored or entry in self._storing

    @property
    def held(self) -> int:
        """How many outbox rows are held because the sink has a copy of them."""
        return len(self._held)

    def is_held(self, number: int) -> bool:
        """Whether an outbox row must not be drained yet."""
        return number in self._held

    def enter(
        self, record: Record, now_s: float, *, own: bool, ack: Ack | None = None, live: bool = True
    ) -> Entry:
        """Open an entry; one of our own readings will be known again by its bytes."""
        entry = Entry(record, now_s, own, live)
        if ack is not None:
            self.owe(entry, ack)
        self._unstored[entry] = None
        self.open_bytes += ENTRY_BYTES + len(record.value)
        if own:
            self._awaiting_echo[record.value] = entry
        return entry

    def echoed(self, payload: bytes, ack: Ack | None) -> Entry | None:
        """The open entry with these bytes, now owing a PUBACK; None where there is none."""
        entry = self._awaiting_echo.get(payload)
        if entry is not None and ack is not None:
            self.owe(entry, ack)
        return entry

    def owe(self, entry: Entry, ack: Ack) -> None:
        """An open entry owes a PUBACK, which others may owe too. Those of earlier connections are void."""
        void = [each for each in entry.acks if each.connection < ack.connection]
        if void:
            # On a disk that fails for days a message comes again with each connection.
            entry.acks = [each for each in entry.acks if each.connection >= ack.connection]
            for each in void:
                self._was_last(each)
        entry.acks.append(ack)
        self._owing[ack] = self._owing.get(ack, 0) + 1

    def produced(self, entry: Entry, now_s: float) -> None:
        """The sink takes the entry."""
        entry.stage = Stage.PRODUCED
        entry.at_sink = True
        entry.sent_s = now_s

    def delivered(self, entry: Entry) -> Settled:
        """Kafka has confirmed the entry, early or late."""
        entry.at_sink = False
        if entry.number is not None:
            self._held.pop(entry.number, None)
            return Settled(self._pay(entry.number), (entry.number,))
        entry.delivered = True
        if entry.stage is Stage.STORING:
            return Settled()
        return self._close(entry)

    def undelivered(self, entry: Entry) -> None:
        """The sink has given the entry up: a stored one may be drained, an open one waits to be stored."""
        entry.at_sink = False
        if entry.number is not None:
            self._held.pop(entry.number, None)
        elif entry.stage is Stage.PRODUCED:
            entry.stage = Stage.WAITING

    def replace(self, entry: Entry, record: Record) -> None:
        """Send another record (its dead letter) in the entry's place; PUBACKs and deadline stay."""
        self._forget_bytes(entry)
        self.open_bytes += len(record.value) - len(entry.record.value)
        entry.record = record

    def oldest_unstored(self) -> Entry | None:
        """The entry that has waited longest without being on its way to the disk."""
        return next(iter(self._unstored), None)

    @property
    def storing(self) -> bool:
        """Whether entries are on their way to the disk."""
        return bool(self._storing)

    def waiting(self) -> list[Entry]:
        """The entries that neither the sink nor the outbox has, oldest first."""
        return [entry for entry in self._unstored if entry.stage is Stage.WAITING]

    def records(self) -> list[Record]:
        """What is open."""
        return [entry.record for entry in (*self._storing, *self._unstored)]

    def take_for_storing(self, entered_before_s: float, topics: Container[str] = ()) -> list[Entry]:
        """The entries that entered before a moment and are not on their way to the disk; now they are.

        Of ``topics``, those that entered later as well.
        """
        taken = [
            entry
            for entry in self._unstored
            if entry.entered_s <= entered_before_s or entry.record.topic in topics
        ]
        for entry in taken:
            entry.stage = Stage.STORING
            del self._unstored[entry]
            self._storing[entry] = None
        return taken

    def give_up(self, free_bytes: int) -> tuple[list[Record], Settled]:
        """Forget the oldest entries that are nowhere else, until they took so much: they are lost.

        Other devices' messages are not among them, since the broker has them until they are acknowledged.
        """
        doomed: list[Entry] = []
        freed = 0
        for entry in self._unstored:
            if freed >= free_bytes:
                break
            if not entry.at_sink and (entry.own or not entry.acks):
                doomed.append(entry)
                freed += ENTRY_BYTES + len(entry.record.value)
        acks = [ack for entry in doomed for ack in self._close(entry).acks]
        return [entry.record for entry in doomed], Settled(tuple(acks))

    def stored(self, entries: Sequence[Entry], numbers: Sequence[int]) -> Settled:
        """The outbox has entries on disk under these numbers."""
        return self._placed(entries, numbers, durable=True)

    def kept(self, entries: Sequence[Entry], numbers: Sequence[int]) -> Settled:
        """The outbox has entries under these numbers, but in memory."""
        return self._placed(entries, numbers, durable=False)

    def rows_delivered(self, numbers: Iterable[int]) -> Settled:
        """Kafka has confirmed rows of the outbox."""
        if not self._in_memory:
            return Settled()
        return Settled(tuple(ack for number in numbers for ack in self._pay(number)))

    def durable_below(self, number: int) -> Settled:
        """No row below this number is in memory any more."""
        settled = [owing for owing in self._in_memory if owing < number]
        return Settled(tuple(ack for owing in settled for ack in self._pay(owing)))

    def _placed(self, entries: Sequence[Entry], numbers: Sequence[int], *, durable: bool) -> Settled:
        acks: list[Ack] = []
        delivered_meanwhile: list[int] = []
        for entry, number in zip(entries, numbers, strict=True):
            if durable or entry.own or entry.delivered or not entry.acks:
                acks += self._close(entry).acks
            else:
                del self._storing[entry]
                self._forget_bytes(entry)
                self._in_memory[number] = entry
            entry.number = number
            if entry.delivered:
                delivered_meanwhile.append(number)
            elif entry.at_sink:
                self._held[number] = entry
        return Settled(tuple(acks), tuple(delivered_meanwhile))

    def not_stored(self, entries: Sequence[Entry]) -> Settled:
        """The outbox refused entries: they stay, but for those Kafka confirmed meanwhile."""
        acks: list[Ack] = []
        # Back to the front, in their order: they are older than what has come since.
        for entry in reversed(entries):
            entry.stage = Stage.PRODUCED if entry.at_sink else Stage.WAITING
            if entry.delivered:
                acks += self._close(entry).acks
            else:
                del self._storing[entry]
                self._unstored[entry] = None
                self._unstored.move_to_end(entry, last=False)
        return Settled(tuple(acks))

    def _close(self, entry: Entry) -> Settled:
        if self.is_open(entry):
            self.open_bytes -= ENTRY_BYTES + len(entry.record.value)
        self._unstored.pop(entry, None)
        self._storing.pop(entry, None)
        self._forget_bytes(entry)
        return Settled(self._due(entry))

    def _due(self, entry: Entry) -> tuple[Ack, ...]:
        acks, entry.acks = entry.acks, []
        return tuple(ack for ack in acks if self._was_last(ack))

    def _was_last(self, ack: Ack) -> bool:
        """Whether nobody owes this PUBACK any more, now that one entry has left."""
        others = self._owing.pop(ack) - 1
        if others:
            self._owing[ack] = others
        return not others

    def _pay(self, number: int) -> tuple[Ack, ...]:
        """The PUBACKs that a row in memory owes."""
        entry = self._in_memory.pop(number, None)
        if entry is None:
            return ()
        self.open_bytes -= ENTRY_BYTES + len(entry.record.value)
        return self._due(entry)

    def _forget_bytes(self, entry: Entry) -> None:
        if self._awaiting_echo.get(entry.record.value) is entry:
            del self._awaiting_echo[entry.record.value]
