"""What a message from the broker is to the ledger: an echo, a redelivery, or new entries.

Invariant: a message is acknowledged at once only where all that came of it has left the ledger, or where
nothing comes of it. Owned by the forwarder's thread.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final
from weakref import ref

from cloud.wire import reading_records as wire
from gateway.forwarding.ledger import Entry
from gateway.forwarding.state import State
from gateway.ports import Ack, Broker, Message, Record

# More than a broker keeps in flight for one client (Mosquitto: 20 by default).
_REMEMBERED: Final = 2_000


class RedeliveryCache:
    """Which message the broker sent under which id, to recognise a redelivery: the newest ids.

    After a broken connection the broker sends again what was not acknowledged, flagged as a duplicate and
    under its old id (MQTT 3.1.1, 4.4); in another session of the broker's an id is another message's. Other
    devices' numbers and raw messages get their identity from us at first receipt: a second one would count
    them twice. Not kept beyond the daemon's end; of what has left ledger and sink the bytes aren't kept.
    """

    def __init__(self) -> None:
        self._by_id: OrderedDict[int, tuple[int, str, int, list[ref[Entry]]]] = OrderedDict()

    def note(self, message: Message, entries: Sequence[Entry]) -> None:
        """Remember what a message with a PUBACK became: one entry, or several readings' entries."""
        if message.ack is None:
            return
        number = message.ack.message_id
        self._by_id.pop(number, None)
        self._by_id[number] = (message.session, message.topic, hash(message.payload), list(map(ref, entries)))
        if len(self._by_id) > _REMEMBERED:
            oldest, known = self._by_id.popitem(last=False)
            if any(entry.acks for entry in _living(known[3])):
                # Not acknowledged yet: it may well come again. There is an id for each, 65,535 at most.
                self._by_id[oldest] = known

    def repeated(self, message: Message) -> Sequence[Entry] | None:
        """What is left of what a duplicate became when it first came; None where nothing is known of it."""
        known = None if message.ack is None else self._by_id.get(message.ack.message_id)
        if known is None or known[:3] != (message.session, message.topic, hash(message.payload)):
            return None
        return _living(known[3])


def _living(entries: Iterable[ref[Entry]]) -> list[Entry]:
    return [entry for each in entries if (entry := each()) is not None]


class Reception:
    """Enters messages into the ledger."""

    def __init__(self, state: State, broker: Broker) -> None:
        self._state = state
        self._broker = broker
        self._receipts = RedeliveryCache()
        self._session = 0

    def take(self, message: Message, now_s: float) -> Sequence[Entry]:
        """The entries of the ledger that may go to Kafka with this message."""
        topic, ack, state = message.topic, message.ack, self._state
        if message.session != self._session:
            self._session = message.session
            state.ledger.session_lost()
        echoed = state.ledger.echoed(message.payload, ack) if state.intake.may_echo(topic) else None
        if echoed is not None:
            return (echoed,)
        if message.repeated and ack is not None:
            known = self._receipts.repeated(message)
            if known is not None:
                self._owe(known, ack)
                return ()
        # At the end the broker keeps what it gets no PUBACK for, for the next run: a number given now, after
        # the run's last record, would be in no record.
        return self._accept(message, now_s) if state.taking else ()

    def _accept(self, message: Message, now_s: float) -> Sequence[Entry]:
        topic, ack, state = message.topic, message.ack, self._state
        state.counters.received += 1
        records = state.intake.accept(topic, message.payload, retained=message.retained)
        if records is None:
            # An echo of a reading that is confirmed or stored already.
            state.counters.late_echoes += 1
        entries = self._enter(records or (), ack, now_s)
        if entries:
            self._receipts.note(message, entries)
        return entries

    def take_posted(self, records: Sequence[Record], ack: Ack, now_s: float) -> Sequence[Entry]:
        """The entries of what a device has handed over itself; at the end none, and no answer."""
        state = self._state
        if not state.taking:
            return ()
        state.counters.received += len(records)
        return self._enter(records, ack, now_s)

    def take_published(self, topic: str, payload: bytes, ack: Ack, now_s: float) -> Sequence[Entry]:
        """The entries of a message that a device has published to the gateway itself; at the end none."""
        state = self._state
        if not state.taking:
            return ()
        state.counters.received += 1
        return self._enter(state.intake.accept(topic, payload, direct=True) or (), ack, now_s)

    def acknowledge(self, ack: Ack) -> None:
        """Send a PUBACK to the broker, or report to where a device has its answer from."""
        if ack.done is None:
            self._broker.acknowledge(ack)
        else:
            ack.done()

    def _enter(self, records: Sequence[Record], ack: Ack | None, now_s: float) -> Sequence[Entry]:
        """An entry for each; where nothing comes of a message it is acknowledged at once."""
        state = self._state
        if not records and ack is not None:
            self.acknowledge(ack)
        state.counters.dead_letters += sum(record.topic == wire.DEAD_LETTER_TOPIC for record in records)
        live = not state.pace.metered
        # All of them owe the PUBACK before the first of them can be confirmed.
        return [state.ledger.enter(record, now_s, own=False, ack=ack, live=live) for record in records]

    def _owe(self, entries: Sequence[Entry], ack: Ack) -> None:
        """A message came again: acknowledge it with its last entry, or now if all have left the ledger."""
        still_open = [entry for entry in entries if self._state.ledger.is_open(entry)]
        for entry in still_open:
            self._state.ledger.owe(entry, ack)
        if not still_open:
            self.acknowledge(ack)
