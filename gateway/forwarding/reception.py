"""What a message from the broker is to the ledger: an echo, a repetition, or new entries.

Owned by the forwarder's thread.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from gateway.forwarding.inbox import Arrived
from gateway.forwarding.ledger import Counters, Entry, Ledger
from gateway.mqtt.intake import Ignored, Intake, Refusal, Several
from gateway.ports import Ack, Broker

log = logging.getLogger(__name__)

# More than a broker keeps in flight for one client (Mosquitto: 20 by default).
_REMEMBERED: Final = 2_000


class RedeliveryCache:
    """Which message the broker sent under which id, to recognise a redelivery: the newest ids.

    After a broken connection the broker sends again what was not acknowledged, flagged as a duplicate and
    under its old id (MQTT 5, 4.4). Other devices' numbers and raw messages get their identity from us at
    first receipt: a second one would count them twice. Forgotten when the daemon ends.
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
        """What a message flagged as a duplicate became when it first came; nothing where that isn't known."""
        known = self._by_id.get(ack.message_id)
        if known is None or known[:2] != (topic, hash(payload)):
            return ()
        return known[2]


class Reception:
    """Enters messages into the ledger, and acknowledges those that nobody has to wait for."""

    def __init__(self, intake: Intake, ledger: Ledger, broker: Broker, counters: Counters) -> None:
        self._intake = intake
        self._ledger = ledger
        self._broker = broker
        self._counters = counters
        self._receipts = RedeliveryCache()

    def take(self, message: Arrived, now_s: float, *, live: bool, stopping: bool) -> Sequence[Entry]:
        """The entries of the ledger that may go to Kafka with this message.

        Without ``live`` new ones go by way of the outbox. While ``stopping`` nothing new is taken.
        """
        topic, ack = message.topic, message.ack
        echoed = self._ledger.echoed(message.payload, ack) if self._intake.may_echo(topic) else None
        if echoed is not None:
            return (echoed,)
        if message.repeated and ack is not None:
            known = self._receipts.repeated(ack, topic, message.payload)
            if known:
                self._owe(known, ack)
                return ()
        if stopping:
            # Without a PUBACK the broker keeps it for the next run; a number given now, after the run's last
            # record, would be one nobody knows of.
            return ()
        return self._accept(message, now_s, live=live)

    def session_lost(self) -> None:
        """The broker's message ids begin anew: a known id says nothing any more."""
        self._receipts = RedeliveryCache()

    def _accept(self, message: Arrived, now_s: float, *, live: bool) -> Sequence[Entry]:
        topic, ack = message.topic, message.ack
        self._counters.received += 1
        accepted = self._intake.accept(topic, message.payload, retained=message.retained)
        if accepted is None or isinstance(accepted, Ignored):
            if accepted is None:
                # An echo of a reading that is confirmed or stored already.
                self._counters.late_echoes += 1
            if ack is not None:
                self._broker.acknowledge(ack)
            return ()
        entries = []
        for part in accepted.parts if isinstance(accepted, Several) else (accepted,):
            if isinstance(part, Refusal):
                self._counters.dead_letters += 1
                log.warning("event=message.refused topic=%s reason=%s", topic, part.reason)
            entries.append(self._ledger.enter(part.record, now_s, own=False, ack=ack, live=live))
        if ack is not None:
            self._receipts.note(ack, topic, message.payload, entries)
        # All of them owe the PUBACK before the first of them can be confirmed.
        return entries

    def _owe(self, entries: Sequence[Entry], ack: Ack) -> None:
        """A message came again: acknowledge it with its last entry, or now if all have left the ledger."""
        still_open = [entry for entry in entries if self._ledger.is_open(entry)]
        for entry in still_open:
            self._ledger.owe(entry, ack)
        if not still_open:
            self._broker.acknowledge(ack)
