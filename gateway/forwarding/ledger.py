"""Where every message stands, from its first receipt to its durable end.

    waiting ──> at the sink ──> confirmed by Kafka          (leaves the ledger)
       └────────────┴───────> storing ──> row of the outbox (leaves the ledger)

Invariants:

- An entry leaves only when Kafka has confirmed it or the outbox has it; its PUBACKs are due then, never
  earlier. A PUBACK that several entries owe (one message, several readings) is due with the last of them.
- What the disk refuses stays. Our own readings' PUBACKs don't wait for it: the broker could not restore what
  the gateway loses with its memory, and un-PUBACKed echoes would stop all that it sends us.
- A row whose copy the sink still holds is *held*: it is not drained before the sink reports that copy's
  outcome, and a late delivery deletes it.

Pure bookkeeping: no I/O, no clock. One thread (the forwarder's) owns it. What falls due with a call is kept
until ``take_settled``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import Final

from buffer.errors import MEMORY_FULL, NOT_STORED, OTHERS_SHARE, Drop
from cloud.wire.channel_records import CHANNELS_TOPIC
from cloud.wire.reading_records import DEAD_LETTER_TOPIC, EVENTS_TOPIC, RUNS_TOPIC, STATUS_TOPIC
from cloud.wire.site_records import SITES_TOPIC
from gateway.forwarding.records import summarise
from gateway.ports import Ack, Record

ENTRY_BYTES: Final = 1024
"""What an entry takes beside its value: key, headers, objects (measured: 0.8 KiB, and a PUBACK)."""
MOST_BYTES: Final = 48 << 20
"""Beyond so much the oldest go that owe no PUBACK, or are our own: neither Kafka nor the disk takes them."""
_AGAIN_AT_ONCE: Final = 500
"""Entries refused before that go to the disk with one commit: new ones don't wait for all of them."""
is_others: Final = attrgetter("others")
_STATE_TOPICS: Final = frozenset({RUNS_TOPIC, EVENTS_TOPIC, STATUS_TOPIC, CHANNELS_TOPIC, SITES_TOPIC})
_SHARE: Final = 4
"""What others sent without a PUBACK may fill this part of memory before it makes room for this gateway's."""


@dataclass(slots=True, eq=False, weakref_slot=True)
class Entry:
    """One message. Times are monotonic; ``at_sink`` while the sink owes us its outcome.

    ``storing`` once it is on its way to the disk. One that isn't ``live`` goes to the sink by way of the
    outbox only.
    """

    record: Record
    entered_s: float
    own: bool
    live: bool = True
    refused: bool = False
    acks: list[Ack] = field(init=False, default_factory=list)
    storing: bool = field(init=False, default=False)
    at_sink: bool = field(init=False, default=False)
    sent_s: float = field(init=False, default=float("-inf"))
    delivered: bool = field(init=False, default=False)
    number: int | None = field(init=False, default=None)

    @property
    def size_bytes(self) -> int:
        """What it takes in memory."""
        return ENTRY_BYTES + len(self.record.value)

    @property
    def waiting(self) -> bool:
        """Whether neither the sink nor the outbox has it."""
        return not (self.at_sink or self.storing)

    @property
    def others(self) -> bool:
        """Whether it is neither a reading nor a state record of this gateway: it makes room for those."""
        topic = self.record.topic
        return topic == DEAD_LETTER_TOPIC or not (self.own or topic in _STATE_TOPICS)


@dataclass(slots=True)
class Settled:
    """What falls due when entries reach their durable end: PUBACKs, and outbox rows no longer needed."""

    acks: list[Ack] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)


