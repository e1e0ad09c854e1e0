"""What a message from the broker is to the ledger: an echo, a repetition, or new entries.

Owned by the forwarder's thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from gateway.forwarding.counters import Counters
from gateway.forwarding.events import Arrived
from gateway.forwarding.ledger import Ack, Entry, Ledger
from gateway.forwarding.receipts import RedeliveryCache
from gateway.mqtt.intake import Ignored, Intake, Refusal, Several

log = logging.getLogger(__name__)


class Reception:
    """Enters messages into the ledger, and acknowledges those that nobody has to wait for."""

    def __init__(
        self, intake: Intake, ledger: Ledger, acknowledge: Callable[[Ack], None], counters: Counters
    ) -> None:
        self._intake = intake
        self._ledger = ledger
        self._acknowledge = acknowledge
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
                self._acknowledge(ack)
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
            self._acknowledge(ack)
