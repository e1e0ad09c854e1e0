"""What the forwarder shows the watchdog: that it comes round, and that what is to be forwarded moves.

A bridge that is alive and no longer forwards is the worst failure of its kind: coming round proves nothing.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from gateway.forwarding.backlog import Backlog
from gateway.forwarding.ledger import Counters, Ledger
from gateway.forwarding.outbox_writer import OutboxWriter
from gateway.forwarding.spill import SpillTimer
from gateway.ports import Sink
from gateway.system.watchdog import Heartbeat

_TURN_PERIODS: Final = 0.25
_MOVE_PERIODS: Final = 1.0


class ForwarderHeartbeat:
    """Marks that the forwarder's thread leaves each turn, for another thread to read.

    A message may stay in the ledger for a commit interval; the backlog may rest until the next batch of a
    metered uplink, and until its sink gives a record up.
    """

    def __init__(
        self,
        ledger: Ledger,
        backlog: Backlog,
        writer: OutboxWriter,
        counters: Counters,
        spill: SpillTimer,
        sink: Sink,
    ) -> None:
        self._ledger = ledger
        self._backlog = backlog
        self._writer = writer
        self._counters = counters
        self._spill = spill
        self._sink = sink
        self._turns = 0
        self._refusals = 0
        self._oldest: Hashable | None = None
        self._moves: Hashable | None = None

    def turned(self) -> None:
        """The thread has come round; it owns what is looked at here."""
        self._turns += 1
        oldest = self._ledger.oldest_unstored()
        if self._ledger.storing:
            # The writer shows its own progress. If it has nothing to do, its answer went astray.
            self._oldest = None if self._writer.busy else ("storing", self._counters.stored)
        else:
            self._oldest = None if oldest is None else (id(oldest), oldest.entered_s, self._refusals)
        self._moves = self._backlog.moves if self._backlog.sendable else None

    def refused(self) -> None:
        """The outbox has refused messages, which stay in the ledger: that is no standstill."""
        self._refusals += 1

    def heartbeats(self, thread: int | None) -> tuple[Heartbeat, ...]:
        """For the watchdog, from any thread."""
        pace = self._spill.pace
        drain_s = (pace.batch_s or 0.0) + self._sink.delivery_timeout_s
        return (
            Heartbeat("forwarder", self._turns, _TURN_PERIODS, thread=thread),
            Heartbeat("forwarding", self._oldest, _MOVE_PERIODS, pace.commit_interval_s, thread),
            Heartbeat("draining", self._moves, _MOVE_PERIODS, drain_s, thread),
        )
