"""What a message from the broker is to the ledger: an echo, a redelivery, or new entries.

Invariant: a message is acknowledged at once only where all that came of it has left the ledger, or where
nothing comes of it. Owned by the forwarder's thread.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from cloud.wire import reading_records as wire
from gateway.forwarding.inbox import Arrived
from gateway.forwarding.ledger import Entry
from gateway.forwarding.state import State
from gateway.ports import Ack, Broker

# More than a broker keeps in flight for one client (Mosquitto: 20 by default).
_REMEMBERED: Final = 2_000


class RedeliveryCache:
    """Which message the broker sent under which id, to recognise a redelivery: the newest ids.

    After a broken connection the broker sends again what was not acknowledged, flagged as a duplicate and
    under its old id (MQTT 5, 4.4). Other devices' numbers and raw messages get their identity from us at
    first receipt: a second one would count them twice. Not kept beyond the daemon's end.
    """

    def __init__(self) -> None:
        self._by_id: OrderedDict[int, tuple[str, int, tuple[Entry, ...]]] = OrderedDict()

    def note(self, ack: Ack, topic: str, payload: bytes, entries: Sequence[Entry]) -> None:
        """Remember what a message became: one entry, or several readings' entries."""
        self._by_id.pop(ack.message_id, None)
        self._by_id[ack.message_id] = (topic, hash(payload), tuple(entries))
        if len(self._by_id) > _REMEMBERED:
            oldest, (_, _, became) = next(iter(self._by_id.items()))
            if any(entry.acks for entry in became):
                # Not acknowledged yet: it may well come again. There is an id for each, 65,535 at most.
                self._by_id.move_to_end(oldest)
            else:
                del self._by_id[oldest]

    def repeated(self, ack: Ack, topic: str, payload: bytes) -> tuple[Entry, ...]:
        """What a message flagged as a duplicate became when it first came; nothing where it isn't there."""
        known = self._by_id.get(ack.message_id)
        if known is None or known[:2] != (topic, hash(payload)):
            return ()
        return known[2]


class Reception:
    """Enters messages into the ledger."""

    def __init__(self, state: State, broker: Broker) -> None:
        self._state = state
        self._broker = broker
        self._receipts = RedeliveryCache()

    def take(self, message: Arrived) -> Sequence[Entry]:
        """The entries of the ledger that may go to Kafka with this message."""
        topic, ack, state = message.topic, message.ack, self._state
        echoed = state.ledger.echoed(message.payload, ack) if state.intake.may_echo(topic) else None
        if echoed is not None:
            return (echoed,)
        if message.repeated and ack is not None:
            known = self._receipts.repeated(ack, topic, message.payload)
            if known:
                self._owe(known, ack)
                return ()
        # At the end the broker keeps what it gets no PUBACK for, for the next run: a number given now, after
        # the run's last record, would be in no record.
        return self._accept(message) if state.taking else ()

    def session_lost(self) -> None:
        """The broker's message ids begin again: those of before mean other messages now."""
        self._receipts = RedeliveryCache()

    def _accept(self, message: Arrived) -> Sequence[Entry]:
        topic, ack, state = message.topic, message.ack, self._state
        state.counters.received += 1
        records = state.intake.accept(topic, message.payload, retained=message.retained)
        if records is None:
            # An echo of a reading that is confirmed or stored already.
            state.counters.late_echoes += 1
        if not records:
            if ack is not None:
                self._broker.acknowledge(ack)
            return ()
        state.counters.dead_letters += sum(record.topic == wire.DEAD_LETTER_TOPIC for record in records)
        now_s, live = state.monotonic(), not state.pace.metered
        # All of them owe the PUBACK before the first of them can be confirmed.
        entries = [state.ledger.enter(record, now_s, own=False, ack=ack, live=live) for record in records]
        if ack is not None:
            self._receipts.note(ack, topic, message.payload, entries)
        return entries

    def _owe(self, entries: Sequence[Entry], ack: Ack) -> None:
        """A message came again: acknowledge it with its last entry, or now if all have left the ledger."""
        still_open = [entry for entry in entries if self._state.ledger.is_open(entry)]
        for entry in still_open:
            self._state.ledger.owe(entry, ack)
        if not still_open:
            self._broker.acknowledge(ack)
