"""Carries every message from its first receipt to Kafka, or to the outbox while Kafka doesn't answer.

One thread owns the local broker's session, both producers and the ledger. It sleeps until the connection is
readable or another thread has put an event into its inbox; nothing that it calls blocks.

While Kafka answers, a message goes: received, produced, confirmed, PUBACKed. A reading of our own is entered
and published when it is sampled, and produced when its echo comes back from the local broker. What is not
confirmed within half the commit interval is stored; from then on everything is, once per interval, until a
delivery report shows that Kafka answers again. Then new messages go out at once and the backlog drains beside
them.

Invariants: a PUBACK is sent only when it is due by the ledger, at once only where all that came of a message
has left it, or where nothing comes of it; what neither Kafka nor the outbox takes
is bounded in memory, and what is given up then is reported.
"""

from __future__ import annotations

import logging
import math
import os
import select
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple
from weakref import ref

from buffer.errors import Drop, OnDrop, ignore
from cloud.wire import reading_records as wire
from gateway.clock.hold import BootTime
from gateway.forwarding.backlog import Backlog, SentRow
from gateway.forwarding.ledger import Entry
from gateway.forwarding.outbox_writer import (
    Answer,
    Fetched,
    NotFetched,
    NotRemoved,
    NotStored,
    OutboxWriter,
    Stored,
)
from gateway.forwarding.state import State
from gateway.forwarding.uplink import Uplink
from gateway.ports import Ack, Broker, Message, Record, Sink
from gateway.system.watchdog import Heartbeat


class Sampled(NamedTuple):
    """One of our own readings, to be published to an MQTT topic."""

    record: Record
    topic: str


class Announced(NamedTuple):
    """A record of the gateway itself (runs, status, calibrations, events), as durable as a reading."""

    record: Record


class Posted(NamedTuple):
    """Records made of what a device has handed the gateway itself, which ``ack`` is owed for."""

    records: Sequence[Record]
    ack: Ack


class Published(NamedTuple):
    """A message that a device has published to the gateway itself, which ``ack`` is owed for."""

    topic: str
    payload: bytes
    ack: Ack


class Retained(NamedTuple):
    """Messages that the local broker shall retain, by topic; an empty one removes what it has."""

    messages: Mapping[str, bytes]


class Call(NamedTuple):
    """Something to do between two messages: those that have arrived come before it."""

    function: Callable[[], None]


Event = Sampled | Announced | Posted | Published | Retained | BootTime | Call | Answer


class Inbox:
    """What other threads hand the forwarder: it takes one event at a time, in the order they came.

    Any thread puts and none waits; the forwarder's thread takes, and sleeps here: a descriptor wakes it.
    """

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._asleep = False
        self.has_readings = False
        """Whether some of our own readings have come since this was last reset."""

    def __del__(self) -> None:
        os.close(self._descriptor)

    def sampled(self, record: Record, topic: str) -> None:
        """Enter one of our own readings, which is then published."""
        self.has_readings = True
        self.put(Sampled(record, topic))

    def announce(self, record: Record) -> None:
        """Enter a record of the gateway."""
        self.put(Announced(record))

    def retain(self, messages: Mapping[str, bytes], *, soon: bool = True) -> None:
        """Let the local broker retain these, now and from each connect on; an empty one is removed.

        What needn't be there ``soon`` wakes no thread: it goes with what comes next, within a second.
        """
        if soon:
            self.put(Retained(messages))
        else:
            self._events.append(Retained(messages))

    def put(self, event: Event) -> None:
        """Enter any event."""
        self._events.append(event)
        if self._asleep:
            # Once: each is a system call, in which another thread may take the interpreter's lock.
            self._asleep = False
            self.wake()

    def wake(self) -> None:
        """End the forwarder's sleep."""
        os.eventfd_write(self._descriptor, 1)

    def take(self) -> Event | None:
        """The next event; None where there is none."""
        return self._events.popleft() if self._events else None

    def sleep(self, timeout_s: float, descriptor: int | None, interest: int) -> None:
        """Sleep until an event waits, ``descriptor`` is ready for ``interest``, or the time is over."""
        # First: an event put from now on writes to the descriptor.
        self._asleep = True
        if self._events:
            timeout_s = 0.0
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        if descriptor is not None:
            poll.register(descriptor, interest)
        ready = dict(poll.poll(math.ceil(timeout_s * 1000)))
        self._asleep = False
        if self._descriptor in ready:
            os.eventfd_read(self._descriptor)