class Ledger:
    """The open entries, oldest first, and the held rows."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.most_bytes = most_bytes
        # Apart, because while a slow commit is under way both may be long.
        self._unstored: OrderedDict[Entry, None] = OrderedDict()
        self._storing: dict[Entry, None] = {}
        self._awaiting_echo: dict[bytes, Entry] = {}
        self._settled = Settled()
        self.size_bytes = 0
        """What the open entries take."""
        self.refused = 0
        """How many of them the disk has refused."""
        self.held: set[int] = set()
        """Rows of the outbox that must not be drained yet, because the sink has a copy of them."""
        self.has_durable = False
        """Whether Kafka or the outbox has taken a reading of this run."""

    def __len__(self) -> int:
        return len(self._unstored) + len(self._storing)

    @property
    def nearly_full(self) -> bool:
        """True if a full disk should drop its oldest rows: before memory is full and the broker must wait."""
        return self.size_bytes > self.most_bytes // 2

    def take_settled(self) -> Settled:
        """What has fallen due since the last call."""
        settled, self._settled = self._settled, Settled()
        return settled

    def is_open(self, entry: Entry) -> bool:
        """Whether an entry is neither confirmed nor stored yet."""
        return entry in self._unstored or entry in self._storing

    def enter(
        self, record: Record, now_s: float, *, own: bool, ack: Ack | None = None, live: bool = True
    ) -> Entry:
        """Open an entry; the echo of one of our own readings is recognised by its bytes."""
        entry = Entry(record, now_s, own, live)
        if ack is not None:
            self.owe(entry, ack)
        self._open(entry)
        if own:
            self._awaiting_echo[record.value] = entry
        return entry

    def echoed(self, payload: bytes, ack: Ack | None) -> Entry | None:
        """The open entry with these bytes, now owing a PUBACK; None where there is none."""
        entry = self._awaiting_echo.get(payload)
        if entry is not None and ack is not None:
            self.owe(entry, ack)
            if entry.refused:
                self._pay(entry)
        return entry

    def owe(self, entry: Entry, ack: Ack) -> None:
        """An open entry owes a PUBACK, which others may owe too. Those of earlier connections are void."""
        if entry.acks and entry.acks[0].connection < ack.connection:
            # A message comes again with each connection while a disk fails for days.
            entry.acks = [each for each in entry.acks if each.connection >= ack.connection]
        entry.acks.append(ack)
        ack.owed += 1

    def session_lost(self) -> None:
        """The broker has nothing of what it sent until now: those PUBACKs are void."""
        for entry in chain(self._storing, self._unstored):
            entry.acks = [each for each in entry.acks if each.done is not None]

    def delivered(self, entry: Entry) -> None:
        """Kafka has confirmed the entry, early or late."""
        self.has_durable = self.has_durable or entry.own
        entry.at_sink = False
        if entry.number is not None:
            self.held.discard(entry.number)
            self._settled.rows.append(entry.number)
            return
        entry.delivered = True
        if not entry.storing:
            self._close(entry)

    def undelivered(self, entry: Entry) -> None:
        """The sink has given the entry up: a stored one may be drained, an open one waits to be stored."""
        entry.at_sink = False
        if entry.number is not None:
            self.held.discard(entry.number)

    def replace(self, entry: Entry, record: Record) -> None:
        """Send another record (its dead letter) in the entry's place; PUBACKs and deadline stay."""
        self._await_no_echo(entry)
        self.size_bytes -= entry.size_bytes
        entry.record = record
        self.size_bytes += entry.size_bytes

    def oldest_unstored(self) -> Entry | None:
        """The entry that has waited longest without being on its way to the disk."""
        return next(iter(self._unstored), None)

    @property
    def storing(self) -> bool:
        """Whether entries are on their way to the disk."""
        return bool(self._storing)

    def waiting(self) -> list[Entry]:
        """The entries that neither the sink nor the outbox has, oldest first."""
        return [entry for entry in self._unstored if entry.waiting]

    def records(self) -> Iterator[Record]:
        """What is open."""
        return (entry.record for entry in chain(self._storing, self._unstored))

    def take_for_storing(
        self, entered_before_s: float, topics: Container[str] = (), *, again: bool = True
    ) -> list[Entry]:
        """The entries that entered before a moment and are not on their way to the disk; now they are.

        Of ``topics``, those that entered later as well. Those refused before only ``again``, and a part of
        them: the oldest.
        """
        left = _AGAIN_AT_ONCE if again else 0
        taken: list[Entry] = []
        for entry in self._unstored:
            if entry.refused and not left:
                continue
            if entry.entered_s <= entered_before_s or entry.record.topic in topics:
                taken.append(entry)
                left -= entry.refused
        for entry in taken:
            entry.storing = True
            del self._unstored[entry]
            self._storing[entry] = None
        return taken

    def give_up(self) -> Drop | None:
        """Remove the oldest entries that are nowhere else, an eighth of the bound; what is lost.

        It is others' where they hold more than their share. Messages that owe a PUBACK are not
        among it, since the broker has them until they are acknowledged.
        """
        idle = [entry for entry in self._unstored if not entry.at_sink and (entry.own or not entry.acks)]
        others_bytes = sum(entry.size_bytes for entry in idle if entry.others)
        over = others_bytes > self.most_bytes // _SHARE
        reason = OTHERS_SHARE if over else MEMORY_FULL
        lost: list[Record] = []
        freed = 0
        for entry in idle:
            if freed < self.most_bytes // 8 and (entry.others or not over):
                lost.append(entry.record)
                freed += entry.size_bytes
                self._close(entry)
        return Drop(reason, 0, 0, len(lost), summarise(lost)) if lost else None

    def left(self) -> Drop | None:
        """All that is open, as a loss at the end."""
        records = list(self.records())
        return Drop(NOT_STORED, 0, 0, len(records), summarise(records)) if records else None

    def stored(self, entries: Sequence[Entry], numbers: Sequence[int]) -> None:
        """The outbox has entries under these numbers."""
        for entry, number in zip(entries, numbers, strict=True):
            self.has_durable = self.has_durable or entry.own
            self._close(entry)
            entry.number = number
            if entry.delivered:
                self._settled.rows.append(number)
            elif entry.at_sink:
                self.held.add(number)

    def not_stored(self, entries: Sequence[Entry]) -> None:
        """The outbox refused entries: they stay, but for those Kafka confirmed meanwhile."""
        # Back to the front, in their order: they are older than what has come since.
        for entry in reversed(entries):
            if entry.delivered:
                self._close(entry)
                continue
            del self._storing[entry]
            entry.storing = False
            self._unstored[entry] = None
            self._unstored.move_to_end(entry, last=False)
            self.refused += not entry.refused
            # The way through the outbox is closed to it.
            entry.refused = entry.live = True
            if entry.own:
                self._pay(entry)

    def _open(self, entry: Entry) -> None:
        self._unstored[entry] = None
        self.size_bytes += entry.size_bytes

    def _close(self, entry: Entry) -> None:
        if entry in self._unstored:
            del self._unstored[entry]
        else:
            del self._storing[entry]
        self.size_bytes -= entry.size_bytes
        self.refused -= entry.refused
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
