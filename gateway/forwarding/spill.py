"""Decides when messages that Kafka has not confirmed go to the outbox. Owned by the forwarder's thread.

Invariants: what Kafka has not confirmed within half the commit interval is stored; what is stored in any case
(an outage, a metered uplink, a clock that isn't synchronised) within nine tenths, with one commit for all of
it; one commit at a time.
"""

from __future__ import annotations

from gateway.forwarding.outbox_writer import OutboxWriter
from gateway.forwarding.record_codec import replayed
from gateway.forwarding.state import State


class SpillTimer:
    """Gives the writer what has waited too long."""

    def __init__(self, state: State, outbox: OutboxWriter) -> None:
        self._state = state
        self._outbox = outbox

    def wake_s(self, now_s: float) -> float:
        """When ``store`` has something to do (monotonic), infinity when only an event can change that."""
        state = self._state
        oldest = state.ledger.oldest_unstored()
        if oldest is None or (state.ledger.storing and not state.stopping):
            return float("inf")
        overdue_s = oldest.entered_s + (now_s - state.entered_before_s(now_s))
        return max(overdue_s, state.store_again_s)

    def store(self, now_s: float) -> None:
        """Store what is overdue, and with it whatever would be soon; everything during a stop."""
        state = self._state
        oldest, stopping = state.ledger.oldest_unstored(), state.stopping
        if oldest is None or state.disk_refuses(now_s):
            return
        if not stopping and oldest.entered_s > state.entered_before_s(now_s):
            return
        if oldest.at_sink and not stopping:
            state.kafka.watch(oldest)
            state.kafka.evaluate(now_s)
        if state.ledger.storing and not stopping:
            # One commit at a time, and what is overdue by then goes with the next: behind a slow card commits
            # would queue up, and each reading wait for all those before it.
            return
        # Once one is overdue because of Kafka, the others would be too: one commit for all of them.
        everything = stopping or not state.kafka.answering or state.pace.metered or state.hold.active
        # What is for a parked topic is overdue sooner or later: with this commit, not with one of its own.
        taken = state.ledger.take_for_storing(
            now_s if everything else state.entered_before_s(now_s), state.kafka.parked_topics
        )
        for entry in taken:
            if entry.refused and now_s - entry.entered_s > state.pace.late_after_s:
                # It comes behind newer rows, so its number won't tell.
                state.ledger.replace(entry, replayed(entry.record))
        if taken:
            self._outbox.store(taken, drop_oldest=state.ledger.nearly_full)
