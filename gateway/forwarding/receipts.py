"""Which message the broker sent under which id, to know a redelivery when it comes.

After a broken connection the broker sends again what we had not acknowledged, flagged as a duplicate and
under its old id (MQTT 5, 4.4). Other devices' numbers and raw messages get their identity from us at first
receipt: a second one would count them twice. Owned by the forwarder's thread; forgotten when the daemon ends.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from gateway.forwarding.ledger import Ack, Entry

# More than a broker keeps in flight for one client (Mosquitto: 20 by default).
_REMEMBERED: Final = 2_000


class RedeliveryCache:
    """The newest ids and what came under them."""

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
