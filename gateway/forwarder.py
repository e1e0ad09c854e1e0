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
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Final, Literal

from buffer.drops import MEMORY_FULL, Drop, InMemory, OnDrop, ignore
from gateway.backlog import REMOVE_AGAIN_S, Backlog, Drained, OutcomesWait
from gateway.counters import Counters
from gateway.events import Announced, Arrived, Changed, Event, Outcome, Sampled, SessionLost, Stop
from gateway.forwarder_progress import ForwarderProgress
from gateway.holdback import Holdback, Verdict
from gateway.intake import Intake
from gateway.kafka_watch import KafkaWatch
from gateway.ledger import Ack, Entry, Ledger, Settled, Stage
from gateway.outbox_writer import (
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
from gateway.overdue import Overdue
from gateway.pace import Batches, Pace
from gateway.parking import Parking
from gateway.ports import Record, Sink, Undelivered
from gateway.reception import Reception
from gateway.run_revisions import RunRevisions
from gateway.summaries import summarise
from gateway.watchdog import Shown

log = logging.getLogger(__name__)

_IDLE_S: Final = 1.0
# A few milliseconds' work: overdue messages don't wait for more.
_EVENTS_PER_TURN: Final = 128
# How often a stop looks whether the outbox has got rid of what only memory holds.
_LOOK_AGAIN_S: Final = 0.1
_TRY_LIVE_EVERY_S: Final = 20.0
# Beyond this much in memory the broker is asked to keep what it has; it has the session for that.
MAX_MEMORY_BYTES: Final = 32 << 20
MESSAGE_BYTES: Final = 256
"""What a message not yet looked at takes beside its payload (measured: 217)."""
# Beyond this much of our own, the oldest readings go: the disk neither takes them nor refuses.
MAX_LEDGER_BYTES: Final = 48 << 20

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
        holdback: Holdback | None = None,
        on_drop: OnDrop = ignore,
        longest_delivery_s: Callable[[], float] = lambda: 120.0,
    ) -> None:
        self._intake = intake
        self._live = live
        self._acknowledge = acknowledge
        self._hold = hold
        self._on_drop = on_drop
        # One thread writes each, so neither needs a lock.
        self._arrived_bytes = 0
        self._taken_bytes = 0
        self._holding = threading.Event()
        self._monotonic = monotonic
        self._events: SimpleQueue[Event] = SimpleQueue()
        self._ledger = Ledger()
        self._parking = Parking()
        self._watch = KafkaWatch(self._parking)
        self._revisions = RunRevisions(intake.run)
        self.counters = Counters()
        self._reception = Reception(intake, self._ledger, acknowledge, self.counters)
        self._writer = writer(self._events.put)
        self._holdback = holdback or Holdback()
        self._overdue = Overdue(
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
        self._try_live_at_s = float("-inf")
        self._stopping_until_s: float | None = None
        self._ended = False
        self._progress = ForwarderProgress(
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
        self._arrived_bytes += MESSAGE_BYTES + len(payload)
        self._events.put(Arrived(topic, payload, ack, retained, repeated))
        if self._memory_bytes() > MAX_MEMORY_BYTES and not self._holding.is_set():
            self._holding.set()
            self._hold(True)

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

    def _memory_bytes(self) -> int:
        """Messages of the broker not yet looked at, and the ledger."""
        return self._arrived_bytes - self._taken_bytes + self._ledger.open_bytes

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
            self._bound_memory()
            self._try_live()
            stopping, oldest = self._stopping_until_s is not None, self._writer.in_memory.oldest
            # What ends with this process goes to Kafka while there is time.
            unsaved_after = oldest - 1 if stopping and oldest is not None else None
            self._backlog.turn(self._monotonic(), fetch=not stopping, last_ones_after=unsaved_after)
            if self._holding.is_set() and self._memory_bytes() < MAX_MEMORY_BYTES // 2:
                self._holding.clear()
                self._hold(False)
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
                self._produce(self._ledger.enter(record, self._monotonic(), own=False))
            case Arrived():
                self._taken_bytes += MESSAGE_BYTES + len(event.payload)
                live, stopping = not self._overdue.pace.metered, self._stopping_until_s is not None
                for entry in self._reception.take(event, self._monotonic(), live=live, stopping=stopping):
                    self._produce(entry)
            case SessionLost():
                self._reception.session_lost()
            case Outcome(entry, undelivered):
                self._outcome(entry, undelivered)
            case OutcomesWait():
                self._drained(self._backlog.take_outcomes(self._monotonic()))
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
                self._produce_waiting()
            case Verdict():
                self._holdback.judge(event)
                self._backlog.released()
                self._produce_waiting()
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
                    self._produce(self._ledger.enter(farewell(), self._monotonic(), own=False))

    def _produce(self, entry: Entry) -> None:
        if not self._watch.answering or not entry.live or entry.stage is not Stage.WAITING:
            return
        if self._holdback.holds(entry.record):
            return
        now_s = self._monotonic()
        if not self._parking.may_send(entry.record.topic, now_s):
            return
        released = self._holdback.release(entry.record)
        if released is not entry.record:
            self._ledger.replace(entry, released)
        self._ledger.produced(entry, now_s)
        if not self._live.send(entry.record, lambda problem: self._events.put(Outcome(entry, problem))):
            self._ledger.undelivered(entry)
        elif self._overdue.pace.metered:
            # Stored soon, as everything is: nothing overdue would ever raise the question.
            self._watch.suspect(entry)

    def _outcome(self, entry: Entry, undelivered: Undelivered | None) -> None:
        if undelivered is None:
            self.counters.delivered[entry.record.key] += 1
            self._note_revision(entry.record)
            self._kafka_told(entry.record.topic, entry.sent_s)
            self.counters.confirmed += 1
            self._settle(self._ledger.delivered(entry))
            return
        self._ledger.undelivered(entry)
        refusal = (
            self._intake.refuse(entry.record, undelivered.problem) if undelivered.record_at_fault else None
        )
        if refusal is not None and entry.stage is Stage.WAITING:
            self.counters.dead_letters += 1
            self._ledger.replace(entry, refusal.record)
            self._produce(entry)
        elif undelivered.record_at_fault or undelivered.topic_at_fault:
            self._parking.park(entry.record.topic, self._monotonic(), undelivered.problem)
        else:
            log.debug("event=kafka.undelivered error=%s", undelivered.problem)

    def _drained(self, delivered: Sequence[Drained]) -> None:
        self._settle(self._ledger.rows_delivered(outcome.number for outcome in delivered))
        latest_sent_s: dict[str, float] = {}
        for outcome in delivered:
            topic = outcome.record.topic
            self.counters.delivered[outcome.record.key] += 1
            self._note_revision(outcome.record)
            if outcome.sent_s > latest_sent_s.get(topic, float("-inf")):
                latest_sent_s[topic] = outcome.sent_s
        for topic, sent_s in latest_sent_s.items():
            self._kafka_told(topic, sent_s)

    def _note_revision(self, record: Record) -> None:
        overtaken = self._revisions.delivered(record)
        if overtaken is not None:
            self._produce(self._ledger.enter(overtaken, self._monotonic(), own=False))

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

    def _bound_memory(self) -> None:
        if self._ledger.open_bytes <= MAX_LEDGER_BYTES:
            return
        lost, settled = self._ledger.give_up(self._ledger.open_bytes - MAX_LEDGER_BYTES * 7 // 8)
        if lost:
            self._on_drop(Drop(MEMORY_FULL, 0, 0, len(lost), summarise(lost)))
        self._settle(settled)

    # Whether Kafka answers.

    def _kafka_told(self, topic: str, sent_s: float) -> None:
        if self._watch.told(topic, sent_s, self._monotonic(), self._overdue.pace.verdict_s):
            self._go_live()

    def _try_live(self) -> None:
        """Without a backlog there is no probe: what waits, or comes next, may go live and be it.

        That is so when nothing is left to send but what waits for the clock, and when the disk refuses. Not
        too often: over a slow link every report is late, and each try would be stored as well.
        """
        if self._watch.answering:
            return
        now_s = self._monotonic()
        store_refused = self._overdue.is_refused(now_s)
        if self._backlog.sendable and not store_refused:
            return
        if len(self._ledger) and not (store_refused or self._holdback.active):
            return
        if now_s < self._try_live_at_s:
            return
        if not (store_refused or all(map(self._holdback.holds, self._ledger.records()))):
            self._try_live_at_s = now_s + _IDLE_S
            return
        self._try_live_at_s = now_s + _TRY_LIVE_EVERY_S
        self._go_live()

    def _go_live(self) -> None:
        if not self._watch.answering:
            self._watch.answering = True
            log.warning("event=kafka.answers outbox_records=%d", self._writer.records)
            self._produce_waiting()

    def _produce_waiting(self) -> None:
        """What was not stored goes to Kafka after all, but for echoes that are still to come."""
        if self._watch.answering:
            for entry in self._ledger.waiting():
                if (
                    not entry.own
                    or entry.acks
                    or entry.entered_s < self._overdue.entered_before_s(self._monotonic())
                ):
                    self._produce(entry)

    def _finished(self) -> bool:
        if self._stopping_until_s is None:
            return False
        if self._monotonic() >= self._stopping_until_s:
            return True
        done = not len(self._ledger) and not self._ledger.held and self._backlog.idle
        return done and not self._writer.in_memory.records