# More than a broker keeps in flight for one client (Mosquitto: 20 by default).
_REMEMBERED: Final = 2_000


class RedeliveryCache:
    """Which message the broker sent under which id, to recognise a redelivery: the newest ids.

    After a broken connection the broker sends again what was not acknowledged, flagged as a duplicate and
    under its old id (MQTT 3.1.1, 4.4); in another session of the broker's an id is another message's. Other
    devices' numbers and raw messages get their identity from us at first receipt: a second one would count
    them twice. Not kept beyond the daemon's end; of what has left ledger and sink the bytes aren't kept.
    """

    def __init__(self) -> None:
        self._by_id: OrderedDict[int, tuple[int, str, int, list[ref[Entry]]]] = OrderedDict()

    def note(self, message: Message, entries: Sequence[Entry]) -> None:
        """Remember what a message with a PUBACK became: one entry, or several readings' entries."""
        if message.ack is None:
            return
        number = message.ack.message_id
        self._by_id.pop(number, None)
        self._by_id[number] = (message.session, message.topic, hash(message.payload), list(map(ref, entries)))
        if len(self._by_id) > _REMEMBERED:
            oldest, known = self._by_id.popitem(last=False)
            if any(entry.acks for entry in _living(known[3])):
                # Not acknowledged yet: it may well come again. There is an id for each, 65,535 at most.
                self._by_id[oldest] = known

    def repeated(self, message: Message) -> Sequence[Entry] | None:
        """What is left of what a duplicate became when it first came; None where nothing is known of it."""
        known = None if message.ack is None else self._by_id.get(message.ack.message_id)
        if known is None or known[:3] != (message.session, message.topic, hash(message.payload)):
            return None
        return _living(known[3])


def _living(entries: Iterable[ref[Entry]]) -> list[Entry]:
    return [entry for each in entries if (entry := each()) is not None]


class Reception:
    """Enters messages into the ledger."""

    def __init__(self, state: State, broker: Broker) -> None:
        self._state = state
        self._broker = broker
        self._receipts = RedeliveryCache()
        self._session = 0

    def take(self, message: Message, now_s: float) -> Sequence[Entry]:
        """The entries of the ledger that may go to Kafka with this message."""
        topic, ack, state = message.topic, message.ack, self._state
        if message.session != self._session:
            self._session = message.session
            state.ledger.session_lost()
        echoed = state.ledger.echoed(message.payload, ack) if state.intake.may_echo(topic) else None
        if echoed is not None:
            return (echoed,)
        if message.repeated and ack is not None:
            known = self._receipts.repeated(message)
            if known is not None:
                self._owe(known, ack)
                return ()
        # At the end the broker keeps what it gets no PUBACK for, for the next run: a number given now, after
        # the run's last record, would be in no record.
        return self._accept(message, now_s) if state.taking else ()

    def _accept(self, message: Message, now_s: float) -> Sequence[Entry]:
        topic, ack, state = message.topic, message.ack, self._state
        state.counters.received += 1
        records = state.intake.accept(topic, message.payload, retained=message.retained)
        if records is None:
            # An echo of a reading that is confirmed or stored already.
            state.counters.late_echoes += 1
        entries = self._enter(records or (), ack, now_s)
        if entries:
            self._receipts.note(message, entries)
        return entries

    def take_posted(self, records: Sequence[Record], ack: Ack, now_s: float) -> Sequence[Entry]:
        """The entries of what a device has handed over itself; at the end none, and no answer."""
        state = self._state
        if not state.taking:
            return ()
        state.counters.received += len(records)
        return self._enter(records, ack, now_s)

    def take_published(self, topic: str, payload: bytes, ack: Ack, now_s: float) -> Sequence[Entry]:
        """The entries of a message that a device has published to the gateway itself; at the end none."""
        state = self._state
        if not state.taking:
            return ()
        state.counters.received += 1
        return self._enter(state.intake.accept(topic, payload, direct=True) or (), ack, now_s)

    def acknowledge(self, ack: Ack) -> None:
        """Send a PUBACK to the broker, or report to where a device has its answer from."""
        if ack.done is None:
            self._broker.acknowledge(ack)
        else:
            ack.done()

    def _enter(self, records: Sequence[Record], ack: Ack | None, now_s: float) -> Sequence[Entry]:
        """An entry for each; where nothing comes of a message it is acknowledged at once."""
        state = self._state
        if not records and ack is not None:
            self.acknowledge(ack)
        state.counters.dead_letters += sum(record.topic == wire.DEAD_LETTER_TOPIC for record in records)
        live = not state.pace.metered
        # All of them owe the PUBACK before the first of them can be confirmed.
        return [state.ledger.enter(record, now_s, own=False, ack=ack, live=live) for record in records]

    def _owe(self, entries: Sequence[Entry], ack: Ack) -> None:
        """A message came again: acknowledge it with its last entry, or now if all have left the ledger."""
        still_open = [entry for entry in entries if self._state.ledger.is_open(entry)]
        for entry in still_open:
            self._state.ledger.owe(entry, ack)
        if not still_open:
            self.acknowledge(ack)


