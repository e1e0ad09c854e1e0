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
- A row whose copy the sink still holds is *held*: it is not drained before the sink reports that copy's
  outcome, and a late delivery deletes it.

Pure bookkeeping: no I/O, no clock. One thread (the forwarder's) owns it. What falls due with a call is kept
until ``take_settled``.
"""

from __future__ import annotations

from collections import OrderedDict
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


@dataclass(slots=True, eq=False, weakref_slot=True)
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

    @property
    def size_bytes(self) -> int:
        """What it takes in memory."""
        return ENTRY_BYTES + len(self.record.value)


@dataclass(slots=True)
class Settled:
    """What falls due when entries reach their durable end: PUBACKs, and outbox rows no longer needed."""

    acks: list[Ack] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)


class Ledger:
    """The open entries, oldest first, and the held rows."""

    def __init__(self) -> None:
        # Apart, because while a slow commit is under way both may be long.
        self._unstored: OrderedDict[Entry, None] = OrderedDict()
        self._storing: dict[Entry, None] = {}
        self._awaiting_echo: dict[bytes, Entry] = {}
        self._in_memory: dict[int, Entry] = {}
        self._settled = Settled()
        self.open_bytes = 0
        """What the open entries take, and rows in memory that owe PUBACKs."""
        self.held: set[int] = set()
        """Rows of the outbox that must not be drained yet, because the sink has a copy of them."""

    def __len__(self) -> int:
        return len(self._unstored) + len(self._storing)

    def take_settled(self) -> Settled:
        """What has fallen due since the last call."""
        settled, self._settled = self._settled, Settled()
        return settled

    def is_open(self, entry: Entry) -> bool:
        """Whether an entry's PUBACKs are still to come: it is neither confirmed nor stored durably yet."""
        owing = entry.number is not None and self._in_memory.get(entry.number) is entry
        return owing or entry in self._unstored or entry in self._storing

    def enter(
        self, record: Record, now_s: float, *, own: bool, ack: Ack | None = None, live: bool = True
    ) -> Entry:
        """Open an entry; the echo of one of our own readings is recognised by its bytes."""
        entry = Entry(record, now_s, own, live)
        if ack is not None:
            self.owe(entry, ack)
        self._unstored[entry] = None
        self.open_bytes += entry.size_bytes
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
        if entry.acks and entry.acks[0].connection < ack.connection:
            # On a disk that fails for days a message comes again with each connection.
            entry.acks = [each for each in entry.acks if each.connection >= ack.connection]
        entry.acks.append(ack)
        ack.owed += 1

    def produced(self, entry: Entry, now_s: float) -> None:
        """The sink takes the entry."""
        entry.stage = Stage.PRODUCED
        entry.at_sink = True
        entry.sent_s = now_s

    def delivered(self, entry: Entry) -> None:
        """Kafka has confirmed the entry, early or late."""
        entry.at_sink = False
        if entry.number is not None:
            self.held.discard(entry.number)
            self._settled.rows.append(entry.number)
            self.rows_delivered((entry.number,))
            return
        entry.delivered = True
        if entry.stage is not Stage.STORING:
            self._close(entry)

    def undelivered(self, entry: Entry) -> None:
        """The sink has given the entry up: a stored one may be drained, an open one waits to be stored."""
        entry.at_sink = False
        if entry.number is not None:
            self.held.discard(entry.number)
        elif entry.stage is Stage.PRODUCED:
            entry.stage = Stage.WAITING

    def replace(self, entry: Entry, record: Record) -> None:
        """Send another record (its dead letter) in the entry's place; PUBACKs and deadline stay."""
        self._await_no_echo(entry)
        self.open_bytes -= entry.size_bytes
        entry.record = record
        self.open_bytes += entry.size_bytes

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

    def give_up(self, free_bytes: int) -> list[Record]:
        """Remove the oldest entries that are nowhere else, until they took so much: they are lost.

        Other devices' messages are not among them, since the broker has them until they are acknowledged.
        """
        doomed: list[Entry] = []
        freed = 0
        for entry in self._unstored:
            if freed >= free_bytes:
                break
            if not entry.at_sink and (entry.own or not entry.acks):
                doomed.append(entry)
                freed += entry.size_bytes
        for entry in doomed:
            self._close(entry)
        return [entry.record for entry in doomed]

    def stored(self, entries: Sequence[Entry], numbers: Sequence[int], *, durable: bool = True) -> None:
        """The outbox has entries under these numbers: on disk, or in memory where not ``durable``."""
        for entry, number in zip(entries, numbers, strict=True):
            if durable or entry.own or entry.delivered or not entry.acks:
                self._close(entry)
            else:
                del self._storing[entry]
                self._await_no_echo(entry)
                self._in_memory[number] = entry
            entry.number = number
            if entry.delivered:
                self._settled.rows.append(number)
            elif entry.at_sink:
                self.held.add(number)

    def durable_below(self, number: int | None) -> None:
        """No row below this number is in memory any more, none at all without one."""
        self.rows_delivered([owing for owing in self._in_memory if number is None or owing < number])

    def rows_delivered(self, numbers: Iterable[int]) -> None:
        """Kafka has confirmed rows of the outbox, or they are on disk by now: what they owe is due."""
        if not self._in_memory:
            return
        for number in numbers:
            entry = self._in_memory.pop(number, None)
            if entry is not None:
                self.open_bytes -= entry.size_bytes
                self._pay(entry)

    def not_stored(self, entries: Sequence[Entry]) -> None:
        """The outbox refused entries: they stay, but for those Kafka confirmed meanwhile."""
        # Back to the front, in their order: they are older than what has come since.
        for entry in reversed(entries):
            entry.stage = Stage.PRODUCED if entry.at_sink else Stage.WAITING
            if entry.delivered:
                self._close(entry)
            else:
                del self._storing[entry]
                self._unstored[entry] = None
                self._unstored.move_to_end(entry, last=False)

    def _close(self, entry: Entry) -> None:
        if entry in self._unstored:
            del self._unstored[entry]
        else:
            del self._storing[entry]
        self.open_bytes -= entry.size_bytes
        self._await_no_echo(entry)
        self._pay(entry)

    def _pay(self, entry: Entry) -> None:
        for ack in entry.acks:
            ack.owed -= 1
            if not ack.owed:
                self._settled.acks.append(ack)
        entry.acks = []

    def _await_no_echo(self, entry: Entry) -> None:
        if entry.own and self._awaiting_echo.get(entry.record.value) is entry:
            del self._awaiting_echo[entry.record.value]
