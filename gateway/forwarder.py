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
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Final, Literal

from gateway.drain import Drain
from gateway.intake import Intake, Refusal
from gateway.ledger import Ack, Entry, Ledger, Settled, Stage
from gateway.outbox_records import from_bytes
from gateway.outbox_writer import Answer, Fetched, NotFetched, NotStored, OutboxWriter, Stored
from gateway.ports import Record, Sink, Undelivered

log = logging.getLogger(__name__)

_IDLE_S: Final = 1.0
_RETRY_STORE_S: Final = 1.0
_RETRY_DRAIN_S: Final = 0.25
# Beyond this many open entries a sampler waits in ``sampled``; a mast at 12 readings/s never gets near it.
_MAX_OPEN: Final = 50_000
# During an outage a commit waits this share of the interval, so that fsync comes within the interval.
_OUTAGE_PATIENCE: Final = 0.9
REPLAYED: Final = ("replayed", b"1")

Uplink = Literal["healthy", "spilling", "draining"]


@dataclass(frozen=True, slots=True)
class _Sampled:
    record: Record


@dataclass(frozen=True, slots=True)
class _Arrived:
    topic: str
    payload: bytes
    ack: Ack | None


@dataclass(frozen=True, slots=True)
class _Outcome:
    entry: Entry
    undelivered: Undelivered | None


@dataclass(frozen=True, slots=True)
class _Drained:
    number: int
    record: Record
    undelivered: Undelivered | None


@dataclass(frozen=True, slots=True)
class _Stop:
    grace_s: float


_Event = _Sampled | _Arrived | _Outcome | _Drained | _Stop | Answer


@dataclass(slots=True)
class Counters:
    """What the forwarder has done since the daemon started; written by its thread only."""

    sampled: int = 0
    received: int = 0
    confirmed: int = 0
    stored: int = 0
    drained: int = 0
    dead_letters: int = 0
    late_echoes: int = 0