log = logging.getLogger(__name__)

_IDLE_S: Final = 1.0
# Delivery reports wake no thread: each turn polls for them. Where none comes by itself one begins at these
# times, seldom while Kafka keeps silent. Mostly a report can wait for the turn of the next message. It can't
# where a device waits for its answer, nor with so many open that a broker's window is full (Mosquitto: 20).
_FIRST_POLL_S: Final = 0.025
_SOON_S: Final = 0.005
_MANY: Final = 16
_LONGEST_POLL_S: Final = 0.1
# While messages come closer together than this, those of the next few milliseconds are taken in one turn: a
# turn for each was much of what a thousand a second cost. One that comes alone waits for nothing.
_BUSY_APART_S: Final = 0.005
_REST_S: Final = 0.004
# Sensors are read at the same instants: with the first reading the others come, and then their echoes.
_GATHER_S: Final = 0.004
_ECHOES_S: Final = 0.002
# A turn with so many is a batch already.
_ENOUGH: Final = 8
# A few milliseconds' work: late messages don't wait for more.
_EVENTS_PER_TURN: Final = 128
_RECHECK_S: Final = 0.1
# It is well within the unit's TimeoutStopSec, grace for Kafka included: what is lost is to be announced.
_LAST_COMMITS_S: Final = 10.0
# The broker keeps what it has while memory holds more than this; it has the session for that.
MAX_MEMORY_BYTES: Final = 32 << 20
# The watchdog's periods.
_TURN_PERIODS: Final = 0.25
_MOVE_PERIODS: Final = 1.0

UplinkState = Literal["healthy", "spilling", "draining", "metered"]


