"""Carries every message from its first receipt to Kafka, or to the outbox while Kafka doesn't answer.

One thread owns the ledger. Samplers, the broker's network thread, the sink's poll thread and the outbox
writer only put events into its queue, so each decision is made in one place, in one order.

While Kafka answers, a message goes: received, produced, confirmed, PUBACKed. What is not confirmed within
half the commit interval is stored; from then on everything is, once per interval, until a delivery report
says that Kafka answers again. Then new messages go out at once and the backlog drains beside them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final, Literal

from buffer.drops import InMemory, OnDrop, ignore
from gateway.clock.hold import ClockHold, Verdict
from gateway.forwarding.backlog import REMOVE_AGAIN_S, Backlog, OutcomesWait
from gateway.forwarding.compacted_topics import CompactedTopics
from gateway.forwarding.events import Announced, Arrived, Changed, Event, Outcome, Sampled, SessionLost, Stop
from gateway.forwarding.heartbeat import ForwarderHeartbeat
from gateway.forwarding.kafka_health import KafkaHealth, TopicBackoff
from gateway.forwarding.ledger import Counters, Ledger, Settled
from gateway.forwarding.live import LiveSender
from gateway.forwarding.memory_limit import MemoryBounds
from gateway.forwarding.outbox_writer import (
    Answer,
    Durable,
    Fetched,
    Kept,
    NotFetched,
    NotRemoved,
    NotStored,
    OutboxWriter,
    Stored,
)
from gateway.forwarding.reception import Reception
from gateway.forwarding.spill import Batches, Pace, SpillTimer
from gateway.mqtt.intake import Intake
from gateway.ports import Ack, Record, Sink
from gateway.system.watchdog import Shown

log = logging.getLogger(__name__)

_IDLE_S: Final = 1.0
# A few milliseconds' work: overdue messages don't wait for more.
_EVENTS_PER_TURN: Final = 128
# How often a stop looks whether the outbox has got rid of what only memory holds.
_LOOK_AGAIN_S: Final = 0.1

Uplink = Literal["healthy", "spilling", "draining", "metered"]


class Forwarder:
    """The thread that owns the ledger. ``acknowledge`` sends a PUBACK and must not block.

    ``hold`` is told when memory is full and the broker must keep its messages, and when it may send again.

    New messages go through ``live``, the outbox through ``backlog``: a long backlog delays nothing new.
    ``batch_s`` makes it metered: seconds between two batches. What ``holdback`` holds goes no
    further than the outbox until it is judged. ``on_drop`` is told, in the thread, what had to be given up.
    ``longest_delivery_s`` is after how long a sink gives up a record.
    """

    def __init__(
        self,
        intake: Intake,
        live: Sink,
        backlog: Sink,
        writer: Callable[[Callable[[Answer], None]], OutboxWriter],
        acknowledge: Callable[[Ack], None],
        commit_interval_s: float,
        monotonic: Callable[[], float] = time.monotonic,
        hold: Callable[[bool], None] = lambda holding: None,
        batch_s: float | None = None,
        holdback: ClockHold | None = None,
        on_drop: OnDrop = ignore,
        longest_delivery_s: Callable[[], float] = lambda: 120.0,
    ) -> None:
        self._acknowledge = acknowledge
        self._monotonic = monotonic
        self._events: SimpleQueue[Event] = SimpleQueue()
        self._ledger = Ledger()
        self._parking = TopicBackoff()
        self._watch = KafkaHealth(self._parking)
        self._revisions = CompactedTopics(intake.run)
        self._memory = MemoryBounds(self._ledger, hold, on_drop)
        self.counters = Counters()
        self._reception = Reception(intake, self._ledger, acknowledge, self.counters)
        self._writer = writer(self._events.put)
        self._holdback = holdback or ClockHold()
        self._overdue = SpillTimer(
            Pace(commit_interval_s, batch_s),
            self._ledger,
            self._writer,
            self._watch,
            self._parking,
            self._holdback,
        )
        self._backlog = Backlog(
            intake,
            backlog,
            self._writer,
            self._ledger,
            self._parking,
            self._events.put,
            Batches(batch_s),
            self._holdback,
            self._revisions,
        )
        self._delivery = LiveSender(
            intake,
            live,
            self._events.put,
            self._ledger,
            self._watch,
            self._parking,
            self._overdue,
            self._backlog,
            self._writer,
            self._holdback,
            self._revisions,
            self.counters,
            monotonic,
        )
        self._stopping_until_s: float | None = None
        self._ended = False
        self._progress = ForwarderHeartbeat(
            self._ledger,
            self._backlog,
            self._writer,
            self.counters,
            lambda: self._overdue.pace.commit_interval_s,
            lambda: (batch_s or 0.0) + longest_delivery_s(),
        )
        self._thread = threading.Thread(target=self._run, name="forwarder", daemon=True)

    # Called from any thread.

    def sampled(self, record: Record) -> None:
        """Enter one of our own readings, before it is published; never waits."""
        self._events.put(Sampled(record))

    def judged(self, verdict: Verdict) -> None:
        """What waited for the clock may leave: with its time, or without."""
        self._events.put(verdict)

    def announce(self, record: Record) -> None:
        """Enter what the gateway has to say of itself; it is as durable as a reading."""
        self._events.put(Announced(record))

    def arrived(
        self, topic: str, payload: bytes, ack: Ack | None, *, retained: bool = False, repeated: bool = False
    ) -> None:
        """Take a message that came from the broker.

        ``retained`` where it was kept for new subscribers, ``repeated`` where it is sent again because the
        connection broke before it was acknowledged.
        """
        self._memory.arrived(payload)
        self._events.put(Arrived(topic, payload, ack, retained, repeated))

    def session_lost(self) -> None:
        """The broker has forgotten us: what it sends from now on is none of what it sent before."""
        self._events.put(SessionLost())

    def change(self, adopt: Callable[[], None], commit_interval_s: float) -> None:
        """Adopt another config between two messages: those that have arrived are judged by the old one."""
        self._events.put(Changed(adopt, commit_interval_s))

    def start(self) -> None:
        """Start the thread and the outbox writer's."""
        self._writer.start()
        self._thread.start()

    def stop(self, grace_s: float, farewell: Callable[[], Record] | None = None) -> list[Record]:
        """Store everything unconfirmed at once, give Kafka ``grace_s`` for what it holds, and end.

        ``farewell`` makes the last record to announce, once no more messages are taken. What neither Kafka
        nor the disk has taken by then is given back: it is lost, but for what the broker still keeps.
        """
        self._events.put(Stop(grace_s, farewell))
        self._thread.join()
        if not self._ended:
            self._rescue(farewell if self._stopping_until_s is None else None)
        self._writer.stop()
        while not self._events.empty():
            # What came to the disk at the very end is stored, and its PUBACKs are due.
            event = self._events.get()
            if isinstance(event, Stored | Kept | Durable):
                self._dispatch(event)
        return self._ledger.records()

    def is_alive(self) -> bool:
        """Whether this thread and the outbox writer's run."""
        return self._thread.is_alive() and self._writer.is_alive()

    def shown(self) -> tuple[Shown, ...]:
        """For the watchdog: this thread, what it forwards, and the outbox writer."""
        return (*self._progress.shown(self._thread.native_id), self._writer.shown())

    @property
    def uplink(self) -> Uplink:
        """Whether Kafka answers, and whether a backlog is on its way."""
        if not self._watch.answering:
            return "spilling"
        if self._overdue.pace.metered:
            return "metered"
        return "draining" if self._backlog.sendable else "healthy"

    @property
    def reachable_s(self) -> float:
        """How long Kafka has answered, by its delivery reports."""
        return self._watch.reachable_s

    @property
    def confirmed_ago_s(self) -> float | None:
        """Since Kafka last confirmed anything; None when it never did in this run."""
        told_s = self._watch.told_s
        return None if told_s is None else self._monotonic() - told_s

    @property
    def in_flight(self) -> int:
        """Entries that are neither confirmed nor stored yet."""
        return len(self._ledger)

    @property
    def outbox_records(self) -> int:
        """Rows in the outbox."""
        return self._writer.records

    @property
    def held_rows(self) -> int:
        """Rows of the outbox that wait for the clock."""
        return self._backlog.held

    @property
    def outbox_bytes(self) -> int:
        """Size of the outbox on disk, write-ahead log included."""
        return self._writer.size_bytes

    @property
    def outbox_in_memory(self) -> InMemory:
        """What the outbox keeps in memory because its disk can't be used."""
        return self._writer.in_memory

    @property
    def drained(self) -> int:
        """Rows of the outbox that Kafka has confirmed."""
        return self._backlog.drained

    @property
    def parked_topics(self) -> tuple[str, ...]:
        """Topics that take nothing for now; the operator's to mend."""
        return self._parking.topics

    def _rescue(self, farewell: Callable[[], Record] | None) -> None:
        """Have stored what a thread that died left, in the ledger and in its queue."""
        while not self._events.empty():
            event = self._events.get()
            if isinstance(event, Sampled | Announced):
                self._ledger.enter(event.record, self._monotonic(), own=isinstance(event, Sampled))
            elif isinstance(event, Stored | Kept | Durable):
                self._dispatch(event)
        if farewell is not None:
            self._ledger.enter(farewell(), self._monotonic(), own=False)
        self._writer.store(self._ledger.take_for_storing(float("inf")))

    # The thread.

    def _run(self) -> None:
        while not self._finished():
            self._progress.turned()
            self._take_events()
            self._watch.judge(self._monotonic(), self._overdue.pace.verdict_s)
            self._overdue.store(self._monotonic(), stopping=self._stopping_until_s is not None)
            self._settle(self._memory.bound_ledger())
            self._delivery.try_again()
            stopping, oldest = self._stopping_until_s is not None, self._writer.in_memory.oldest
            # What ends with this process goes to Kafka while there is time.
            unsaved_after = oldest - 1 if stopping and oldest is not None else None
            self._backlog.turn(self._monotonic(), fetch=not stopping, last_ones_after=unsaved_after)
            self._memory.let_go()
        self._ended = True

    def _take_events(self) -> None:
        """Wait for an event; take those behind it too, since looking around after each costs more than it."""
        timeout_s: float | None = self._patience()
        try:
            for _ in range(_EVENTS_PER_TURN):
                self._dispatch(self._events.get(timeout=timeout_s))
                timeout_s = 0.0
        except Empty:
            return

    def _dispatch(self, event: Event) -> None:
        match event:
            case Sampled(record):
                self.counters.sampled += 1
                self._ledger.enter(record, self._monotonic(), own=True, live=not self._overdue.pace.metered)
            case Announced(record):
                self._revisions.entered(record)
                self._delivery.send(self._ledger.enter(record, self._monotonic(), own=False))
            case Arrived():
                self._memory.taken(event.payload)
                live, stopping = not self._overdue.pace.metered, self._stopping_until_s is not None
                for entry in self._reception.take(event, self._monotonic(), live=live, stopping=stopping):
                    self._delivery.send(entry)
            case SessionLost():
                self._reception.session_lost()
            case Outcome():
                self._settle(self._delivery.outcome(event))
            case OutcomesWait():
                delivered = self._backlog.take_outcomes(self._monotonic())
                self._settle(self._ledger.rows_delivered(outcome.number for outcome in delivered))
                self._delivery.drained(delivered)
            case Stored(entries, numbers):
                self.counters.stored += len(numbers)
                self._backlog.stored(entries, numbers)
                self._settle(self._ledger.stored(entries, numbers))
            case Kept(entries, numbers):
                self.counters.stored += len(numbers)
                self._backlog.stored(entries, numbers)
                self._settle(self._ledger.kept(entries, numbers))
            case Durable(below):
                self._settle(self._ledger.durable_below(below))
            case NotStored(entries, problem):
                log.error("event=outbox.store_failed records=%d error=%s", len(entries), problem)
                self._overdue.refused(self._monotonic())
                self._progress.refused()
                self._settle(self._ledger.not_stored(entries))
                self._delivery.send_waiting()
            case Verdict():
                self._holdback.judge(event)
                self._backlog.released()
                self._delivery.send_waiting()
            case Fetched(rows, anew):
                self._backlog.fetched(rows, self._monotonic(), anew=anew)
            case NotRemoved(numbers, problem):
                pause_s = self._backlog.not_removed(numbers, self._monotonic())
                level = logging.WARNING if pause_s == REMOVE_AGAIN_S else logging.DEBUG
                log.log(level, "event=outbox.remove_failed rows=%d error=%s", len(numbers), problem)
            case NotFetched(problem):
                log.error("event=outbox.fetch_failed error=%s", problem)
                self._backlog.not_fetched(self._monotonic())
            case Changed(adopt, commit_interval_s):
                adopt()
                self._overdue.change(commit_interval_s)
            case Stop(grace_s, farewell):
                self._stopping_until_s = self._monotonic() + grace_s
                if farewell is not None:
                    self._delivery.send(self._ledger.enter(farewell(), self._monotonic(), own=False))

    def _settle(self, settled: Settled) -> None:
        for ack in settled.acks:
            self._acknowledge(ack)
        self._backlog.remove(settled.rows)

    def _patience(self) -> float:
        now_s = self._monotonic()
        stopping = self._stopping_until_s is not None
        until_s = min(
            now_s + _IDLE_S,
            self._watch.wake_s(self._overdue.pace.verdict_s),
            self._overdue.wake_s(now_s, stopping=stopping),
        )
        if self._stopping_until_s is None:
            until_s = min(until_s, self._backlog.wake_s())
        else:
            until_s = min(until_s, self._stopping_until_s)
            if self._writer.in_memory.records:
                until_s = min(until_s, now_s + _LOOK_AGAIN_S)
        return max(until_s - now_s, 0.0)

    def _finished(self) -> bool:
        if self._stopping_until_s is None:
            return False
        if self._monotonic() >= self._stopping_until_s:
            return True
        done = not len(self._ledger) and not self._ledger.held and self._backlog.idle
        return done and not self._writer.in_memory.records
