"""Carries every message from its first receipt to Kafka, or to the outbox while Kafka doesn't answer.

One thread owns the ledger. Samplers, the broker's network thread, the sinks' poll threads and the outbox
writer only put events into its inbox, so each decision is made in one place, in one order.

While Kafka answers, a message goes: received, produced, confirmed, PUBACKed. A reading of our own is entered
when it is sampled, and produced when its echo comes back from the local broker. What is not confirmed within
half the commit interval is stored; from then on everything is, once per interval, until a delivery report
shows that Kafka answers again. Then new messages go out at once and the backlog drains beside them.

Invariants: a PUBACK is sent only when it is due by the ledger; what neither Kafka nor the outbox takes
is bounded in memory, and what is given up then is reported.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable
from queue import Empty
from typing import Final, Literal

from buffer.drops import MEMORY_FULL, Drop, OnDrop, ignore
from gateway.clock.hold import BootTime
from gateway.forwarding.backlog import Backlog
from gateway.forwarding.inbox import Arrived, Call, Entered, Event, Outcome, OutcomesWait, SessionLost
from gateway.forwarding.live import LiveSender
from gateway.forwarding.outbox_writer import (
    Durable,
    Fetched,
    NotFetched,
    NotRemoved,
    NotStored,
    OutboxWriter,
    Stored,
)
from gateway.forwarding.reception import Reception
from gateway.forwarding.seq_summary import summarise
from gateway.forwarding.spill import SpillTimer
from gateway.forwarding.state import State
from gateway.ports import Broker, Record, Sink
from gateway.system.watchdog import Heartbeat

log = logging.getLogger(__name__)

_IDLE_S: Final = 1.0
# A few milliseconds' work: overdue messages don't wait for more.
_EVENTS_PER_TURN: Final = 128
# How often a stop checks whether the outbox has got rid of what only memory holds.
_RECHECK_S: Final = 0.1
_RETRY_STORE_S: Final = 1.0
# Beyond this much of our own, the oldest readings go: the disk neither takes them nor refuses.
MAX_LEDGER_BYTES: Final = 48 << 20
# For the watchdog.
_TURN_PERIODS: Final = 0.25
_MOVE_PERIODS: Final = 1.0

Uplink = Literal["healthy", "spilling", "draining", "metered"]


class Forwarder:
    """The thread that owns ``state``.

    New messages go to ``live``, the outbox's to ``backlog``: a long backlog delays nothing new. ``broker`` is
    sent PUBACKs, and resumed when memory has room again. ``on_drop`` takes, in the thread, what had to be
    given up.
    """

    def __init__(
        self,
        state: State,
        live: Sink,
        backlog: Sink,
        outbox: OutboxWriter,
        broker: Broker,
        on_drop: OnDrop = ignore,
    ) -> None:
        self.inbox = state.inbox
        self.counters = state.counters
        self.kafka = state.kafka
        self.outbox = outbox
        self._state = state
        self._backlog_sink = backlog
        self._broker = broker
        self._on_drop = on_drop
        self._reception = Reception(state, broker)
        self._spill = SpillTimer(state, outbox)
        self._backlog = Backlog(state, backlog, outbox)
        self._live = LiveSender(state, live, outbox)
        self._ended = False
        # What the watchdog sees: a bridge that is alive and no longer forwards is the worst failure of its
        # kind, so that coming round proves nothing.
        self._turns = self._refusals = 0
        self._oldest: Hashable | None = None
        self._moves: int | None = None
        self._thread = threading.Thread(target=self._run, name="forwarder", daemon=True)

    def start(self) -> None:
        """Start the thread and the outbox writer's."""
        self.outbox.start()
        self._thread.start()

    def change(self, apply: Callable[[], None], commit_interval_s: float) -> None:
        """Take another config between two messages: those that have arrived go by the old one."""

        def change() -> None:
            apply()
            self._state.pace.commit_interval_s = commit_interval_s

        self.inbox.put(Call(change))

    def take_no_more(self) -> None:
        """Accept no further message, from the return of this on; what has arrived before is entered."""
        done = threading.Event()

        def take_no_more() -> None:
            self._state.taking = False
            done.set()

        self.inbox.put(Call(take_no_more))
        while self._thread.is_alive() and not done.wait(_RECHECK_S):
            pass

    def stop(self, grace_s: float) -> list[Record]:
        """Store everything unconfirmed at once, give Kafka ``grace_s`` for what it holds, and end.

        What neither Kafka nor the disk has taken by then is returned: it is lost, but for what the broker
        still keeps.
        """

        def stop() -> None:
            self._state.taking = False
            self._state.stop_at_s = self._state.monotonic() + grace_s

        self.inbox.put(Call(stop))
        self._thread.join()
        if not self._ended:
            self._rescue()
        self.outbox.stop()
        while not self.inbox.empty:
            # What came to the disk at the very end is stored, and its PUBACKs are due.
            event = self.inbox.take(0.0)
            if isinstance(event, Stored | Durable):
                self._dispatch(event)
        return self._state.ledger.records()

    def is_alive(self) -> bool:
        """Whether this thread and the outbox writer's run."""
        return self._thread.is_alive() and self.outbox.is_alive()

    def heartbeats(self) -> tuple[Heartbeat, ...]:
        """For the watchdog, from any thread: that this one comes round, what it forwards, the outbox writer.

        A message may stay in the ledger for a commit interval; the backlog may rest until the next batch of a
        metered uplink, and until its sink gives a record up.
        """
        thread, pace = self._thread.native_id, self._state.pace
        drain_s = (pace.batch_s or 0.0) + self._backlog_sink.delivery_timeout_s
        return (
            Heartbeat("forwarder", self._turns, _TURN_PERIODS, thread=thread),
            Heartbeat("forwarding", self._oldest, _MOVE_PERIODS, pace.commit_interval_s, thread),
            Heartbeat("draining", self._moves, _MOVE_PERIODS, drain_s, thread),
            self.outbox.heartbeat(),
        )

    @property
    def uplink(self) -> Uplink:
        """Whether Kafka answers, and whether a backlog is on its way."""
        if not self.kafka.answering:
            return "spilling"
        if self._state.pace.metered:
            return "metered"
        return "draining" if self._backlog.sendable else "healthy"

    @property
    def confirmed_ago_s(self) -> float | None:
        """Since Kafka last confirmed anything; None when it never did in this run."""
        confirmed_s = self.kafka.confirmed_s
        return None if confirmed_s is None else self._state.monotonic() - confirmed_s

    @property
    def in_flight(self) -> int:
        """Entries that are neither confirmed nor stored yet."""
        return len(self._state.ledger)

    @property
    def held_rows(self) -> int:
        """Rows of the outbox that wait for the clock."""
        return self._backlog.held

    def _rescue(self) -> None:
        """Have stored what a thread that died left, in the ledger and in its inbox."""
        ledger = self._state.ledger
        while not self.inbox.empty:
            event = self.inbox.take(0.0)
            if isinstance(event, Entered):
                ledger.enter(event.record, self._state.monotonic(), own=event.sampled)
            elif isinstance(event, Stored | Durable):
                self._dispatch(event)
        self.outbox.store(ledger.take_for_storing(float("inf")))

    # The thread.

    def _run(self) -> None:
        state = self._state
        while not self._finished():
            self._mark_progress()
            self.inbox.ledger_bytes = state.ledger.open_bytes
            self._take_events()
            self.kafka.evaluate(state.monotonic())
            self._spill.store(state.monotonic())
            self._bound_memory()
            self._live.try_again(backlog=self._backlog.sendable)
            self._backlog.turn(state.monotonic())
            if self.inbox.has_room_again():
                self._broker.resume()
        self._ended = True

    def _mark_progress(self) -> None:
        ledger = self._state.ledger
        self._turns += 1
        if ledger.storing:
            # The writer shows its own progress. If it has nothing to do, its answer went astray.
            self._oldest = None if self.outbox.busy else ("storing", self.counters.stored)
        else:
            oldest = ledger.oldest_unstored()
            # That the outbox refuses messages, which stay in the ledger, is no standstill.
            self._oldest = None if oldest is None else (id(oldest), oldest.entered_s, self._refusals)
        self._moves = self._backlog.moves if self._backlog.sendable else None

    def _take_events(self) -> None:
        """Wait for an event; take those behind it too, since a turn after each costs more than it."""
        timeout_s = self._patience_s()
        try:
            for _ in range(_EVENTS_PER_TURN):
                self._dispatch(self.inbox.take(timeout_s))
                timeout_s = 0.0
        except Empty:
            return

    def _dispatch(self, event: Event) -> None:
        state, now_s = self._state, self._state.monotonic()
        match event:
            case Entered(record, sampled=True):
                state.counters.sampled += 1
                state.ledger.enter(record, now_s, own=True, live=not state.pace.metered)
            case Entered(record):
                state.compacted.entered(record)
                self._live.send(state.ledger.enter(record, now_s, own=False))
            case Arrived():
                for entry in self._reception.take(event):
                    self._live.send(entry)
                self.inbox.ledger_bytes = state.ledger.open_bytes
            case SessionLost():
                self._reception.session_lost()
            case Outcome():
                self._live.outcome(event)
            case OutcomesWait():
                delivered = self._backlog.take_outcomes(now_s)
                state.ledger.rows_delivered(outcome.number for outcome in delivered)
                for outcome in delivered:
                    self._live.confirmed(outcome.record, outcome.sent_s)
            case Stored(entries, numbers, durable):
                state.counters.stored += len(numbers)
                self._backlog.stored(entries, numbers)
                state.ledger.stored(entries, numbers, durable=durable)
            case Durable(below):
                state.ledger.durable_below(below)
            case NotStored(entries, problem):
                log.error("event=outbox.store_failed records=%d error=%s", len(entries), problem)
                state.store_again_s = now_s + _RETRY_STORE_S
                self._refusals += 1
                state.ledger.not_stored(entries)
                self._live.send_waiting()
            case BootTime():
                state.hold.decide(event)
                self._backlog.released()
                self._live.send_waiting()
            case Fetched(rows, backfilled):
                self._backlog.fetched(rows, now_s, backfilled=backfilled)
            case NotRemoved(numbers, problem):
                self._backlog.not_removed(numbers, problem, now_s)
            case NotFetched(problem):
                self._backlog.not_fetched(problem, now_s)
            case Call(function):
                function()
        self._settle()

    def _settle(self) -> None:
        """Send the PUBACKs that are due, remove the rows that Kafka has."""
        settled = self._state.ledger.take_settled()
        for ack in settled.acks:
            self._broker.acknowledge(ack)
        self._backlog.remove(settled.rows)

    def _bound_memory(self) -> None:
        """Give up our own oldest readings where the ledger is too long."""
        ledger = self._state.ledger
        if ledger.open_bytes > MAX_LEDGER_BYTES:
            lost = ledger.give_up(ledger.open_bytes - MAX_LEDGER_BYTES * 7 // 8)
            if lost:
                self._on_drop(Drop(MEMORY_FULL, 0, 0, len(lost), summarise(lost)))
            self._settle()

    def _patience_s(self) -> float:
        now_s, stop_at_s = self._state.monotonic(), self._state.stop_at_s
        until_s = min(now_s + _IDLE_S, self.kafka.wake_s(), self._spill.wake_s(now_s))
        if stop_at_s is None:
            until_s = min(until_s, self._backlog.wake_s())
        else:
            until_s = min(until_s, stop_at_s)
            if self.outbox.in_memory.records:
                until_s = min(until_s, now_s + _RECHECK_S)
        return max(until_s - now_s, 0.0)

    def _finished(self) -> bool:
        state = self._state
        if state.stop_at_s is None:
            return False
        if state.monotonic() >= state.stop_at_s:
            return True
        done = not len(state.ledger) and not state.ledger.held and self._backlog.idle
        return done and not self.outbox.in_memory.records