class Forwarder:
    """The thread that owns ``state``, the session with ``broker``, and both sinks.

    New messages go to ``live``, the outbox's to ``backlog``: a long backlog delays nothing new. ``on_drop``
    takes, in the thread, what had to be given up.
    """

    def __init__(
        self,
        inbox: Inbox,
        state: State,
        live: Sink[Entry],
        backlog: Sink[SentRow],
        outbox: OutboxWriter,
        broker: Broker,
        on_drop: OnDrop = ignore,
    ) -> None:
        self.inbox = inbox
        self.counters = state.counters
        self.kafka = state.kafka
        self.outbox = outbox
        self._state = state
        self._sinks = (live, backlog)
        self._broker = broker
        self._on_drop = on_drop
        self._reception = Reception(state, broker)
        self._uplink = Uplink(state, live, outbox)
        self._backlog = Backlog(state, backlog, outbox)
        self._ended = False
        self._full = False
        self._poll_s = _FIRST_POLL_S
        self._messages_s = float("-inf")
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

    def stop(self, grace_s: float) -> Drop | None:
        """Store everything unconfirmed at once, give Kafka ``grace_s`` for what it holds, and end.

        What neither Kafka nor the disk has taken by then is returned: it is lost, but for what the broker
        still keeps.
        """
        ledger = self._state.ledger

        def stop() -> None:
            self._state.taking = False
            self._state.stopping, self._state.stop_at_s = True, self._state.monotonic() + grace_s
            self._uplink.hurry()

        self.inbox.put(Call(stop))
        self._thread.join()
        self.outbox.end()
        self._take_last()
        refusals, until_s = self._refusals, self._state.monotonic() + _LAST_COMMITS_S
        while self._refusals == refusals and self._state.monotonic() < until_s:
            entries = ledger.take_for_storing(float("inf"))
            if not entries:
                break
            self.outbox.store_last(entries)
            self._take_last()
        self.outbox.close()
        self._settle()
        return ledger.left()

    def is_alive(self) -> bool:
        """Whether this thread and the outbox writer's run."""
        return self._thread.is_alive() and self.outbox.is_alive()

    def heartbeats(self) -> tuple[Heartbeat, ...]:
        """For the watchdog, from any thread: that this one comes round, what it forwards, the outbox writer.

        A message may stay in the ledger for a commit interval; the backlog may rest until the next batch of a
        metered uplink, and until its sink gives a record up.
        """
        thread, pace = self._thread.native_id, self._state.pace
        drain_s = (pace.batch_s or 0.0) + self._sinks[1].delivery_timeout_s
        return (
            Heartbeat("forwarder", self._turns, _TURN_PERIODS, thread=thread),
            Heartbeat("forwarding", self._oldest, _MOVE_PERIODS, pace.commit_interval_s, thread),
            Heartbeat("draining", self._moves, _MOVE_PERIODS, drain_s, thread),
            self.outbox.heartbeat(),
        )

    @property
    def uplink(self) -> UplinkState:
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
    def has_durable(self) -> bool:
        """Whether Kafka or the outbox has taken a reading of this run."""
        return self._state.ledger.has_durable

    @property
    def in_flight(self) -> int:
        """Entries that are neither confirmed nor stored yet."""
        return len(self._state.ledger)

    @property
    def in_memory(self) -> tuple[int, int]:
        """Records that are in memory because the disk can't be used, and what memory has in bytes."""
        ledger = self._state.ledger
        return ledger.refused, ledger.size_bytes if ledger.refused else 0

    @property
    def is_full(self) -> bool:
        """Whether memory has no room for more from others."""
        return self._full

    @property
    def held_rows(self) -> int:
        """Rows of the outbox that wait for the clock."""
        return self._backlog.held

    def _take_last(self) -> None:
        """What the thread has left in its inbox: all of it where it died."""
        now_s = self._state.monotonic()
        while (event := self.inbox.take()) is not None:
            if isinstance(event, Sampled | Announced):
                self._state.ledger.enter(event.record, now_s, own=isinstance(event, Sampled))
            elif isinstance(event, Stored | NotStored):
                self._take_answer(event, now_s)

    def _run(self) -> None:
        state, broker, sendable = self._state, self._broker, self._backlog.sendable
        while not self._finished():
            self._mark_progress(sendable)
            self.inbox.sleep(self._patience_s(), *broker.interest())
            readings = self.inbox.has_readings
            if readings:
                time.sleep(_GATHER_S)
                self.inbox.has_readings = False
            now_s = state.monotonic()
            self._take_events(now_s)
            messages = broker.read(now_s, take=not self._full)
            for message in messages:
                for entry in self._reception.take(message, now_s):
                    self._uplink.send(entry, now_s)
            reported = self._take_outcomes(now_s)
            sendable = self._backlog.sendable
            self._uplink.turn(now_s, backlog=sendable)
            self._bound_memory()
            self._backlog.turn(now_s)
            self._settle()
            broker.write()
            if reported or messages:
                self._poll_s = _SOON_S if self._open > _MANY else _FIRST_POLL_S
            if readings:
                time.sleep(_ECHOES_S)
            elif 0 < len(messages) < _ENOUGH and now_s - self._messages_s < _BUSY_APART_S:
                time.sleep(_REST_S)
            if messages:
                self._messages_s = now_s
        self._ended = True

    def _mark_progress(self, sendable: bool) -> None:
        ledger = self._state.ledger
        self._turns += 1
        if ledger.storing:
            # The writer shows its own progress. If it has nothing to do, its answer went astray.
            self._oldest = None if self.outbox.busy else ("storing", self.counters.stored)
        else:
            oldest = ledger.oldest_unstored()
            # That the outbox refuses messages, which stay in the ledger, is no standstill.
            self._oldest = None if oldest is None else (id(oldest), oldest.entered_s, self._refusals)
        self._moves = self._backlog.moves if sendable else None

    def _take_events(self, now_s: float) -> None:
        """Those behind the first too, since a turn after each costs more than it."""
        for _ in range(_EVENTS_PER_TURN):
            event = self.inbox.take()
            if event is None:
                return
            self._dispatch(event, now_s)

    def _take_outcomes(self, now_s: float) -> bool:
        """What became of records at the sinks; whether there was anything."""
        reported = self._uplink.poll(now_s)
        drained = self._backlog.poll(now_s)
        if drained:
            self._uplink.drained(drained, now_s)
        return reported or bool(drained)

    def _dispatch(self, event: Event, now_s: float) -> None:
        state = self._state
        match event:
            case Sampled(record, topic):
                state.counters.sampled += 1
                # The ledger first: what the broker loses, the ledger still has.
                state.ledger.enter(record, now_s, own=True, live=not state.pace.metered)
                self._broker.publish(topic, record.value)
            case Announced(record):
                self._uplink.announce(record, now_s)
            case Posted(records, ack):
                # Its device waits for the answer.
                self._poll_s = _SOON_S
                for entry in self._reception.take_posted(records, ack, now_s):
                    self._uplink.send(entry, now_s)
            case Published(topic, payload, ack):
                self._poll_s = _SOON_S
                for entry in self._reception.take_published(topic, payload, ack, now_s):
                    self._uplink.send(entry, now_s)
            case Retained(messages):
                self._broker.retain(messages)
            case Stored() | NotStored():
                self._take_answer(event, now_s)
            case BootTime():
                state.hold.decide(event)
                self._backlog.released()
                self._uplink.send_waiting(now_s)
            case Fetched(rows):
                # Rows that Kafka has since an event before this one are to be removed, not sent.
                self._settle()
                self._backlog.fetched(rows, now_s)
            case NotRemoved(numbers, problem):
                self._backlog.not_removed(numbers, problem, now_s)
            case NotFetched(problem):
                self._backlog.not_fetched(problem, now_s)
            case Call(function):
                function()

    def _take_answer(self, answer: Stored | NotStored, now_s: float) -> None:
        state = self._state
        if isinstance(answer, Stored):
            state.counters.stored += len(answer.numbers)
            self._backlog.stored(answer.entries, answer.numbers)
            state.ledger.stored(answer.entries, answer.numbers)
        else:
            self._refusals += 1
            self._uplink.not_stored(answer.entries, now_s)

    def _settle(self) -> None:
        """Send the PUBACKs that are due, remove the rows that Kafka has."""
        settled = self._state.ledger.take_settled()
        for ack in settled.acks:
            self._reception.acknowledge(ack)
        if settled.rows:
            self._backlog.remove(settled.rows)

    def _bound_memory(self) -> None:
        """Leave with the broker what there is no room for; give up our own oldest readings at the last."""
        ledger = self._state.ledger
        if self._full != (ledger.size_bytes > (MAX_MEMORY_BYTES // 2 if self._full else MAX_MEMORY_BYTES)):
            self._full = not self._full
            if self._full:
                log.warning("event=mqtt.held reason=memory_full")
            else:
                log.warning("event=mqtt.resumed")
        if ledger.size_bytes > ledger.most_bytes:
            lost = ledger.give_up()
            if lost is not None:
                self._on_drop(lost)

    def _patience_s(self) -> float:
        now_s, stop_at_s = self._state.monotonic(), self._state.stop_at_s
        until_s = min(now_s + _IDLE_S, self.kafka.wake_s(), self._uplink.wake_s(now_s), self._broker.wake_s())
        if self._open:
            until_s = min(until_s, now_s + self._poll_s)
            self._poll_s = min(2 * self._poll_s, _LONGEST_POLL_S)
        ends_s = self._backlog.wake_s() if stop_at_s is None else stop_at_s
        return max(min(until_s, ends_s) - now_s, 0.0)

    @property
    def _open(self) -> int:
        """How many records' outcomes are to come."""
        live, backlog = self._sinks
        return live.open + backlog.open

    def _finished(self) -> bool:
        state = self._state
        if state.stop_at_s is None:
            return False
        if state.monotonic() >= state.stop_at_s:
            return True
        return not len(state.ledger) and not state.ledger.held and self._backlog.idle
