"""Carries every message from its first receipt to Kafka, or to the outbox while Kafka doesn't answer.

One thread owns the ledger. Samplers, the broker's network thread, the sink's poll thread and the outbox
writer only put events into its queue, so each decision is made in one place, in one order.

While Kafka answers, a message goes: received, produced, confirmed, PUBACKed. A reading of our own is entered
when it is sampled, and produced when its echo comes back from the local broker. What is not confirmed within
half the commit interval is stored; from then on everything is, once per interval, until a delivery report
says that Kafka answers again. Then new messages go out at once and the backlog drains beside them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from queue import Empty
from typing import Final, Literal

from buffer.drops import InMemory, OnDrop, ignore
from gateway.clock.hold import BootTime, ClockHold
from gateway.forwarding.backlog import REMOVE_AGAIN_S, Backlog, OutcomesWait
from gateway.forwarding.compacted_topics import CompactedTopics
from gateway.forwarding.heartbeat import ForwarderHeartbeat
from gateway.forwarding.inbox import (
    Announced,
    Arrived,
    Changed,
    Event,
    Inbox,
    Outcome,
    Sampled,
    SessionLost,
    Stop,
    TakeNoMore,
    bound_ledger,
)
from gateway.forwarding.kafka_health import KafkaHealth, TopicBackoff
from gateway.forwarding.ledger import Counters, Ledger, Settled
from gateway.forwarding.live import LiveSender
from gateway.forwarding.outbox_writer import (
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
from gateway.ports import Broker, Record, Sink
from gateway.system.watchdog import Heartbeat

log = logging.getLogger(__name__)

_IDLE_S: Final = 1.0
# A few milliseconds' work: overdue messages don't wait for more.
_EVENTS_PER_TURN: Final = 128
# How often a stop looks whether the outbox has got rid of what only memory holds.
_LOOK_AGAIN_S: Final = 0.1

Uplink = Literal["healthy", "spilling", "draining", "metered"]


class Forwarder:
    """The thread that owns the ledger.

    New messages go through ``live``, the outbox through ``backlog``: a long backlog delays nothing new.
    ``broker`` is sent PUBACKs, and resumed when memory has room again. What ``holdback`` holds goes no
    further than the outbox until it is judged. ``on_drop`` takes, in the thread, what had to be given up.
    """

    def __init__(
        self,
        inbox: Inbox,
        intake: Intake,
        live: Sink,
        backlog: Sink,
        writer: OutboxWriter,
        broker: Broker,
        pace: Pace,
        holdback: ClockHold | None = None,
        on_drop: OnDrop = ignore,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.inbox = inbox
        self._broker = broker
        self._monotonic = monotonic
        self._ledger = Ledger()
        self._parking = TopicBackoff()
        self._watch = KafkaHealth(self._parking)
        self._revisions = CompactedTopics(intake.run)
        self._on_drop = on_drop
        self.counters = Counters()
        self._reception = Reception(intake, self._ledger, broker, self.counters)
        self._writer = writer
        self._holdback = holdback or ClockHold()
        self._overdue = SpillTimer(
            pace, self._ledger, self._writer, self._watch, self._parking, self._holdback
        )
        self._backlog = Backlog(
            intake,
            backlog,
            self._writer,
            self._ledger,
            self._parking,
            inbox.put,
            Batches(pace.batch_s),
            self._holdback,
            self._revisions,
        )
        self._delivery = LiveSender(
            intake,
            live,
            inbox.put,
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
        self._taking = True
        self._stopping_until_s: float | None = None
        self._ended = False
        self._progress = ForwarderHeartbeat(
            self._ledger,
            self._backlog,
            self._writer,
            self.counters,
            self._overdue,
            backlog,
        )
        self._thread = threading.Thread(target=self._run, name="forwarder", daemon=True)

    def start(self) -> None:
        """Start the thread and the outbox writer's."""
        self._writer.start()
        self._thread.start()

    def take_no_more(self) -> None:
        """Accept no further message, from the return of this on; what has arrived before is entered."""
        done = threading.Event()
        self.inbox.put(TakeNoMore(done))
        while self._thread.is_alive() and not done.wait(_LOOK_AGAIN_S):
            pass

    def stop(self, grace_s: float) -> list[Record]:
        """Store everything unconfirmed at once, give Kafka ``grace_s`` for what it holds, and end.

        What neither Kafka nor the disk has taken by then is given back: it is lost, but for what the broker
        still keeps.
        """
        self.inbox.put(Stop(grace_s))
        self._thread.join()
        if not self._ended:
            self._rescue()
        self._writer.stop()
        while not self.inbox.empty:
            # What came to the disk at the very end is stored, and its PUBACKs are due.
            event = self.inbox.take(0.0)
            if isinstance(event, Stored | Kept | Durable):
                self._dispatch(event)
        return self._ledger.records()

    def is_alive(self) -> bool:
        """Whether this thread and the outbox writer's run."""
        return self._thread.is_alive() and self._writer.is_alive()

    def heartbeats(self) -> tuple[Heartbeat, ...]:
        """For the watchdog: this thread, what it forwards, and the outbox writer."""
        return (*self._progress.heartbeats(self._thread.native_id), self._writer.heartbeat())

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

    def _rescue(self) -> None:
        """Have stored what a thread that died left, in the ledger and in its queue."""
        while not self.inbox.empty:
            event = self.inbox.take(0.0)
            if isinstance(event, Sampled | Announced):
                self._ledger.enter(event.record, self._monotonic(), own=isinstance(event, Sampled))
            elif isinstance(event, Stored | Kept | Durable):
                self._dispatch(event)
        self._writer.store(self._ledger.take_for_storing(float("inf")))

    # The thread.

    def _run(self) -> None:
        while not self._finished():
            self._progress.turned()
            self.inbox.ledger_bytes = self._ledger.open_bytes
            self._take_events()
            self._watch.judge(self._monotonic(), self._overdue.pace.verdict_s)
            self._overdue.store(self._monotonic(), stopping=self._stopping_until_s is not None)
            self._settle(bound_ledger(self._ledger, self._on_drop))
            self._delivery.try_again()
            stopping, oldest = self._stopping_until_s is not None, self._writer.in_memory.oldest
            # What ends with this process goes to Kafka while there is time.
            unsaved_after = oldest - 1 if stopping and oldest is not None else None
            self._backlog.turn(self._monotonic(), fetch=not stopping, last_ones_after=unsaved_after)
            if self.inbox.has_room_again():
                self._broker.resume()
        self._ended = True

    def _take_events(self) -> None:
        """Wait for an event; take those behind it too, since looking around after each costs more than it."""
        timeout_s = self._patience()
        try:
            for _ in range(_EVENTS_PER_TURN):
                self._dispatch(self.inbox.take(timeout_s))
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
                live, now_s = not self._overdue.pace.metered, self._monotonic()
                for entry in self._reception.take(event, now_s, live=live, stopping=not self._taking):
                    self._delivery.send(entry)
                self.inbox.ledger_bytes = self._ledger.open_bytes
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
            case BootTime():
                self._holdback.decide(event)
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
            case Changed(apply, commit_interval_s):
                apply()
                self._overdue.change(commit_interval_s)
            case TakeNoMore(done):
                self._taking = False
                done.set()
            case Stop(grace_s):
                self._taking = False
                self._stopping_until_s = self._monotonic() + grace_s

    def _settle(self, settled: Settled) -> None:
        for ack in settled.acks:
            self._broker.acknowledge(ack)
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
