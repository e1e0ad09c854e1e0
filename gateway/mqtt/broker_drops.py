"""How many messages the local broker has dropped: what its queues had no room for, though it took them.

Mosquitto publishes a total for all its clients since it started, in ``$SYS``. We count its growth while there
is a session of ours: over reconnects, over restarts of the broker (its counter begins at 0 again), and from
where an earlier run of this gateway left off, whose session stayed. It comes at QoS 0 and without a promise:
where ``$SYS`` is switched off or forbidden the number is unknown. Packets over the broker's
``max_packet_size`` are not in it.

The forwarder's thread writes, any thread may read.
"""

from __future__ import annotations

from typing import Final

import msgspec

TOPIC: Final = "$SYS/broker/publish/messages/dropped"

_ANNOUNCE_EVERY_S: Final = 60.0
_MAX_DIGITS: Final = 18


class BrokerDrops:
    """The count of one run of this gateway; ``run`` is its id."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._first: int | None = None
        self._inherited: int | None = None
        self._announced = 0
        self._announce_not_before_s = float("-inf")
        self.counter: int | None = None
        """The broker's counter as it came last; None where none came."""
        self.count: int | None = None
        """Dropped for all of the broker's clients, at least, in this run; None: unknown."""

    def connected(self, *, session_present: bool) -> None:
        """A new connection. A broker without our session has been restarted: it counts from 0."""
        if not session_present and self.counter is not None:
            self.counter = 0

    def update(self, payload: bytes) -> None:
        """The broker's counter, as it is published."""
        if not payload.isdigit() or len(payload) > _MAX_DIGITS:
            return
        now = int(payload)
        if self.counter is None or self.count is None:
            self._first = now
            self.count = 0 if self._inherited is None else _growth(self._inherited, now)
        else:
            self.count += _growth(self.counter, now)
        self.counter = now

    def inherit(self, record: bytes) -> None:
        """The record of a run on our own topic, read once: where an earlier one left off."""
        try:
            fields = msgspec.json.decode(record)
            run, counter = fields["run"], fields["broker_counter"]
        except (ValueError, TypeError, KeyError, RecursionError):
            return
        if run == self._run or type(counter) is not int or counter < 0 or self._inherited is not None:
            return
        self._inherited = counter
        # Messages that the session has kept may be before it: then the broker's counter is here already.
        if self._first is not None and self.count is not None:
            self.count += _growth(counter, self._first)

    def due(self, now_s: float, *, at_once: bool = False) -> int | None:
        """How much it has grown since the last announcement, at most once a minute; None where it hasn't."""
        grown = (self.count or 0) - self._announced
        if grown <= 0 or (now_s < self._announce_not_before_s and not at_once):
            return None
        self._announced += grown
        self._announce_not_before_s = now_s + _ANNOUNCE_EVERY_S
        return grown


def _growth(before: int, now: int) -> int:
    return now - before if now >= before else now