class Forwarder:
    """The thread that owns the ledger. ``acknowledge`` sends a PUBACK and must not block."""

    def __init__(
        self,
        intake: Intake,
        sink: Sink,
        writer: Callable[[Callable[[Answer], None]], OutboxWriter],
        acknowledge: Callable[[Ack], None],
        commit_interval_s: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._intake = intake
        self._sink = sink
        self._acknowledge = acknowledge
        self._interval_s = commit_interval_s
        self._monotonic = monotonic
        self._events: SimpleQueue[_Event] = SimpleQueue()
        self._ledger = Ledger()
        self._drain = Drain()
        self._writer = writer(self._events.put)
        self._removed_since_fetch: set[int] = set()
        self._answering = True
        self._not_before_s = {"store": 0.0, "drain": 0.0}
        self._stopping_until_s: float | None = None
        self._room = threading.Event()
        self._room.set()
        self._thread = threading.Thread(target=self._run, name="forwarder", daemon=True)
        self.counters = Counters()
        self.turned_s = monotonic()

    # Called from any thread.

    def sampled(self, record: Record) -> None:
        """Enter one of our own readings, before it is published; waits while the ledger is full."""
        self._room.wait()
        self._events.put(_Sampled(record))

    def arrived(self, topic: str, payload: bytes, ack: Ack | None) -> None:
        """Take a message that came from the broker."""
        self._events.put(_Arrived(topic, payload, ack))

    def start(self) -> None:
        """Start the thread and the outbox writer's."""
        self._writer.start()
        self._thread.start()

    def stop(self, grace_s: float) -> None:
        """Store everything unconfirmed at once, give Kafka ``grace_s`` for what it holds, and end."""
        self._events.put(_Stop(grace_s))
        self._thread.join()
        self._writer.stop()

    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def is_stuck(self) -> bool:
        """Whether the thread has not come round for ten times its longest wait."""
        return self._monotonic() - self.turned_s > 10 * _IDLE_S

    @property
    def uplink(self) -> Uplink:
        """Whether Kafka answers, and whether a backlog is on its way."""
        if not self._answering:
            return "spilling"
        return "draining" if self._writer.records else "healthy"

    @property
    def in_flight(self) -> int:
        """Entries that are neither confirmed nor stored yet."""
        return len(self._ledger)

    @property
    def outbox_records(self) -> int:
        """Rows in the outbox."""
        return self._writer.records

    @property
    def outbox_bytes(self) -> int:
        """Size of the outbox on disk, write-ahead log included."""
        return self._writer.size_bytes

    # The thread.

    def _run(self) -> None:
        while not self._finished():
            self.turned_s = self._monotonic()
            try:
                event: _Event | None = self._events.get(timeout=self._patience())
            except Empty:
                event = None
            if event is not None:
                self._dispatch(event)
            self._store_overdue()
            self._fetch_backlog()
            if len(self._ledger) < _MAX_OPEN:
                self._room.set()
            else:
                self._room.clear()

    def _dispatch(self, event: _Event) -> None:
        match event:
            case _Sampled(record):
                self.counters.sampled += 1
                self._ledger.enter(record, self._monotonic(), own=True)
            case _Arrived(topic, payload, ack):
                self._receive(topic, payload, ack)
            case _Outcome(entry, undelivered):
                self._outcome(entry, undelivered)
            case _Drained(number, record, undelivered):
                self._drained(number, record, undelivered)
            case Stored(entries, numbers):
                self.counters.stored += len(numbers)
                self._settle(self._ledger.stored(entries, numbers))
            case NotStored(entries, problem):
                log.error("event=outbox.store_failed records=%d error=%s", len(entries), problem)
                self._not_before_s["store"] = self._monotonic() + _RETRY_STORE_S
                self._settle(self._ledger.not_stored(entries))
            case Fetched(rows):
                self._send_backlog(rows)
            case NotFetched(problem):
                log.error("event=outbox.fetch_failed error=%s", problem)
                self._drain.failed()
                self._not_before_s["drain"] = self._monotonic() + _RETRY_STORE_S
            case _Stop(grace_s):
                self._stopping_until_s = self._monotonic() + grace_s

    def _receive(self, topic: str, payload: bytes, ack: Ack | None) -> None:
        entry = self._ledger.echoed(payload, ack)
        if entry is None:
            self.counters.received += 1
            accepted = self._intake.accept(topic, payload)
            if accepted is None:
                # An echo of a reading that is confirmed or stored already.
                self.counters.late_echoes += 1
                self._settle(Settled(() if ack is None else (ack,)))
                return
            if isinstance(accepted, Refusal):
                self.counters.dead_letters += 1
                log.warning("event=message.refused topic=%s reason=%s", topic, accepted.reason)
            entry = self._ledger.enter(accepted.record, self._monotonic(), own=False, ack=ack)
        self._produce(entry)

    def _produce(self, entry: Entry) -> None:
        if not self._answering or entry.stage is not Stage.WAITING:
            return
        self._ledger.produced(entry)
        if not self._sink.send(entry.record, lambda problem: self._events.put(_Outcome(entry, problem))):
            self._ledger.undelivered(entry)

    def _outcome(self, entry: Entry, undelivered: Undelivered | None) -> None:
        if undelivered is None:
            self._kafka_answers()
            self.counters.confirmed += 1
            self._settle(self._ledger.delivered(entry))
            return
        self._ledger.undelivered(entry)
        if undelivered.record_at_fault and entry.stage is Stage.WAITING:
            self.counters.dead_letters += 1
            refusal = self._intake.refuse(entry.record, undelivered.problem)
            self._ledger.replace(entry, refusal.record)
            self._produce(entry)
        else:
            log.debug("event=kafka.undelivered error=%s", undelivered.problem)

    def _settle(self, settled: Settled) -> None:
        for ack in settled.acks:
            self._acknowledge(ack)
        self._remove(settled.rows)

    def _remove(self, rows: Iterable[int]) -> None:
        doomed = tuple(rows)
        if doomed:
            self._removed_since_fetch.update(doomed)
            self._writer.remove(doomed)

    # Storing what is overdue.

    def _entered_before_s(self, now_s: float) -> float:
        """Entries that entered before this moment must be on their way to the disk now."""
        patience = 0.5 if self._answering else _OUTAGE_PATIENCE
        return now_s - patience * self._interval_s

    def _patience(self) -> float:
        now_s = self._monotonic()
        until_s = now_s + _IDLE_S
        oldest = self._ledger.oldest_unstored()
        if oldest is not None:
            overdue_s = oldest.entered_s + (now_s - self._entered_before_s(now_s))
            until_s = min(until_s, max(overdue_s, self._not_before_s["store"]))
        if self._backlog_wanted():
            until_s = min(until_s, self._not_before_s["drain"])
        if self._stopping_until_s is not None:
            until_s = min(until_s, self._stopping_until_s)
        return max(until_s - now_s, 0.0)

    def _store_overdue(self) -> None:
        now_s = self._monotonic()
        oldest = self._ledger.oldest_unstored()
        if oldest is None or now_s < self._not_before_s["store"]:
            return
        stopping = self._stopping_until_s is not None
        if not stopping and oldest.entered_s > self._entered_before_s(now_s):
            return
        if oldest.at_sink and self._answering and not stopping:
            self._answering = False
            log.warning("event=kafka.silent action=store")
        # Once one is overdue because of Kafka, the others would be too: one commit for all of them.
        everything = stopping or not self._answering
        taken = self._ledger.take_for_storing(now_s if everything else self._entered_before_s(now_s))
        if taken:
            self._writer.store(taken)

    # Draining the outbox.

    def _kafka_answers(self) -> None:
        if not self._answering:
            self._answering = True
            log.warning("event=kafka.answers outbox_records=%d", self._writer.records)

    def _backlog_wanted(self) -> bool:
        if self._drain.busy or self._stopping_until_s is not None:
            return False
        # While Kafka is silent, copies that the sink holds are probes enough.
        probing = not self._answering and self._ledger.held > 0
        return self._writer.records > self._ledger.held and not probing

    def _fetch_backlog(self) -> None:
        if self._backlog_wanted() and self._monotonic() >= self._not_before_s["drain"]:
            self._removed_since_fetch.clear()
            self._writer.fetch(self._drain.begin())

    def _send_backlog(self, rows: Iterable[tuple[int, bytes]]) -> None:
        rows = list(rows)
        self._drain.fetched(number for number, _ in rows)
        for number, stored in rows:
            if self._ledger.is_held(number) or number in self._removed_since_fetch:
                continue
            try:
                record = from_bytes(stored)
            except ValueError as error:
                record = self._intake.refuse_row(stored, str(error)).record
                self.counters.dead_letters += 1
            self._resend(number, Record(record.topic, record.key, record.value, (*record.headers, REPLAYED)))
        if not self._drain.busy:
            self._not_before_s["drain"] = self._monotonic() + _RETRY_DRAIN_S

    def _resend(self, number: int, record: Record) -> None:
        self._drain.sent(number)
        if not self._sink.send(record, lambda problem: self._events.put(_Drained(number, record, problem))):
            self._remove(self._drain.outcome(number, delivered=False))

    def _drained(self, number: int, record: Record, undelivered: Undelivered | None) -> None:
        if undelivered is not None and undelivered.record_at_fault:
            self.counters.dead_letters += 1
            self._resend(number, self._intake.refuse(record, undelivered.problem).record)
            return
        if undelivered is None:
            self._kafka_answers()
            self.counters.drained += 1
        self._remove(self._drain.outcome(number, delivered=undelivered is None))
        if undelivered is not None:
            self._not_before_s["drain"] = self._monotonic() + _RETRY_DRAIN_S

    def _finished(self) -> bool:
        if self._stopping_until_s is None:
            return False
        if self._monotonic() >= self._stopping_until_s:
            return True
        return not len(self._ledger) and not self._ledger.held and not self._drain.busy
